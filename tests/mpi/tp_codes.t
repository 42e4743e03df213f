#!/bin/sh
# FP8 codes alone and beside adapters on ranks that divide linears (--tp): the last bits of gradients, the bytes of checkpoints, and losses
# of evaluations. equal.t has steps of several blocks of codes, and mesh.t what is refused.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1

heads() {
  fp8-init tiny --set num_hidden_layers=$1 --set hidden_size=64 --set num_attention_heads=4 --set num_key_value_heads=2 --set head_dim=128 \
    --set intermediate_size=576 -o heads$1.h5 -q >out 2>err
  result $? "a model of $1 layers with heads of 128 columns is made"
}
heads 1
heads 2

# In a step of a few tokens all codes are mostly those of one rank, and gradients then differ by the order of sums alone. Adapters
# have been updated, so that no gradient is 0.
# second RANKS FOLDER FLAGS: the first two steps of 8 tokens, or the second
second() {
  n=$1 out=$2
  shift 2
  mpirun -n "$n" fp8-step codes.h5 --data d.h5 --seq-length 8 --batch-size 1 --steps 2 --lr 1e-2 --precision fp8 --activations f32 \
    --lora-rank 4 --seed "$seed" --out "$out" -q "$@" >log 2>err </dev/null
}
# unlike FOLDER: how codes, scales and other weights of its checkpoint differ from those of the model
unlike() { fp8-info codes.h5 --diff "$1/step-00000002" | grep -E '^(weights|scales)/' | grep -v lora_; }
for scaling in tensor row block; do
  fp8-quantize heads1.h5 -o codes.h5 --scaling $scaling -q -f >out 2>err
  for seed in 1 2 3 4; do
    rm -rf whole divided
    second 1 whole --until-step 1 && cp -r whole divided && second 1 whole --gradients one.safetensors -f &&
      second 2 divided --tp 2 --gradients many.safetensors -f
    fp8-info one.safetensors --diff many.safetensors --bound 1e-5 >table && break
  done
  is "$scaling: where no code differs, only the order of sums does" \
    "$(tail -n 1 table)" "one.safetensors and many.safetensors: 14 tensors within 1e-05"
  is "$scaling: codes and scales of the checkpoint are those of the model" "$(unlike divided)" "$(unlike whole)"
  mpirun -n 4 fp8-step codes.h5 --data d.h5 --seq-length 8 --batch-size 1 --steps 3 --lr 1e-2 --precision fp8 --activations f32 --lora-rank 4 \
    --seed "$seed" --tp 4 --change steps --out divided -q >log 2>err </dev/null
  is "$scaling: the run goes on with tp 4" "$(losses log | cut -d' ' -f1)" 3
  fp8-quantize heads2.h5 -o codes.h5 --scaling $scaling -q -f >out 2>err
  for ranks in 1 2; do
    mpirun -n $ranks fp8-eval codes.h5 --data d.h5 --seq-length 64 --activations f32 --tp $ranks -q 2>err | field loss - >loss.$ranks
  done
  is "$scaling: fp8-eval has the loss of one rank" \
    "$(paste loss.2 loss.1 | awk '{ d = $1 / $2 - 1; print (NF == 2 && d < 1e-4 && d > -1e-4) }')" 1
done
done_testing
