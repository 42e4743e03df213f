#!/bin/sh
# fp8-quantize: every scaling and format, there and back, what it reports, what it refuses, and how little memory it needs.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
golden=$SRC/tests/golden/models

# seen NAME REGEX: passes when what the last command printed matches
seen() {
  grep -Eq -e "$2" out err
  result $? "$1"
}
# peak FILE COMMAND...: runs the command on one thread and writes its peak resident memory in KiB to FILE
peak() {
  to=$1
  shift
  OMP_NUM_THREADS=1 python3 -c '
import resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)' "$to" "$@"
}

fp8-convert "$golden/llama3/hf" -o bf16.h5 >/dev/null 2>err
fp8-convert bf16.h5 --dtype f32 -o f32.h5 >/dev/null 2>err
for scaling in tensor row; do
  for format in e4m3 e5m2; do
    q=q-$scaling-$format
    ok "$scaling $format" fp8-quantize f32.h5 -o $q.h5 --scaling $scaling --format $format --power-of-2-scales --json
    is "$q: two records" "$(cut -c 1-21 out | tr '\n' '|')" '{"type":"quantize","s|{"type":"checkpoint",|'
    is "$q: one line for each FP8 linear" "$(grep -o '"sqnr_db":[0-9]' out | wc -l)" 14
    ok "$q: verifies" fp8-info $q.h5 --verify
    ok "$q: and back" fp8-quantize $q.h5 -o $q-back.h5 --dequantize
    says "$q: what was not cast is as it was" '^weights/model.embed_tokens.weight +0 +0' fp8-info f32.h5 --diff $q-back.h5
    seen "$q: the rest is near" '^f32.h5 and .*: 14 of 21 tensors differ'
    ok "$q: once more" fp8-quantize $q-back.h5 -o $q-again.h5 --scaling $scaling --format $format --power-of-2-scales
    is "$q: loses nothing more" "$(grep -c ' exact ' out)" 14
  done
done
says "one scale for a weight" '^scales/model.layers.0.mlp.up_proj.weight +float32 +1 ' fp8-info q-tensor-e4m3.h5
seen "codes are typed" '^weights/model.layers.0.mlp.up_proj.weight +float8_e4m3fn +176x64 +fp8'
says "a scale for each row" '^scales/model.layers.0.mlp.up_proj.weight +float32 +176( |$)' fp8-info q-row-e5m2.h5
seen "codes are typed" '^weights/model.layers.0.mlp.up_proj.weight +float8_e5m2 +176x64 +fp8'
seen "its kind is said" '^kind +quantized'
seen "and what was done" 'made by +fp8-quantize .*fp8-quantize f32.h5 -o q-row-e5m2.h5 --scaling row --format e5m2'
mkdir one two
ok "one thread" sh -c 'cd one && OMP_NUM_THREADS=1 fp8-quantize ../f32.h5 -o q.h5 --scaling row'
ok "three" sh -c 'cd two && OMP_NUM_THREADS=3 fp8-quantize ../f32.h5 -o q.h5 --scaling row'
ok "write equal bytes" cmp one/q.h5 two/q.h5
ok "bf16 source, bf16 back" sh -c 'fp8-quantize bf16.h5 -o q.h5 --scaling tensor && fp8-quantize q.h5 --dequantize --dtype bf16 -o back.h5'
is "all weights have that format" "$(fp8-info back.h5 | grep -c '^weights/.* bfloat16 ')" 21
says "a table for people" '^model.layers.0.self_attn.q_proj.weight +64x64 +31\.[0-9]+ +0 +0 +0.0013' fp8-quantize bf16.h5 -n -o x.h5 --scaling tensor
seen "and a sum" '^14 of 21 weights would be quantized, 245 KiB before, 155 KiB now'
status "a dry run writes nothing" 1 test -e x.h5
says "filters leave weights" '^10 of 21 weights quantized' fp8-quantize bf16.h5 -o f.h5 --scaling tensor --filter '*.k_proj' --filter '*.v_proj.weight'
says "and say so" '^weights/model.layers.1.self_attn.k_proj.weight +bfloat16 +32x64 +bf16 .*--filter \*.k_proj' fp8-info f.h5
ok "pipes compose" sh -c 'fp8-init tiny -o tiny.h5 | fp8-quantize - --scaling row --json -o p.h5 | fp8-quantize - --dequantize --json -o r.h5 | fp8-info - >info'
is "and name what they made" "$(grep -c '^made by' info) $(sed -n 's/^path *//p' info)" "3 r.h5"

