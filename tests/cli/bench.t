#!/bin/sh
# fp8-bench on the command line: table, JSON and errors, on the CPU with the smallest model.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

TMPDIR=$work/tmp
export TMPDIR
mkdir tmp
quick="--model tiny --tokens 48 --seconds 0.001 --device cpu"
# shellcheck disable=SC2086
ok "fp8-bench times GEMMs and steps" fp8-bench $quick --steps 2
cp out text
is "standard error is empty" "$(cat err)" ""
is "the table has a line for each pass of each linear" "$(grep -cE '^(q,k,v|o|gate,up|down) +(forward|dgrad|wgrad|backward) +48 x ' text)" 16
says "the table states that FP8 is emulated" '^FP8 is emulated on the CPU' cat text
verdict='bf16/FP8 [0-9.]+ \([0-9a-z. ]+\): (FP8 is not faster|cannot tell whether FP8 is faster)'
says "the sum of all linears" "^linears of a step: bf16 [0-9.e-]+ s, FP8 [0-9.e-]+ s, $verdict\$" cat text
says "the result of the steps" "^whole steps of 1 x 48 tokens: $verdict\$" cat text
is "emulated FP8 is never faster" "$(grep -cE '(^| )faster$' text | tr -d ' ')" "$(grep -cE '(not|FP8 is) faster$' text)"
says "two steps are too few for a verdict" '^whole steps .* \(interval unknown\): cannot tell whether FP8 is faster$' cat text
is "one unit a column" "$(grep -E '^(q,k,v|o|gate,up|down|bf16|FP8) ' text | grep -c '[0-9] *\(%\|k\|ms\|us\)')" 0
is "no temporary file of the steps is left" "$(ls tmp)" ""

# shellcheck disable=SC2086
ok "--json without steps, with another recipe, succeeds" fp8-bench $quick --steps 0 --recipe rowwise_with_gw_hp --json -o report.json
is "--json prints one line" "$(wc -l <out)" 1
is "the JSON contains the measurements, and -o writes the same" "$(python3 -c '
import json
r = json.load(open("out"))
assert r == json.load(open("report.json"))
assert all(p["bf16"]["seconds"] > 0 and p["fp8"]["seconds"] > 0 and p["fp8_faster"] in (False, None) and (p["fp8_faster"] is None) == (p["ratio_interval"][1] >= 1) for p in r["gemms"])
print(r["type"], r["device"], r["emulated"], r["tokens"], len(r["gemms"]), "steps" in r,
      sorted({p["pass"] for p in r["gemms"] if not p["in_fp8"]}))')" "bench CPU True 48 16 False ['wgrad']"
status "an existing report without --force gives status 2" 2 fp8-bench -o report.json
is "the message names the report and --force" "$(cat err)" "fp8-bench: report.json: exists (use --force to replace it)"
status "an unknown model gives status 2" 2 fp8-bench --model huge
is "the message lists the models" "$(grep -c tiny err)" 1
status "an unknown recipe gives status 2" 2 fp8-bench --recipe best
status "--tokens 0 gives status 2" 2 fp8-bench --tokens 0

