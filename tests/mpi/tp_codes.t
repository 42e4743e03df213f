#!/bin/sh
# Adapters beside FP8 codes, and FP8 codes alone, on ranks that divide linears (--tp): codes and their scales are divided, so that losses and gradients are
# those of one rank, and checkpoints keep their bytes.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1

fp8-init tiny --set num_hidden_layers=2 --set hidden_size=64 --set num_attention_heads=4 --set num_key_value_heads=2 --set head_dim=128 --set intermediate_size=576 -o w.h5 -q >out 2>err
result $? "a model with heads of 128 columns is made"
# One rounding of a sum in another order may give an activation another code, which a gradient shows as a hundredth, as on one rank with other instructions; codes
# or scales in a wrong place change it by more than half. AdamW scales gradients, so that the losses of step 2 show such noise in proportion to the learning rate.
# train RANKS FOLDER FLAGS: two steps of 8 sequences with f32 activations
train() {
  n=$1 out=$2
  shift 2
  mpirun -n "$n" fp8-step --data d.h5 --seq-length 16 --steps 2 --lr 1e-4 --activations f32 --lora-rank 4 --timeout 60 -q --seed 3 --out "$out" --gradients "$out.safetensors" -f "$@" \
    >"$out.log" 2>err </dev/null
}
for scaling in tensor row block; do
  fp8-quantize w.h5 -o $scaling.h5 --scaling $scaling -q >out 2>err
  for way in "1 8 2 --tp 2" "1 8 4 --tp 4" "2 4 4 --tp 2 --zero 2"; do
    case "$scaling $way" in "tensor 1 8 4 "* | "row 1 8 2 "* | "block 2 "*) ;; *) long || continue ;; esac
    whole=${way%% *} rest=${way#* }
    batch=${rest%% *} mesh=${rest#* }
    rm -rf one many
    train $whole one $scaling.h5 --batch-size $batch
    train ${mesh%% *} many $scaling.h5 --batch-size $batch ${mesh#* }
    near "$scaling, $way: the losses are those without --tp" many.log one.log 1e-4
    ok "$scaling, $way: the gradients of adapters are those without --tp" fp8-info one.safetensors --diff many.safetensors --bound 0.1
    ok "$scaling, $way: the checkpoint verifies" fp8-info --verify many/step-00000002
    # fp8-info lists the tensors of which bytes differ
    fp8-info $scaling.h5 --diff many/step-00000002 >out 2>err
    is "$scaling, $way: codes and scales are those of the model" "$(grep -E '^(weights|scales)/' out | grep -v lora_ | awk '{ print $2 $3 $4 }' | sort | uniq -c | tr -d ' ')" \
      "$(fp8-info $scaling.h5 --diff one/step-00000002 | grep -E '^(weights|scales)/' | grep -v lora_ | awk '{ print $2 $3 $4 }' | sort | uniq -c | tr -d ' ')"
  done
  mpirun -n 4 fp8-step $scaling.h5 --data d.h5 --seq-length 16 --steps 3 --activations f32 --lora-rank 4 --batch-size 8 --seed 3 --precision fp8 --tp 4 --change steps,lr --out many -q >log 2>err </dev/null
  is "$scaling: the run goes on with tp 4" "$(losses log | cut -d' ' -f1)" 3
  fp8-eval $scaling.h5 --data d.h5 --seq-length 64 --activations f32 -q 2>err | field loss - >one.loss
  mpirun -n 2 fp8-eval $scaling.h5 --data d.h5 --seq-length 64 --activations f32 --tp 2 -q 2>err | field loss - >many.loss
  is "$scaling: fp8-eval has the loss of one rank" "$(paste many.loss one.loss | awk '{ d = $1 / $2 - 1; print (NF == 2 && d < 1e-4 && d > -1e-4) }')" 1
done

# In a step of a few tokens all codes are mostly those of one rank, and gradients then differ by the order of sums alone. Adapters have been updated, so that
# no gradient is 0.
fp8-init tiny --set num_hidden_layers=1 --set hidden_size=64 --set num_attention_heads=4 --set num_key_value_heads=2 --set head_dim=128 --set intermediate_size=576 -o v.h5 -q >out 2>err
# second RANKS FOLDER FLAGS: the first two steps of 8 tokens, or the second
second() {
  n=$1 out=$2
  shift 2
  mpirun -n "$n" fp8-step short.h5 --data d.h5 --seq-length 8 --batch-size 1 --steps 2 --lr 1e-2 --precision fp8 --activations f32 --lora-rank 4 --seed "$seed" --out "$out" -q "$@" \
    >log 2>err </dev/null
}
for scaling in tensor row block; do
  fp8-quantize v.h5 -o short.h5 --scaling $scaling -q -f >out 2>err
  for seed in 1 2 3 4; do
    rm -rf whole divided
    second 1 whole --until-step 1 && cp -r whole divided && second 1 whole --gradients one.safetensors -f && second 2 divided --tp 2 --gradients many.safetensors -f
    fp8-info one.safetensors --diff many.safetensors --bound 1e-5 >table && break
  done
  is "$scaling: where no code differs, only the order of sums does" "$(tail -n 1 table)" "one.safetensors and many.safetensors: 14 tensors within 1e-05"
done

# Heads of 16: a block of 128 x 128 has rows of several ranks.
fp8-quantize m.h5 -o small.h5 --scaling block -q >out 2>err
mpirun -n 2 fp8-step small.h5 --data d.h5 --seq-length 16 --batch-size 4 --steps 1 --lora-rank 4 --tp 2 --out refused -q >out 2>refusal </dev/null
is "blocks of codes on several ranks are refused by name" "$? $(grep -c -E '^fp8-step: --tp 2: .* blocks? of 128' refusal) $(grep -c ^fp8-step refusal)" "2 1 1"
done_testing
