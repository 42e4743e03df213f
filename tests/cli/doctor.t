#!/bin/sh
# fp8-doctor on the command line: text, JSON, exit status. Passes on machines with and without a GPU.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

fp8-doctor >text 2>err
code=$?
[ $code = 0 ] || [ $code = 1 ]
result $? "the exit status is 0 or 1"
is "standard error is empty" "$(cat err)" ""
ok "each line is a verdict, a hint, a heading or the answer" \
  awk '!/^  (pass|fail|none)  [^ ]/ && !/^ +hint: / && !/^(GPU|CUDA|libraries|machine)$/ && !/^$/ && !/^FP8 (runs|cannot run) here/ { bad = 1 } END { exit bad }' text
is "a pipe gets no colour codes" "$(grep -c "$(printf '\033')" text)" 0
ok "each failed check has a hint below" awk '/^  fail/ { open = NR } /hint:/ { open = 0 } open && NR > open { bad = 1 } END { exit bad }' text
ok "the CPU's emulation is exact" grep -q '^  pass  FP8 emulation .* exact, 3 of 3 GEMMs in FP8$' text

fp8-doctor --json >json 2>err
is "--json gives the same status" $? $code
is "--json prints one line" "$(wc -l <json)" 1
is "the verdict in the JSON matches the status" "$(python3 -c '
import json
r = json.load(open("json"))
print({"native": 0, "emulated": 1, "none": 1}[r["fp8"]])')" $code
is "the JSON has the same checks as the text" "$(python3 -c '
import json
print("\n".join(c["verdict"] + " " + c["name"] for c in json.load(open("json"))["checks"]))')" \
  "$(sed -n 's/^  \(pass\|fail\|none\)  \([^ ]*\( [^ ]\{1,\}\)*\)  .*/\1 \2/p' text)"
ok "-o writes a report" sh -c 'fp8-doctor -o report.json >/dev/null; [ $? -lt 2 ]'
is "the report is the same object" "$(python3 -c 'import json; print(json.load(open("report.json"))["type"])')" doctor
status "an existing report without --force gives status 2" 2 fp8-doctor -o report.json
is "the message names the report and --force" "$(cat err)" "fp8-doctor: report.json: exists (use --force to replace it)"
ok "--force replaces the report" sh -c 'fp8-doctor -o report.json --force >/dev/null; [ $? -lt 2 ]'
says "tasks of srun that MPI does not connect are a warning" '^fp8-doctor: srun started 2 tasks, but MPI has 1 rank: ' \
  env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 fp8-doctor
is "the first task alone prints it" "$(SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 fp8-doctor 2>&1 | grep -c '^fp8-doctor:')" 0
says "--out shows the free space of a folder" '^  pass  folder +run/1: [0-9.]+ [KMGTP]iB free$' fp8-doctor --out run/1
lowest=avx2
[ "$(uname -m)" = x86_64 ] || lowest=neon
says "FP8_CPU_ISA lowers the instruction set" "^  pass  instruction set +$lowest(, lowered by FP8_CPU_ISA; this processor has avx512.*)?$" \
  env FP8_CPU_ISA=$lowest fp8-doctor
says "FP8_CPU_ISA does not raise the instruction set above the CPU's" \
  '^  pass  instruction set +(avx512_bf16|(avx2|neon|avx512); this processor lacks avx512_bf16 of FP8_CPU_ISA)$' \
  env FP8_CPU_ISA=avx512_bf16 fp8-doctor
says "too many threads fail the check" '^  fail  threads +5000 threads on ' env OMP_NUM_THREADS=5000 OMP_THREAD_LIMIT=5000 fp8-doctor
# The check of MPI runs mpirun.
mkdir mpi
mpi_says() { # NAME REGEX: passes if the lines about MPI match; the mpirun in the folder mpi is used
  fp8-doctor >text 2>err
  grep -A 1 ' MPI ' text | tr '\n' ' ' | tr -s ' ' >line
  grep -Eq -e "$2" line
  result $? "$1"
}
fake() { printf '#!/bin/sh\n%s\n' "$1" >mpi/mpirun && chmod +x mpi/mpirun; }
PATH=$work/mpi:$PATH
fake 'printf "%s " "$@" >arguments'
mpi_says "a working mpirun passes" '^ pass MPI .*, [^ ]*/mpi/mpirun, starts processes '
is "mpirun is called with two ranks" "$(cat arguments)" "-n 2 true "
fake 'echo ---- >&2; echo "mpirun has detected an attempt to run as root." >&2; exit 1'
mpi_says "an mpirun that refuses root fails, with a hint" '^ fail MPI .* refuses to run as root hint: .*OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1'
fake 'echo "There are not enough slots available in the system to satisfy the 2" >&2; exit 1'
mpi_says "an mpirun without slots fails, with a hint" '^ fail MPI .* has fewer than 2 slots hint: use mpirun --oversubscribe'
fake 'echo "----" >&2; echo "no daemon" >&2; exit 3'
mpi_says "another failure of mpirun shows its status and its message" '^ fail MPI .* status 3: no daemon hint: '
rm mpi/mpirun
if [ "$(id -u)" = 0 ]; then
  unset OMPI_ALLOW_RUN_AS_ROOT
  mpi_says "the installed mpirun without permission to run as root fails" '^ fail MPI .* refuses to run as root'
fi
echo 'unsigned long cudnnGetVersion(void) { return FOUND; }' >cudnn.c
for version in 91900 92500; do
  mkdir "$version" && cc -DFOUND=$version -shared -fPIC -o "$version/libcudnn.so.9" cudnn.c
  env LD_LIBRARY_PATH="$PWD/$version" fp8-doctor -q >"doctor.$version" 2>&1
done
says "a cuDNN before 9.25 passes with the version to install" 'install cuDNN 9.25 or newer|this build has no CUDA' cat doctor.91900
is "cuDNN 9.25 has no such hint" "$(grep -c '9.25.0' doctor.92500) $(grep -c 'cuDNN 9.25 or newer' doctor.92500)" "1 0"
done_testing
