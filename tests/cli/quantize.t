#!/bin/sh
# fp8-quantize: every scaling and format, --dequantize, reports, errors and peak memory.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
golden=$SRC/tests/golden/models

# seen NAME REGEX: passes if the output of the last command matches
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
for scaling in tensor row block mx; do
  for format in e4m3 e5m2; do
    q=q-$scaling-$format
    ok "--scaling $scaling --format $format succeeds" fp8-quantize f32.h5 -o $q.h5 --scaling $scaling --format $format --power-of-2-scales --json
    is "$q: --json prints two records" "$(cut -c 1-21 out | tr '\n' '|')" '{"type":"quantize","s|{"type":"checkpoint",|'
    is "$q: the record has each FP8 linear" "$(grep -o '"sqnr_db":[0-9]' out | wc -l)" 14
    ok "$q: the output verifies" fp8-info $q.h5 --verify
    ok "$q: --dequantize succeeds" fp8-quantize $q.h5 -o $q-back.h5 --dequantize
    says "$q: weights that were not quantized are unchanged" '^weights/model.embed_tokens.weight +0 +0' fp8-info f32.h5 --diff $q-back.h5
    seen "$q: 14 of 21 tensors differ after the round trip" '^f32.h5 and .*: 14 of 21 tensors differ'
    ok "$q: the dequantized checkpoint is quantized again" fp8-quantize $q-back.h5 -o $q-again.h5 --scaling $scaling --format $format \
      --power-of-2-scales
    is "$q: quantizing again is exact" "$(grep -c ' exact ' out)" 14
  done
done
says "--scaling tensor stores one scale per weight" '^scales/model.layers.0.mlp.up_proj.weight +float32 +1 ' fp8-info q-tensor-e4m3.h5
seen "e4m3 codes have the type float8_e4m3fn" '^weights/model.layers.0.mlp.up_proj.weight +float8_e4m3fn +176x64 +fp8'
says "--scaling row stores one scale per row" '^scales/model.layers.0.mlp.up_proj.weight +float32 +176( |$)' fp8-info q-row-e5m2.h5
says "--scaling block stores one scale per block of 128x128" '^scales/model.layers.0.mlp.up_proj.weight +float32 +2x1( |$)' fp8-info q-block-e4m3.h5
says "--scaling mx stores E8M0 scales, one per block of 32" '^scales/model.layers.0.mlp.up_proj.weight +float8_e8m0fnu +176x2( |$)' \
  fp8-info q-mx-e4m3.h5
fp8-info q-row-e5m2.h5 >out
seen "e5m2 codes have the type float8_e5m2" '^weights/model.layers.0.mlp.up_proj.weight +float8_e5m2 +176x64 +fp8'
seen "fp8-info shows the kind" '^kind +quantized'
seen "the provenance names fp8-quantize" 'made by +fp8-quantize .*fp8-quantize f32.h5 -o q-row-e5m2.h5 --scaling row --format e5m2'
ok "--scaling nvfp4 succeeds" fp8-quantize bf16.h5 -o q-nvfp4.h5 --scaling nvfp4 --json
is "the record has each linear" "$(grep -o '"scaling":"nvfp4","format":"e2m1"' out) $(grep -o '"sqnr_db":[12][0-9]\.' out | wc -l)" \
  '"scaling":"nvfp4","format":"e2m1" 14'
ok "FP4 codes verify" fp8-info q-nvfp4.h5 --verify
fp8-info q-nvfp4.h5 >out
seen "FP4 codes are two in a byte" '^weights/model.layers.0.mlp.up_proj.weight +float4_e2m1fn_x2 +176x32 +fp4'
seen "and counted as FP4" '^fp4 +14 of 21 weights stored as FP4 codes$'
seen "with an E4M3 scale for each block of 16 x 16" '^scales/model.layers.0.mlp.up_proj.weight +float8_e4m3fn +11x4( |$)'
seen "and an amax" '^globals/model.layers.0.mlp.up_proj.weight +float32 +1( |$)'
is "which is not a parameter" "$(grep '^parameters' out | cut -d , -f 1)" "$(fp8-info bf16.h5 | grep '^parameters' | cut -d , -f 1)"
ok "FP4 codes are dequantized" fp8-quantize q-nvfp4.h5 -o q-nvfp4-back.h5 --dequantize
mkdir one two
ok "quantizing on one thread succeeds" sh -c 'cd one && OMP_NUM_THREADS=1 fp8-quantize ../f32.h5 -o q.h5 --scaling row'
ok "quantizing on three threads succeeds" sh -c 'cd two && OMP_NUM_THREADS=3 fp8-quantize ../f32.h5 -o q.h5 --scaling row'
ok "one thread and three threads write equal files" cmp one/q.h5 two/q.h5
ok "--dequantize --dtype bf16 of a bf16 source succeeds" \
  sh -c 'fp8-quantize bf16.h5 -o q.h5 --scaling tensor && fp8-quantize q.h5 --dequantize --dtype bf16 -o back.h5'
