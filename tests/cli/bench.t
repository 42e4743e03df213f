#!/bin/sh
# fp8-bench on the command line: the table, the JSON, what it refuses. On the CPU, with the smallest model.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

TMPDIR=$work/tmp
export TMPDIR
mkdir tmp
quick="--model tiny --tokens 48 --seconds 0.001 --device cpu"
# shellcheck disable=SC2086
ok "GEMMs and steps" fp8-bench $quick --steps 2
cp out text
is "says nothing on standard error" "$(cat err)" ""
is "a line for each pass of each linear" "$(grep -cE '^(q,k,v|o|gate,up|down) +(forward|dgrad|wgrad|backward) +48 x ' text)" 16
says "FP8 is emulated" '^FP8 is emulated on the CPU' cat text
says "the sum of all linears" '^linears of a step: bf16 [0-9.e-]+ s, FP8 [0-9.e-]+ s: FP8 is (faster|not faster), [0-9.]+ x$' cat text
says "the result of the steps" '^whole steps of 1 x 48 tokens: FP8 is (faster|not faster), [0-9.]+ x$' cat text
is "no temporary file of the steps is left" "$(ls tmp)" ""

# shellcheck disable=SC2086
ok "JSON without steps, under another recipe" fp8-bench $quick --steps 0 --recipe rowwise_with_gw_hp --json -o report.json
is "one line" "$(wc -l <out)" 1
is "with the measurements" "$(python3 -c '
import json
r = json.load(open("out"))
assert r == json.load(open("report.json"))
assert all(p["bf16"]["seconds"] > 0 and p["fp8"]["seconds"] > 0 and p["fp8_faster"] == (p["ratio"] > 1) for p in r["gemms"])
print(r["type"], r["device"], r["emulated"], r["tokens"], len(r["gemms"]), "steps" in r,
      sorted({p["pass"] for p in r["gemms"] if not p["in_fp8"]}))')" "bench CPU True 48 16 False ['wgrad']"
status "a report is not replaced without --force" 2 fp8-bench -o report.json
is "it says" "$(cat err)" "fp8-bench: report.json: exists (use --force to replace it)"
status "an unknown model" 2 fp8-bench --model huge
is "the message lists the models" "$(grep -c tiny err)" 1
status "an unknown recipe" 2 fp8-bench --recipe best
status "no tokens" 2 fp8-bench --tokens 0

# --- sums of tensor cores: the values themselves are tests/golden's
codes=$SRC/tests/golden/accumulate/hopper.h5
ok "sums of the GEMMs in a file" fp8-bench --gemms "$codes" -o sums.h5
is "says nothing" "$(cat out err)" ""
ok "again" fp8-bench --gemms "$codes" -o again.h5 --accumulate hopper
ok "as another chip" fp8-bench --gemms "$codes" -o ada.h5 --accumulate ada
cmp sums.h5 again.h5
result $? "the same bytes twice"
cmp -s sums.h5 ada.h5
is "other bytes as another chip" $? 1
bad() { # NAME REGEX WORDS...
  name=$1 pattern=$2
  shift 2
  fp8-bench "$@" >out 2>err </dev/null
  got=$?
  [ $got = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -Eq -e "^fp8-bench: $pattern" err && [ ! -s out ]
  result $? "$name"
}
cp sums.h5 before.h5
bad "sums are not replaced unasked" 'sums.h5: exists \(use --force to replace it\)' --gemms "$codes" -o sums.h5
cmp sums.h5 before.h5
result $? "and stay as they were"
ok "with --force they are" fp8-bench --gemms "$codes" -f -o ada.h5
cmp sums.h5 ada.h5
result $? "by the others"
bad "no output" '--gemms: needs -o FILE' --gemms "$codes"
bad "no such file" 'none.h5: ' --gemms none.h5 -o x.h5
bad "an unknown chip" "--accumulate: 'volta' is not one of" --gemms "$codes" -o x.h5 --accumulate volta
bad "sums of nothing" '--accumulate: needs --gemms' --accumulate ada
bad "sums instead of codes" 'sums.h5: no group has datasets a and b' --gemms sums.h5 -o x.h5
head -c 100000 "$codes" >cut.h5
bad "a file cut short" 'cut.h5: ' --gemms cut.h5 -o x.h5
echo text >text.h5
bad "text" 'text.h5: ' --gemms text.h5 -o x.h5
is "nothing was written by what failed" "$(find . -maxdepth 1 -name 'x*' -o -maxdepth 1 -name '*.x*' | grep -c .)" 0

printf '{"model_type":"none"}' >config.json
status "an invalid configuration" 2 fp8-bench --model config.json
is "no more than one line" "$(wc -l <err)" 1
done_testing
