# shellcheck shell=sh disable=SC2154 # tests/cli/lib.sh sets work
# Functions for fault tests. Source this file after tests/cli/lib.sh and tests/cli/train.sh. It makes and enters the folder $work/place;
# fault.so counts the calls that change files below it.
#   faulty DO N COMMAND...   runs the command with the fault DO at its Nth counted call; see preload.cc
#   calls COMMAND...         runs the command and prints its number of counted calls; ../calls has a line per call
#   some [WORDS]             prints the numbers of the calls to test: with FAULTS=all each call, otherwise all calls that sync, rename, make
#                            or remove, every 40th call that writes, and the last; only calls in WORDS if WORDS is given
#   committed STEP           prints the number of the call that commits the step
#   kill_at DO N COMMAND...  runs faulty and complains unless the command was killed
#   whole RUN STEP...        complains unless the committed steps exist, all checkpoints verify and no temporary folder can be read
#   same FOLDER FOLDER       complains unless the files of two checkpoints are equal
#   complain TEXT            counts an error and prints it
#   nothing_lost NAME N      passes if there were no complaints since the last call and N is above 0
#   tally NAME               nothing_lost with the number of kills
#   finish                   prints the number of kills and calls done_testing
O=${O:-$SRC/build} faults=${FAULTS:-sample}
place=$(pwd -P)/place
mkdir place && cd place || exit 2
kills=0 all_kills=0 lost=0
faulty() {
  do=$1 at=$2
  shift 2
  { env FAULT_UNDER="$place" FAULT_DO="$do" FAULT_AT="$at" LD_PRELOAD="$O/test/fault.so" "$@" </dev/null >../out; } 2>../err
}
calls() {
  rm -f ../calls
  FAULT_LOG=$work/calls faulty count 0 "$@" || echo "# failed: $*" >&2
  wc -l <../calls
}
some() {
  [ "$faults" = all ] && stride=1 || stride=${STRIDE:-40}
  awk -v stride="$stride" -v words=" ${1:-} " '
    words != "  " && index(words, " " $1 " ") == 0 { next }
    $1 != "write" && $1 != "open" && $1 != "ftruncate" || NR % stride == 0 { print last = NR }
    END { if (words == "  " && last != NR) print NR }' ../calls
}
committed() { awk -v name="/step-0000000$1\$" '$1 == "rename" && $2 ~ name { moved = 1 } moved && $1 == "fsync" { print NR; exit }' ../calls; }
kill_at() {
  faulty "$@"
  got=$?
  kills=$((kills + 1))
  [ $got = 137 ] || complain "status $got, not killed: $*"
}
complain() {
  lost=$((lost + 1))
  printf '# %s\n' "$*" >&2
  sed 's/^/#   /' ../err | head -3 >&2
}
# whole also checks that fp8-resume --print finds the newest checkpoint without a message.
whole() {
  run=$1
  shift
  for step in "$@"; do [ -d "$run/step-0000000$step" ] || complain "step $step is lost"; done
  newest=
  for folder in "$run"/step-*; do
    case $folder in
      *.tmp) fp8-info "$folder" >../out 2>../err && complain "$folder was read" ;;
      *) fp8-info --verify "$folder" >../out 2>../err || complain "$folder does not verify" ;;
    esac
    case $folder in *.tmp) ;; *) newest=$folder ;; esac
  done
  found=$(fp8-resume "$run" --print 2>../err)
  [ "$found" = "$newest" ] || complain "the newest is $newest, found $found"
  [ ! -s ../err ] || complain "fp8-resume --print writes a message"
}
same() {
  for file in "$1"/*; do cmp -s "$file" "$2/${file##*/}" || complain "$file differs from $2"; done
}
nothing_lost() {
  [ $lost = 0 ] && [ "$2" -gt 0 ]
  result $? "$1"
  lost=0
}
tally() {
  nothing_lost "$1: $kills kills, nothing lost" $kills
  all_kills=$((all_kills + kills))
  kills=0
}
finish() {
  [ $all_kills = 0 ] || echo "# ${0##*/}: $all_kills kills" >&2
  done_testing
}