is "all weights are bf16" "$(fp8-info back.h5 | grep -c '^weights/.* bfloat16 ')" 21
says "the output is a table with a line per weight" '^model.layers.0.self_attn.q_proj.weight +64x64 +31\.[0-9]+ +0 +0 +0.0013' \
  fp8-quantize bf16.h5 -n -o x.h5 --scaling tensor
seen "the table ends with a total" '^14 of 21 weights would be quantized, 245 KiB before, 155 KiB now'
status "a dry run writes nothing" 1 test -e x.h5
says "--filter excludes weights" '^10 of 21 weights quantized' fp8-quantize bf16.h5 -o f.h5 --scaling tensor --filter '*.k_proj' \
  --filter '*.v_proj.weight'
says "the filter is the reason of an excluded weight" '^weights/model.layers.1.self_attn.k_proj.weight +bfloat16 +32x64 +bf16 .* filter \*.k_proj' \
  fp8-info f.h5
ok "fp8-quantize works in a pipe" \
  sh -c 'fp8-init tiny -o tiny.h5 | fp8-quantize - --scaling row --json -o p.h5 | fp8-quantize - --dequantize --json -o r.h5 | fp8-info - >info'
is "fp8-info in the pipe shows the last checkpoint and its provenance" "$(grep -c '^made by' info) $(sed -n 's/^path *//p' info)" "3 r.h5"

