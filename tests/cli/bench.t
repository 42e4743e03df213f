#!/bin/sh
# fp8-bench on the command line: the table, the JSON, what it refuses. On the CPU, with the smallest model.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

TMPDIR=$work/tmp
export TMPDIR
mkdir tmp
quick="--model tiny --tokens 48 --seconds 0.001 --device cpu"
# shellcheck disable=SC2086
ok "products and steps" fp8-bench $quick --steps 2
cp out text
is "says nothing on standard error" "$(cat err)" ""
is "a line for each pass of each linear" "$(grep -cE '^(q,k,v|o|gate,up|down) +(forward|dgrad|wgrad|backward) +48 x ' text)" 16
says "that it is emulated" '^FP8 is emulated on the CPU' cat text
says "what all linears come to" '^linears of a step: bf16 [0-9.e-]+ s, FP8 [0-9.e-]+ s: FP8 (pays|does not pay), [0-9.]+ x$' cat text
says "what steps come to" '^whole steps of 1 x 48 tokens: FP8 (pays|does not pay), [0-9.]+ x$' cat text
is "nothing is left of the steps" "$(ls tmp)" ""

# shellcheck disable=SC2086
ok "JSON without steps, under another recipe" fp8-bench $quick --steps 0 --recipe rowwise_with_gw_hp --json -o report.json
is "one line" "$(wc -l <out)" 1
is "that says what was measured" "$(python3 -c '
import json
r = json.load(open("out"))
assert r == json.load(open("report.json"))
assert all(p["bf16"]["seconds"] > 0 and p["fp8"]["seconds"] > 0 and p["pays"] == (p["ratio"] > 1) for p in r["products"])
print(r["type"], r["device"], r["emulated"], r["tokens"], len(r["products"]), "steps" in r,
      sorted({p["pass"] for p in r["products"] if not p["in_fp8"]}))')" "bench CPU True 48 16 False ['wgrad']"
status "a report is not replaced unasked" 2 fp8-bench -o report.json
is "it says" "$(cat err)" "fp8-bench: report.json: exists (use --force to replace it)"
status "an unknown model" 2 fp8-bench --model huge
is "names those there are" "$(grep -c tiny err)" 1
status "an unknown recipe" 2 fp8-bench --recipe best
status "no tokens" 2 fp8-bench --tokens 0
printf '{"model_type":"none"}' >config.json
status "a configuration that is none" 2 fp8-bench --model config.json
is "no more than one line" "$(wc -l <err)" 1
done_testing