# --- --gemms: emulated sums of tensor cores; tests/golden checks the values
codes=$SRC/tests/golden/accumulate/hopper.safetensors
ok "--gemms computes the GEMMs in a file" fp8-bench --gemms "$codes" -o sums.safetensors
is "--gemms prints nothing" "$(cat out err)" ""
ok "--accumulate hopper succeeds" fp8-bench --gemms "$codes" -o again.safetensors --accumulate hopper
ok "--accumulate ada succeeds" fp8-bench --gemms "$codes" -o ada.safetensors --accumulate ada
cmp sums.safetensors again.safetensors
result $? "the default is hopper: both files are equal"
cmp -s sums.safetensors ada.safetensors
is "the sums of ada differ" $? 1
bad() { # NAME REGEX WORDS...
  name=$1 pattern=$2
  shift 2
  fp8-bench "$@" >out 2>err </dev/null
  got=$?
  [ $got = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -Eq -e "^fp8-bench: $pattern" err && [ ! -s out ]
  result $? "$name"
}
cp sums.safetensors before.safetensors
bad "an existing output of --gemms without --force is refused" 'sums.safetensors: exists \(use --force to replace it\)' --gemms "$codes" -o sums.safetensors
cmp sums.safetensors before.safetensors
result $? "the existing output is unchanged"
ok "--force replaces the output of --gemms" fp8-bench --gemms "$codes" -f -o ada.safetensors
cmp sums.safetensors ada.safetensors
result $? "the output contains the new sums"
bad "--gemms without -o is refused" '--gemms: needs -o FILE' --gemms "$codes"
bad "--gemms of a missing file is refused" 'none.safetensors: ' --gemms none.safetensors -o x.safetensors
bad "an unknown chip is refused" "--accumulate: 'volta' is not one of" --gemms "$codes" -o x.safetensors --accumulate volta
bad "--accumulate without --gemms is refused" '--accumulate: needs --gemms' --accumulate ada
bad "a file of sums as input is refused" 'sums.safetensors: no tensors NAME/a and NAME/b' --gemms sums.safetensors -o x.safetensors
head -c 100000 "$codes" >cut.safetensors
bad "a truncated input is refused" 'cut.safetensors: ' --gemms cut.safetensors -o x.safetensors
echo text >text.safetensors
bad "a text as input is refused" 'text.safetensors: ' --gemms text.safetensors -o x.safetensors

# --- --casts: NVFP4; tests/golden checks the bits
matrices=$SRC/tests/golden/nvfp4/casts.safetensors
ok "--casts casts the matrices in a file" fp8-bench --casts "$matrices" -o casts.safetensors
is "--casts prints nothing" "$(cat out err)" ""
bad "--casts without -o is refused" '--casts: needs -o FILE' --casts "$matrices"
bad "--casts and --gemms together are refused" '--gemms: not together with --casts' --casts "$matrices" --gemms "$codes" -o x.safetensors
bad "an existing output of --casts without --force is refused" 'casts.safetensors: exists' --casts "$matrices" -o casts.safetensors
bad "a file of codes as input of --casts is refused" 'sums.safetensors: no tensors NAME/x or NAME/w' --casts sums.safetensors -o x.safetensors
matrix() { # FILE TENSOR...: a safetensors file of zeros; TENSOR: NAME DTYPE BYTES SHAPE
  python3 - "$@" <<'END'
import json, struct, sys
header, at = {}, 0
for word in sys.argv[2:]:
    name, dtype, size, *shape = word.split()
    shape = [int(n) for n in shape]
    end = at + int(size) * __import__("math").prod(shape)
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
    at = end
text = json.dumps(header).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + bytes(at))
END
}
matrix narrow.safetensors "a/x BF16 2 16 24"
bad "columns that 16 does not divide are refused" 'narrow.safetensors: tensor "a/x": its last dimension, 24, is no multiple of 16' \
  --casts narrow.safetensors -o x.safetensors
matrix bits.safetensors "a/x BF16 2 17 32" "a/col_bits U8 1 32 17"
bad "random bits of another shape are refused" 'bits.safetensors: tensor "a/col_bits": expected U8 of shape \[32, 32\]' \
  --casts bits.safetensors -o x.safetensors
matrix padded.safetensors "a/x F32 4 17 32" "a/w F32 4 17 32"
ok "tokens and rows of a weight need no multiple of 16" fp8-bench --casts padded.safetensors -o padded-casts.safetensors
is "the refused commands write nothing" "$(find . -maxdepth 1 -name 'x*' -o -maxdepth 1 -name '*.x*' | grep -c .)" 0

printf '{"model_type":"none"}' >config.json
status "an invalid configuration gives status 2" 2 fp8-bench --model config.json
is "the error is one line" "$(wc -l <err)" 1
# --- rates of this machine
refused() {
  name=$1 line=$2
  shift 2
  fp8-bench "$@" >out 2>err </dev/null
  is "$name" "$? $(cat err)" "2 fp8-bench: $line"
}
refused "rates are of no model" "--machine: not together with --model" --machine --model tiny
refused "nor of GEMMs" "--machine: not together with --gemms" --machine --gemms codes.safetensors
refused "a file that exists" "report.json: exists (use --force to replace it)" --machine -o report.json
(
  unset HOME XDG_CONFIG_HOME
  fp8-bench --machine --device cpu
) >out 2>err </dev/null
is "rates without a place" "$? $(cat err)" "2 fp8-bench: --machine: neither XDG_CONFIG_HOME nor HOME is set; needs -o FILE"
timeout 5 fp8-bench --machine --device cpu -o rates.json >out 2>err </dev/null
is "what takes long is said at the start" "$(head -n 1 err)" \
  "fp8-bench: measures this machine, which takes a minute, and longer while others compute on it"
if long; then
  ok "rates are measured and stored" env XDG_CONFIG_HOME="$PWD/config" fp8-bench --machine --device cpu
  says "the table has a rate of GEMMs" '^large GEMM in bf16, GFLOP/s +[0-9.]+ +[0-9.]+$' cat out
  is "the file has a pair for each rate, and its source" "$(python3 -c '
import json
m = json.load(open("config/fp8/machine.json"))
figures = [m["gemm"]["bf16"]["rate"], m["bytes"]["cast"], m["link"]["rate"], m["contention"]]
print(m["device"], all(len(f["value"]) == 2 and f["source"] for f in figures), len(m["gemm"]["fp8"]["shapes"]["value"]) > 20, sorted(m["operations"])[:2])')" \
    "cpu True True ['AdamW', 'add']"
fi

done_testing
