# shellcheck shell=sh
# TAP functions for tests of the command line. Source this file first: it makes a temporary folder and changes to it.
#   ok NAME COMMAND...            passes if the command succeeds
#   status NAME N COMMAND...      passes if the command exits with status N
#   says NAME REGEX COMMAND...    passes if a line of the command's output (both streams) matches the extended regular expression
#   is NAME GOT WANTED            passes if the two strings are equal
#   long                          succeeds if FP8_LONG is set, as by make check-long; else counts a case that is left out, and fails
#   chosen WORDS                  sets way to the words; those that begin with "long: " lose this mark and are chosen as long decides
#   figures FILE EXPRESSION       prints the value of a Python expression over r, the list of the JSON records in a file.
#   `answering` starts the Python that
#                                 answers all questions, and has to come before
#   sanitized                     succeeds if the programs have AddressSanitizer, which reserves more addresses than a limit of them leaves
#   with_h5py                     prints the Python that has h5py, if there is one
#   on_terminal WORDS...          runs the words as a shell command whose standard streams are a terminal, and prints its output
# BIN is the folder of the programs, SRC the root of the sources. The output of the last command is in the files out and err.
SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BIN=${BIN:-$SRC/build/bin}
FP8_SHARE=${FP8_SHARE:-$SRC/share}
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
OMPI_MCA_mpi_yield_when_idle=1 OMP_WAIT_POLICY=passive
CUDA_VISIBLE_DEVICES= # these tests expect the results of the CPU
TERM=xterm            # on_terminal has a terminal that can draw a line again
export TERM CUDA_VISIBLE_DEVICES OMP_WAIT_POLICY SRC BIN FP8_SHARE OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM \
  OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_hwloc_base_binding_policy OMPI_MCA_mpi_yield_when_idle
PATH=$BIN:$PATH
count=0
work=$(mktemp -d) || exit 2
trap 'cd / && rm -rf "$work" "$work.mpi"' EXIT
export OMPI_MCA_orte_tmpdir_base="$work.mpi" # jobs that share a folder fail now and then: one removes it while another starts
cd "$work" || exit 2
export XDG_CONFIG_HOME="$work/config" # without the machine that the user has stored

result() { # PASSED NAME
  count=$((count + 1))
  if [ "$1" = 0 ]; then
    echo "ok $count - $2"
  else
    echo "not ok $count - $2"
    head -5 err 2>/dev/null | sed 's/^/# /' >&2
  fi
}
ok() {
  name=$1
  shift
  "$@" >out 2>err </dev/null
  result $? "$name"
}
status() {
  name=$1 wanted=$2
  shift 2
  "$@" >out 2>err </dev/null
  got=$?
  [ $got = "$wanted" ] || echo "# status $got, wanted $wanted" >&2
  [ $got = "$wanted" ]
  result $? "$name"
}
says() {
  name=$1 pattern=$2
  shift 2
  "$@" >out 2>err </dev/null
  cat out err | grep -Eq -e "$pattern"
  result $? "$name"
}
sanitized() { ldd "$BIN/fp8-step" | grep -q libasan; }
with_h5py() {
  found=
  for p in "${PACKAGED_PYTHON:-python3}" /usr/bin/python3; do "$p" -c 'import h5py' 2>/dev/null && found=$p; done
  echo "$found"
}
is() {
  [ "$2" = "$3" ] || printf '# got: %s\n# wanted: %s\n' "$2" "$3" >&2
  [ "$2" = "$3" ]
  result $? "$1"
}
left=0
long() {
  [ -z "${FP8_LONG:-}" ] || return 0
  left=$((left + 1))
  return 1
}
chosen() {
  way=${1#long: }
  [ "$way" = "$1" ] || long
}
answering() {
  mkfifo questions answers
  python3 -S -c '
import json, struct, sys, traceback
for question in sys.stdin:
    path, expression = question.rstrip("\n").split("\t", 1)
    try:
        r = [json.loads(line) for line in open(path)]
        answer = str(eval(expression))
    except Exception:
        traceback.print_exc()
        answer = "an error"
    print(answer.replace("\n", "\\n"), flush=True)' <questions >answers &
  exec 8>questions 9<answers # Python ends with the script, the only one that holds its input open
}
figures() {
  printf '%s\t%s\n' "$1" "$(printf %s "$2" | tr '\n' ' ')" >&8 # a question is one line
  IFS= read -r answer <&9
  printf '%s\n' "$answer"
}
on_terminal() { script -qec "$*" /dev/null; }
done_testing() {
  [ $count != 0 ] || result 1 "a script has tests"
  echo "1..$count"
  [ $left = 0 ] || echo "# $left long cases left out" | tee -a "${LEFT_OUT:-/dev/null}"
}
