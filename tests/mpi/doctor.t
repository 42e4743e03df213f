#!/bin/sh
# fp8-doctor on the ranks of one machine: one report, what prevents that they train together, and a rank that is stuck. tests/cluster has several hosts.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
export OMP_NUM_THREADS=1

ok "two ranks can train together" mpirun -n 2 fp8-doctor --out run
is "one report is printed, and no message" "$(grep -c '^GPU$' out) $(tail -n 1 out | cut -d';' -f1) $(cat err)" "1 2 ranks on 1 host can train together "
is "it has what only a job has" "$(sed -n '/^job$/,/^$/s/^  pass  \(.*[^ ]\)   *[^ ].*/\1/p' out | paste -s -d , | sed 's/  .*//')" \
  "version,ranks,folder,small all-reduce,large all-reduce"
is "nothing is left in the folder" "$(ls)" "$(printf 'err\nout')"
ok "--json and -o" mpirun -n 2 fp8-doctor --json -o report.json
is "the JSON has hosts, conflicts and times" "$(python3 -c '
import json
r = json.load(open("out"))
sums = r["all_reduces"]
print(r == json.load(open("report.json")), r["together"], r["conflicts"], [h["ranks"] for h in r["hosts"]], [s["bytes"] >= size for s, size in zip(sums, (8, 65536))],
      all(s["seconds"] > 0 and s["bytes_per_s"] > 0 for s in sums))')" "True True [] [2] [True, True] True"
status "a report that exists" 2 mpirun -n 2 fp8-doctor -o report.json
is "one line says so" "$(grep '^fp8-' err)" "fp8-doctor: rank 0: report.json: exists (use --force to replace it)"

status "a program of another version" 1 mpirun -n 1 fp8-doctor : -n 1 "$O/test/other-doctor"
is "it is named, and nothing else is compared" "$(grep -c . out) $(tail -n 1 out) $(grep -c 'rank 1: 0\.0\.0$' out)" "5 2 ranks on 1 host cannot train together: version 1"
status "a folder that cannot be written" 1 mpirun -n 2 fp8-doctor --out /proc/run
is "it is a conflict" "$(tail -n 1 out) $(grep -c '^  fail  folder .*/proc: no file can be made there: ' out)" "2 ranks on 1 host cannot train together: folder 1"
if grep -qw avx512vl /proc/cpuinfo; then # other processors have one instruction set
  status "ranks of one host with different instruction sets" 1 mpirun -n 1 env FP8_CPU_ISA=avx2 fp8-doctor : -n 1 env FP8_CPU_ISA=avx512 fp8-doctor
  is "are told apart" "$(grep -A 1 -E '^  fail  instruction set ' out | grep -oE 'rank [01]: avx(2|512),' | paste -s -d' ' -)" \
    "rank 0: avx2, rank 1: avx512,"
fi
says "too many threads are named" '^  fail  ranks .* 2 ranks of 3000 threads on .*: more threads than processors' \
  env OMP_NUM_THREADS=3000 OMP_THREAD_LIMIT=3000 mpirun -n 2 fp8-doctor

# --- a processor that lacks what a program needs, here a bit of ISA_1_NEEDED that no processor has; builds for a baseline without -z have no such word
if python3 -c '
import sys
program, head = bytearray(open(sys.argv[1], "rb").read()), bytes.fromhex("028000c004000000")
if program.count(head) != 1: sys.exit(1)
program[program.index(head) + 8] |= 64
open("needy", "wb").write(program)' "$BIN/fp8-doctor"; then
  chmod +x needy
  status "the loader refuses a rank" 127 mpirun -n 1 fp8-doctor : -n 1 ./needy
  cp err loaded
  # mpirun may end before it has passed on what the loader printed, or the other way round
  ok "it says why, or mpirun names the rank" grep -qE 'CPU ISA level is lower than required$|Process name: \[.*,1\]$' loaded
fi

# --- the file system of the folder hangs on rank 0
mkdir hung
export FAULT_UNDER="$PWD/hung" FAULT_DO=hang FAULT_AT=1 FAULT_RANK=0
start=$(date +%s)
status "a rank that is stuck ends all" 1 mpirun -n 2 env LD_PRELOAD="$O/test/fault.so" fp8-doctor --out hung --timeout 3
is "one line names it and the step" "$(grep '^fp8-' err)" "fp8-doctor: rank 0 did not reach all-gather of lengths 1 of the folder within 3 s"
[ $(($(date +%s) - start)) -le 20 ]
result $? "they end in time"
done_testing
