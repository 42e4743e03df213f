#!/bin/sh
# Meshes of replicas (--dp-replicate) and of ranks that divide linears (--tp) that do not fit, and the size of the checkpoint of replicas.
# equal.t compares numbers, and tp.t has checkpoints.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
mixture

# bytes REPLICAS: the bytes of all files of a checkpoint of four ranks
bytes() {
  mpirun -n 4 fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 1 --out run.$1 --dp-replicate $1 -q >log 2>err </dev/null
  grep -o '"bytes":[0-9]*' run.$1/step-00000001/manifest.json | awk -F: '{ sum += $2 } END { print sum }'
}
is "each row is written once: the files of two copies are as large as those of one" \
  "$(awk -v a="$(bytes 1)" -v b="$(bytes 2)" 'BEGIN { d = b / a - 1; print (d <= 0.02 && d >= -0.02) }')" 1

# A line has the number of ranks, the flags, and the message.
fp8-init tiny --set num_key_value_heads=4 --set intermediate_size=512 -o blocks.h5 -q >out 2>err &&
  fp8-quantize blocks.h5 -o codes.h5 --scaling block -q >out 2>err
fp8-quantize m.h5 -o small.h5 --scaling block -q >out 2>err &&
  fp8-init tiny --set head_dim=12 --set num_key_value_heads=4 -o twelve.h5 -q >out 2>err
result $? "models with FP8 codes, and with heads of 12, are made"
while IFS='|' read -r n flags expected; do
  mpirun -n "$n" fp8-step --data d.h5 --seq-length 16 --batch-size 4 --steps 1 --out refused -q $flags >out 2>refusal </dev/null
  is "$n ranks with $flags: status 2" $? 2
  is "$n ranks with $flags: one line says why" "$(grep '^fp8-step' refusal)" "fp8-step: $expected"
done <<'END'
3|m.h5 --dp-replicate 2|--dp-replicate 2: does not make 3 ranks; 2 or 4 ranks fit
3|m.h5 --dp-shard 2|--dp-replicate 1 times --dp-shard 2: does not make 3 ranks; 2 ranks fit
3|m.h5 --dp-shard 1|--dp-replicate 1 times --dp-shard 1: does not make 3 ranks; 1 rank fits
3|m.h5 --dp-replicate 3 --dp-shard 2|--dp-replicate 3 times --dp-shard 2: does not make 3 ranks; 6 ranks fit
3|m.h5 --dp-replicate 4|--dp-replicate 4: does not make 3 ranks; 4 ranks fit
1|m.h5 --tp 2|--tp 2: does not make 1 rank; start several ranks, as with mpirun -n 2 fp8-step
3|m.h5 --tp 2|--tp 2: does not make 3 ranks; 2 or 4 ranks fit
2|m.h5 --tp 2 --dp-replicate 2|--dp-replicate 2 times --tp 2: does not make 2 ranks; 4 ranks fit
2|m.h5 --tp 2 --dp-shard 2|--dp-shard 2 times --tp 2: does not make 2 ranks; 4 ranks fit
3|m.h5 --tp 3|--tp 3: the model has 4 heads, which it does not divide; --tp 1 fits
6|m.h5 --tp 6|--tp 6: the model has 4 heads, which it does not divide; --tp 2 fits
4|m.h5 --tp 3 --dp-shard 1|--tp 3: the model has 4 heads, which it does not divide; --tp 4 fits
8|m.h5 --tp 8|--tp 8: the model has 4 heads, which it does not divide; --tp 4 fits
2|x.h5 --tp 2 --ep 3|--ep 3: does not divide 2, the number of ranks that share a copy of the parameters; --ep 2 fits
4|m.h5 --tp 4 --batch-size 1 --seq-length 2|--tp 4: the smallest pass has 2 tokens, and each rank needs one; --tp 2 fits
END
# blocks NAME FLAGS REASON: blocks that two ranks divide are refused
blocks() {
  mpirun -n 2 fp8-step $2 --data d.h5 --seq-length 16 --batch-size 4 --steps 1 --tp 2 --out refused -q >out 2>refusal </dev/null
  is "$1" "$? $(grep '^fp8-step' refusal)" "2 fp8-step: --tp 2: $3; --tp 1 fits"
}
blocks "a block of 128 columns of codes on several ranks" "codes.h5 --lora-rank 4" \
  "model.layers.0.self_attn.q_proj.weight is stored as codes, of which blocks of 128 elements would be on several ranks"
blocks "a block of 128 rows of codes on several ranks" "small.h5 --lora-rank 4" \
  "model.layers.0.self_attn.q_proj.weight is stored as codes, of which blocks of 128 elements would be on several ranks"
blocks "a block of 16 in nvfp4 on several ranks" "twelve.h5 --precision fp8 --recipe nvfp4" \
  "blocks of 16 elements of model.layers.0.self_attn.q_proj.weight would be on several ranks, which --recipe nvfp4 does not support"
mpirun -n 4 fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 4 --steps 1 --tp 4 --tensor-stats-every 1 --precision fp8 --recipe mxfp8 \
  --out refused -q >out 2>refusal </dev/null
is "statistics of blocks on several ranks" "$? $(grep '^fp8-step' refusal)" \
  "2 fp8-step: --tp 4: blocks of 32 elements of model.layers.0.self_attn.q_proj.weight are on several ranks, so that there are no statistics of \
them; --tp 1 fits"
ok "nothing is written then" test ! -e refused
done_testing
