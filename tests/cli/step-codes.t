#!/bin/sh
# fp8-step with adapters beside weights that fp8-quantize has stored as FP8 codes.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
text_size=3000
. "$SRC/tests/cli/train.sh"
base="--data d.h5 --seq-length 16 --batch-size 2"
# new_text CHECKPOINT PRECISION: ids and log-probabilities of a text.
new_text() { fp8-generate "$1" --ids 1,2 --max-tokens 12 --json --precision "$2" 2>&1; }
# rejected NAME REGEX COMMAND...: passes if the command gives status 2 and prints one line that matches, and nothing else.
rejected() {
  name=$1 pattern=$2
  shift 2
  "$@" >out 2>err </dev/null
  got=$?
  [ $got = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -Eq -e "^$pattern" err && [ ! -s out ] && [ ! -e no ]
  result $? "$name"
}

for scaling in tensor:tensorwise row:rowwise block:blockwise nvfp4:nvfp4; do
  q=${scaling%:*}.h5 recipe=${scaling#*:}
  fp8-quantize m.h5 -o $q --scaling ${scaling%:*} >out 2>err
  refused "$q: all weights cannot be trained" \
    "$q: holds quantized weights, which cannot be trained; train adapters beside them with --lora-rank, or dequantize it first: fp8-quantize $q \
--dequantize -o model.h5" $q $base --out x --steps 2
  run="$q $base --lora-rank 4 --lora-dropout 0.1 --lr 1e-2 --steps 4 --save-every 2"
  fp8-step $run --out whole-$recipe >whole.log 2>err
  result $? "$q: adapters are trained"
  is "$q: the scales choose the recipe" \
    "$(grep '"type":"step"' whole.log | grep -o '"precision":"fp8","recipe":"[a-z0-9]*"' | sort -u)" "\"precision\":\"fp8\",\"recipe\":\"$recipe\""
  is "$q: each linear has two GEMMs" "$(field "$([ $recipe = nvfp4 ] && echo fp4 || echo fp8)_gemms" whole.log | sort -u)" 28
  fp8-step $run --out parts-$recipe --until-step 2 >parts.log 2>err && fp8-step $run --out parts-$recipe >>parts.log 2>err
  same_bits "$q: a resumed run has equal losses" whole.log parts.log
  same_step "$q: and an equal checkpoint" whole-$recipe/step-00000004 parts-$recipe/step-00000004
  fp8-info whole-$recipe/step-00000004 --diff $q >out 2>err
  is "$q: codes and scales are unchanged" \
    "$(grep -E '^(weights|scales)/' out | grep -v 'lora_[AB].weight' | awk '{ print $2 $3 $4 }' | sort | uniq -c | tr -d ' ')" 3500
  fp8-step $q $base --batch-size 6 --lora-rank 4 --lr 1e-2 --steps 2 --out one-$recipe --precision fp8 --activations f32 >one.log 2>err
  mpirun -n 3 fp8-step $q $base --batch-size 2 --lora-rank 4 --lr 1e-2 --steps 2 --out three-$recipe --precision fp8 --activations f32 >three.log \
    2>err
  near "$q: three ranks give the losses of one" one.log three.log 2e-3
  mpirun -n 3 fp8-step $q $base --batch-size 2 --lora-rank 4 --lr 1e-2 --steps 2 --zero 1 --out zero-$recipe --precision fp8 --activations f32 \
    >zero.log 2>err
  same_bits "$q: --zero 1 gives equal bits" three.log zero.log
  ok "$q: fp8-eval scores the checkpoint" fp8-eval whole-$recipe/step-00000004 --data d.h5 --seq-length 16
  ok "$q: fp8-info verifies it" fp8-info three-$recipe/step-00000002 --verify
  step=three-$recipe/step-00000002
  fp8-convert $step -o shards.h5 --merge -f >out 2>err && fp8-convert $step -o weights.h5 --weights-only -f >>out 2>>err &&
    fp8-quantize $step -o plain.h5 --dequantize -f >>out 2>>err
  result $? "$q: fp8-convert and fp8-quantize --dequantize read its shards"
  for p in bf16 fp8; do
    is "$q: fp8-generate reads its shards, and one file of them, in $p" "$(new_text three-$recipe $p) $(new_text shards.h5 $p)" \
      "$(new_text weights.h5 $p) $(new_text weights.h5 $p)"
  done
  is "$q: in fp32 its codes are multiplied by their scales" "$(new_text $step fp32)" "$(new_text plain.h5 fp32)"
  fp8-export three-$recipe --format peft -o peft -f >out 2>err && fp8-export shards.h5 --format peft -o peft.one -f >>out 2>>err &&
    fp8-export weights.h5 --format peft -o peft.plain -f >>out 2>>err && cmp peft/adapter_model.safetensors peft.plain/adapter_model.safetensors &&
      cmp peft.one/adapter_model.safetensors peft.plain/adapter_model.safetensors
  result $? "$q: fp8-export writes its adapters"
  for format in bf16 fp8 compressed-tensors nvfp4; do
    rejected "$q: $format needs the adapters merged" \
      "fp8-export: $step: holds LoRA adapters; merge them first: fp8-convert $step --merge-lora -o merged.h5" fp8-export $step --format $format -o no
  done
  rejected "$q: codes are not quantized again" \
    "fp8-quantize: $step: holds codes beside adapters; dequantize it first \\(use --dequantize\\)$" fp8-quantize $step -o no --scaling row
  ok "$q: a run goes on from it" fp8-step three-$recipe/step-00000002 $base --out on-$recipe --steps 1
done

lora="$base --out x --steps 2 --lora-rank 4"
refused "another recipe is refused" '--recipe: rowwise: tensor.h5 holds FP8 codes with one scale each, for which it is tensorwise' tensor.h5 $lora \
  --precision fp8 --recipe rowwise
refused "another precision is refused" '--precision: bf16: row.h5 holds FP8 codes with one scale for each row, for which it is fp8' row.h5 $lora \
  --precision bf16
refused "a filter that excludes codes is refused" \
  'block.h5: .*down_proj.weight: stored as codes, which need low precision in forward and dgrad \(filter' block.h5 $lora --filter '*.down_proj'
refused "--fp8-gemms without dgrad is refused" 'block.h5: .*: stored as codes, which need low precision in forward and dgrad$' block.h5 $lora \
  --fp8-gemms forward
fp8-quantize m.h5 -o mx.h5 --scaling mx >out 2>err
refused "MX scales are refused" 'mx.h5: holds FP8 codes with MX scales, .*fp8-quantize mx.h5 --dequantize -o model.h5' mx.h5 $lora
fp8-quantize m.h5 -o e5m2.h5 --scaling tensor --format e5m2 >out 2>err
refused "E5M2 codes are refused" 'e5m2.h5: /weights/.*: E5M2 codes, which no recipe has for weights' e5m2.h5 $lora
fp8-quantize m.h5 -o some.h5 --scaling tensor --filter '*.v_proj' >out 2>err
refused "codes for some of the projections of one input are refused" \
  'some.h5: .*k_proj.weight and .*v_proj.weight: one of them is stored as codes' some.h5 $lora
refused "--rowwise-single-copy is refused for other codes" \
  '--rowwise-single-copy: tensor.h5 holds FP8 codes with one scale each, for which it is off' tensor.h5 $lora --rowwise-single-copy
refused "--activations f32 without FP8 is refused" '--activations: f32 needs --precision fp32 or fp8' m.h5 $lora --activations f32
refused "--accumulate without FP8 is refused" '--accumulate: hopper needs --precision fp8' m.h5 $lora --accumulate hopper

# --- settings that need FP8 are checked after the codes have chosen it
for flags in "--accumulate hopper" "--activations f32" "--rowwise-single-copy"; do
  rm -rf implied
  ok "row.h5: $flags needs no --precision" fp8-step row.h5 $base --out implied --steps 1 --lora-rank 4 $flags
done
for q in tensor row block nvfp4; do
  rm -rf direct printed
  fp8-step $q.h5 $base --lora-rank 4 --steps 2 --out direct >direct.log 2>err
  fp8-step $q.h5 $base --lora-rank 4 --steps 2 --out printed --print-config >c.json 2>err
  ok "$q.h5: a printed configuration reads back" fp8-step $q.h5 --config c.json
  cp out printed.log
  same_bits "$q.h5: and gives equal bits" direct.log printed.log
  fp8-step $q.h5 --config c.json --print-config >again.json 2>err
  ok "$q.h5: and is printed again" cmp c.json again.json
done
refused "--print-config refuses what contradicts the codes" '--precision: bf16: row.h5 holds' row.h5 $lora --precision bf16 --print-config

# --- merging into codes
fp8-step tensor.h5 $base --lora-rank 4 --steps 3 --out small >out 2>err
ok "codes and adapters are merged" fp8-convert small/step-00000003 --merge-lora -o merged.h5 --json
cp out merged.json && cp err said
says "each linear has its distance per change" '"distance_per_change":[0-9]' cat merged.json
says "a note says the distance per change" 'divided by what the adapter adds, the distance is [0-9.]+ in the median and [0-9.]+ at most, of model' \
  cat said
says "and how to keep what was trained" \
  'requantization removes most .*: fp8-convert small/step-00000003 --merge-lora --dequantize --dtype f32 -o merged.h5$' cat said
ok "that command works" fp8-convert small/step-00000003 --merge-lora --dequantize --dtype f32 -o kept.h5

# --- memory: one byte for each code
fp8-step m.h5 $lora -n >out 2>bf16.txt
fp8-step tensor.h5 $lora -n >out 2>codes.txt
frozen() { sed -n 's/.*frozen weights *\([0-9.]*\) KiB.*/\1/p' "$1"; }
is "codes need less memory than f32 weights" "$(echo "$(frozen codes.txt) $(frozen bf16.txt)" | awk '{ print ($1 < 0.6 * $2) }')" 1
done_testing
