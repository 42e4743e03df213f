#!/bin/sh
# fp8-doctor on the command line: its lines, its JSON, its status. Holds on machines with a GPU and without one.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

fp8-doctor >text 2>err
code=$?
[ $code = 0 ] || [ $code = 1 ]
result $? "ends with status 0 or 1"
is "says nothing on standard error" "$(cat err)" ""
ok "every line is a verdict, a cure, a heading or the answer" \
  awk '!/^  (pass|fail|none)  [^ ]/ && !/^ +cure: / && !/^(GPU|CUDA|libraries|machine)$/ && !/^$/ && !/^FP8 (runs|cannot run) here/ { bad = 1 } END { exit bad }' text
is "no colour in a pipe" "$(grep -c "$(printf '\033')" text)" 0
ok "what fails has a cure below it" awk '/^  fail/ { open = NR } /cure:/ { open = 0 } open && NR > open { bad = 1 } END { exit bad }' text
ok "the CPU's emulation is exact" grep -q '^  pass  FP8 emulation .* exact, 3 of 3 products in FP8$' text

fp8-doctor --json >json 2>err
is "with the same status" $? $code
is "one line" "$(wc -l <json)" 1
is "its answer fits the status" "$(python3 -c '
import json
r = json.load(open("json"))
print({"native": 0, "emulated": 1, "none": 1}[r["fp8"]])')" $code
is "it has the lines of the text" "$(python3 -c '
import json
print("\n".join(c["verdict"] + " " + c["name"] for c in json.load(open("json"))["checks"]))')" \
  "$(sed -n 's/^  \(pass\|fail\|none\)  \([^ ]*\( [^ ]\{1,\}\)*\)  .*/\1 \2/p' text)"
ok "a report in a file" sh -c 'fp8-doctor -o report.json >/dev/null; [ $? -lt 2 ]'
is "is the same object" "$(python3 -c 'import json; print(json.load(open("report.json"))["type"])')" doctor
status "is not replaced unasked" 2 fp8-doctor -o report.json
is "it says" "$(cat err)" "fp8-doctor: report.json: exists (use --force to replace it)"
ok "but for --force" sh -c 'fp8-doctor -o report.json --force >/dev/null; [ $? -lt 2 ]'
says "too many threads" '^  fail  threads +5000 threads on ' env OMP_NUM_THREADS=5000 OMP_THREAD_LIMIT=5000 fp8-doctor
done_testing