head -c 20000 "$SRC/share/text/tinyshakespeare.txt" >text.txt
fp8-tokenize text.txt -o data.h5 >/dev/null 2>err
status "a dequantized checkpoint can be trained" 0 fp8-step q-row-e4m3-back.h5 --data data.h5 --out run --steps 1 --batch-size 1 --seq-length 32
ok "a checkpoint of a run is quantized" fp8-quantize run/step-00000001 -o trained.h5 --scaling tensor
says "the quantized checkpoint has no moments" '^parameters .* in 35 tensors' fp8-info trained.h5
status "fp8-step of a quantized checkpoint gives status 2" 2 fp8-step q-row-e4m3.h5 --data data.h5 --out runq --steps 1 --batch-size 1 --seq-length 32
is "the message has the command that dequantizes it" "$(cat err)" \
  "fp8-step: q-row-e4m3.h5: holds quantized weights, which cannot be trained; train adapters beside them with --lora-rank, or dequantize it first: \
fp8-quantize q-row-e4m3.h5 --dequantize -o model.h5"
ok "the command in the message succeeds" sh -c "$(sed 's/.*dequantize it first: //' err)"
# With scales that are powers of two, the weights of the dequantized checkpoint get the same codes again. Products of blocks are
# compared with the sums of an H100, as the order of f32 sums depends on the type that a CPU multiplies.
loss() { fp8-eval "$@" --data data.h5 --seq-length 32 2>err | grep -o '"loss":[0-9.]*'; }
for scaling in tensor-e4m3:tensorwise row-e4m3:rowwise block-e4m3:blockwise nvfp4:nvfp4; do
  q=q-${scaling%:*} recipe=${scaling#*:} flags=--power-of-2-scales
  [ "$recipe" = blockwise ] && flags='--accumulate hopper'
  [ "$recipe" = nvfp4 ] && flags=
  # shellcheck disable=SC2086 # no word if empty
  is "fp8-eval scores $q.h5 in $recipe" "$(loss $q.h5 $flags)" "$(loss $q-back.h5 --precision fp8 --recipe "$recipe" $flags)"
done
says "the record of fp8-eval says the recipe" '"precision":"fp8","recipe":"rowwise",.*"fp8_gemms":[1-9]' fp8-eval q-row-e4m3.h5 --data data.h5 \
  --seq-length 32
same=$(loss q-row-e4m3.h5)
is "three ranks score a quantized checkpoint" \
  "$(mpirun -n 3 fp8-eval q-row-e4m3.h5 --data data.h5 --seq-length 32 2>err | grep -o '"loss":[0-9.]*' | cut -c 1-12)" \
  "$(echo "$same" | cut -c 1-12)"
status "fp8-eval of a quantized checkpoint in bf16 gives status 2" 2 fp8-eval q-row-e4m3.h5 --data data.h5 --precision bf16
seen "the message says why" '^fp8-eval: --precision: bf16: q-row-e4m3.h5 holds FP8 codes with one scale for each row, for which it is fp8'
status "fp8-eval of MX scales gives status 2" 2 fp8-eval q-mx-e4m3.h5 --data data.h5
seen "the message of fp8-eval has the command that dequantizes it" \
  'MX scales, which nothing computes with; dequantize it first: fp8-quantize q-mx-e4m3.h5 --dequantize -o model.h5$'

refuses() { # NAME REGEX COMMAND...
  name=$1 pattern=$2
  shift 2
  status "$name gives status 2" 2 "$@"
  is "$name gives one line" "$(awk 'END { print NR }' err)" 1
  seen "$name is named in the message" "^fp8-quantize: $pattern"
}
refuses "quantized input" \
  'q.h5: already quantized; use the checkpoint that it was made from, or dequantize it first \(use --dequantize\)' fp8-quantize q.h5 -o x.h5 \
  --scaling row
refuses "--dequantize of unquantized input" 'f32.h5: not quantized' fp8-quantize f32.h5 -o x.h5 --dequantize
refuses "a missing --scaling" '--scaling: needed' fp8-quantize f32.h5 -o x.h5
refuses "a format of FP8 with FP4" '--format: codes are E2M1 under --scaling nvfp4' fp8-quantize f32.h5 -o x.h5 --scaling nvfp4 --format e4m3
refuses "powers of two with FP4" '--power-of-2-scales: scales of blocks are E4M3 under' fp8-quantize f32.h5 -o x.h5 --scaling nvfp4 \
  --power-of-2-scales
refuses "an unknown scaling" "--scaling: 'column' is not one of tensor, row, block, mx, nvfp4" fp8-quantize f32.h5 -o x.h5 --scaling column
refuses "a missing output" '--output: needed' fp8-quantize f32.h5 --scaling row
refuses "--format with --dequantize" '--format: not together with --dequantize' fp8-quantize q.h5 -o x.h5 --dequantize --format e4m3
refuses "--dtype without --dequantize" '--dtype: only with --dequantize' fp8-quantize f32.h5 -o x.h5 --scaling row --dtype bf16
refuses "a filter that matches no tensor" 'filter \*.w1: matches no tensor' fp8-quantize f32.h5 -o x.h5 --scaling row --filter '*.w1'
refuses "a filter that excludes all weights" 'f32.h5: nothing to quantize' fp8-quantize f32.h5 -o x.h5 --scaling row --filter '*'
refuses "an output that exists" 'q.h5: exists' fp8-quantize f32.h5 -o q.h5 --scaling row
refuses "a Hugging Face folder" '.*: a Hugging Face folder, not a checkpoint' fp8-quantize "$golden/llama3/hf" -o x.h5 --scaling row
refuses "a token file" 'data.h5: a token file' fp8-quantize data.h5 -o x.h5 --scaling row
refuses "a truncated source" 'cut.h5: ' sh -c 'head -c 100000 f32.h5 >cut.h5; exec fp8-quantize cut.h5 -o x.h5 --scaling row'
refuses "an output that is also the source" 'q.h5: is also an input' fp8-quantize q.h5 -f -o q.h5 --dequantize
is "no temporary file is left" "$(find . -name 'x.h5*' -o -name '.*.h5*' -o -name '*.tmp*')" ""

# Two weights of 134 MB each, processed in pieces. AddressSanitizer needs more memory.
bound=100000
if sanitized; then bound=180000; fi
ok "a large model is made" fp8-init tiny -o large.h5 \
  --set num_hidden_layers=1 --set num_attention_heads=8192 --set num_key_value_heads=1 --set head_dim=64
is "the model has two weights of 134 MB" "$(fp8-info large.h5 | grep -c '524288')" 2
for scaling in tensor row nvfp4; do
  ok "$scaling: the large model is quantized" peak kib fp8-quantize large.h5 -f -o q.h5 --scaling $scaling
  [ $scaling != nvfp4 ] || bound=$((bound + 50000)) # a piece has 16 rows of 524,288 columns at least
  ok "$scaling: quantizing needs less than $bound kB" test "$(cat kib)" -lt $bound
done
ok "the large model is dequantized" peak kib fp8-quantize q.h5 -f -o large.h5 --dequantize
ok "dequantizing needs less than $bound kB" test "$(cat kib)" -lt $bound
done_testing