head -c 20000 "$SRC/share/text/tinyshakespeare.txt" >text.txt
fp8-tokenize text.txt -o data.h5 >/dev/null 2>err
status "what came back trains" 0 fp8-step q-row-e4m3-back.h5 --data data.h5 --out run --steps 1 --batch-size 1 --seq-length 32
ok "a run's checkpoint is taken" fp8-quantize run/step-00000001 -o trained.h5 --scaling tensor
says "without its moments" '^parameters .* in 35 tensors' fp8-info trained.h5
status "a quantized checkpoint is not trained" 2 fp8-step q-row-e4m3.h5 --data data.h5 --out runq --steps 1 --batch-size 1 --seq-length 32
is "in one line that says what to do" "$(cat err)" "fp8-step: q-row-e4m3.h5: holds quantized weights, which cannot be trained; dequantize it first: fp8-quantize q-row-e4m3.h5 --dequantize -o model.h5"
ok "which works" sh -c "$(sed 's/.*dequantize it first: //' err)"
status "nor is it evaluated" 2 fp8-eval q-row-e4m3.h5 --data data.h5
seen "and says so" 'which cannot be scored; dequantize it first: fp8-quantize q-row-e4m3.h5 --dequantize -o model.h5$'

refuses() { # NAME REGEX COMMAND...
  name=$1 pattern=$2
  shift 2
  status "$name is status 2" 2 "$@"
  is "and one line" "$(awk 'END { print NR }' err)" 1
  seen "that says what is wrong" "^fp8-quantize: $pattern"
}
refuses "quantized input" 'q.h5: already quantized; use the checkpoint that it was made from, or dequantize it first \(--dequantize\)' fp8-quantize q.h5 -o x.h5 --scaling row
refuses "nothing to dequantize" 'f32.h5: not quantized' fp8-quantize f32.h5 -o x.h5 --dequantize
refuses "no scaling" '--scaling: needed' fp8-quantize f32.h5 -o x.h5
refuses "a scaling that is not there" "--scaling: 'block' is not one of tensor, row" fp8-quantize f32.h5 -o x.h5 --scaling block
refuses "no output" '--output: needed' fp8-quantize f32.h5 --scaling row
refuses "flags of the other direction" '--format: not together with --dequantize' fp8-quantize q.h5 -o x.h5 --dequantize --format e4m3
refuses "and of this one" '--dtype: only with --dequantize' fp8-quantize f32.h5 -o x.h5 --scaling row --dtype bf16
refuses "a filter that matches nothing" '--filter \*.w1: matches no tensor' fp8-quantize f32.h5 -o x.h5 --scaling row --filter '*.w1'
refuses "nothing left" 'f32.h5: nothing to quantize' fp8-quantize f32.h5 -o x.h5 --scaling row --filter '*'
refuses "an output that exists" 'q.h5: exists' fp8-quantize f32.h5 -o q.h5 --scaling row
refuses "a folder of transformers" '.*: a Hugging Face folder, not a checkpoint' fp8-quantize "$golden/llama3/hf" -o x.h5 --scaling row
refuses "a token file" 'data.h5: a token file' fp8-quantize data.h5 -o x.h5 --scaling row
refuses "a source that is cut off" 'cut.h5: ' sh -c 'head -c 100000 f32.h5 >cut.h5; exec fp8-quantize cut.h5 -o x.h5 --scaling row'
ok "the source itself, by force" sh -c 'fp8-quantize q.h5 -f -o q.h5 --dequantize && fp8-info --verify q.h5'
is "nothing is left behind" "$(find . -name 'x.h5*' -o -name '.*.h5*' -o -name '*.tmp*')" ""

# Two weights of 200 MB each: a piece of one is in memory, never the whole. AddressSanitizer adds its own shadow.
bound=100000
if ldd "$BIN/fp8-quantize" | grep -q libasan; then bound=180000; fi
ok "a large model" fp8-init tiny -o large.h5 --set num_hidden_layers=1 --set num_attention_heads=12800 --set num_key_value_heads=1 --set head_dim=64
is "with weights of 200 MB" "$(fp8-info large.h5 | grep -c '819200')" 2
for scaling in tensor row; do
  ok "$scaling: is quantized" peak kib fp8-quantize large.h5 -f -o q.h5 --scaling $scaling
  ok "$scaling: in 100 MB" test "$(cat kib)" -lt $bound
done
ok "and back" peak kib fp8-quantize q.h5 -f -o large.h5 --dequantize
ok "in 100 MB" test "$(cat kib)" -lt $bound
done_testing
