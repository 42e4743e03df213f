#!/bin/sh
# Linears that ranks divide (--tp): the numbers of one rank, checkpoints that any mesh reads, bitwise resume, evaluations, refusals.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
mixture

# train MODEL RANKS DATA_PARTS LOG FLAGS: trains four steps of 24 sequences in the folder run.LOG
train() {
  m=$1 n=$2 parts=$3 log=$4
  shift 4
  mpirun -n "$n" fp8-step $m --data d.h5 --seq-length 16 --batch-size $((24 / parts)) --steps 4 --lr 1e-3 --out "run.$log" -q "$@" >"$log" 2>err </dev/null
}

# --- fp32: losses, norm, gradients and evaluations of one rank, on up to eight ranks
watched="--precision fp32 --eval-data d.h5 --eval-every 2 --eval-batches 1"
for model in m x; do
  train $model.h5 1 1 one $watched --gradients one.safetensors -f
  for way in "long: 2 1 --tp 2 --paranoid 1" "4 2 --tp 2 --zero 2 --recompute full" "4 1 --tp 4 --recompute selective" "8 4 --tp 2 --dp-replicate 2 --zero 1 --paranoid 1"; do
    chosen "$way" || continue
    case "$model $way" in "m 4 2 "* | "m 8 "* | "x 4 1 "*) long || continue ;; esac
    ranks=${way%% *} rest=${way#* }
    rm -rf run.way
    train $model.h5 $ranks ${rest%% *} way $watched --gradients way.safetensors -f ${rest#* }
    near "$model, $way: the losses are those of one rank" way one 1e-6
    ok "$model, $way: the gradients are those of one rank" fp8-info one.safetensors --diff way.safetensors --bound 1e-5
    near_values "$model, $way: the norm is that of one rank" "$(norm way)" "$(norm one)"
    near_values "$model, $way: the evaluations are those of one rank" "$(evaluations way)" "$(evaluations one)"
  done
  rm -rf run.one
done
says "the run record has the mesh" '"mesh":\{"dp_replicate":2,"dp_shard":2,"pp":1,"ep":1,"tp":2\}' head -1 way
says "the checkpoint has the mesh" '"mesh":\{"dp_replicate":2,"dp_shard":2,"pp":1,"ep":1,"tp":2\}' head -1 run.way/step-00000004/manifest.json
ok "the checkpoint verifies" fp8-info --verify run.way/step-00000004
fp8-convert run.way --merge -o merged.h5 -q >out 2>err
ok "its files merge into one" fp8-info run.way --diff merged.h5

# --- a run resumes on other meshes: with the losses of one rank, and with the same bytes where nothing is updated
walk="4.2.1 2.2.1 1.1.1 4.4.1 2.1.1 8.2.2"
# go MODEL SHAPE FLAGS: a start on ranks.tp.replicas
go() {
  m=$1 ranks=${2%%.*} tp=${2#*.} replicas=${2##*.}
  shift 2
  mpirun -n $ranks fp8-step $m --batch-size $((24 * ${tp%.*} / ranks)) --tp ${tp%.*} --dp-replicate $replicas --lr 1e-3 -q "$@" 2>err </dev/null
}
for way in "x.h5" "long: m.h5 --lora-rank 4"; do
  chosen "$way" || continue
  model=${way%% *} flags=${way#"${way%% *}"}
  rm -rf moving whole moving.log
  all="--data d.h5 --seq-length 8 --precision fp32 --steps 6 $flags"
  fp8-step $model $all --batch-size 24 --lr 1e-3 -q --out whole >whole.log 2>err
  at=0
  for shape in $walk; do
    at=$((at + 1))
    go $model $shape $all --out moving --until-step $at >>moving.log || break
  done
  near "$way: a run that changes its mesh has the losses of one rank" moving.log whole.log 1e-6
done
for way in "long: m.h5 --precision fp32" "long: x.h5 --precision fp8 --recipe delayed --amax-history 3 --moments bf16 --async-save" \
  "m.h5 --precision fp8 --recipe rowwise --rowwise-single-copy --lora-rank 4"; do
  chosen "$way" || continue
  model=${way%% *} flags=${way#* }
  rm -rf still still.log
  at=0
  for shape in $walk; do
    at=$((at + 1))
    go $model $shape --data few.h5 --documents separate --sampler sequential --seq-length 16 --steps 6 $flags --out still --save-every 1 --until-step $at >>still.log || break
  done
  is "$way: only the first step updates" "$(grep -c '"masked":true' still.log)" 5
  for at in 2 3 4 5 6; do
    ok "$way: the mesh of step $at stores the bytes of the one before" fp8-info still/step-0000000$((at - 1)) --diff still/step-0000000$at
  done
done

# --- a run that is resumed on its mesh computes the bits of one that was not stopped
for way in "long: --recipe tensorwise" "long: --recipe delayed --amax-history 3" "long: --recipe rowwise --async-save" "--recipe blockwise --master bf16 --moments bf16"; do
  chosen "$way" || continue
  rm -rf at.once in.parts
  for out in at.once in.parts; do
    for stop in $([ $out = in.parts ] && echo 2) 4; do
      go m.h5 4.2.1 --data d.h5 --seq-length 16 --steps 4 --precision fp8 $way --out $out --until-step $stop >>log.$out || break
    done
  done
  ok "$way: a resumed run has the bits of one that was not stopped" fp8-info at.once --diff in.parts
done

# --- what does not fit is refused by name, with what fits
fp8-init tiny --set num_key_value_heads=4 --set intermediate_size=512 -o blocks.h5 -q >out 2>err && fp8-quantize blocks.h5 -o codes.h5 --scaling block -q >out 2>err
while IFS='|' read -r n flags expected; do
  mpirun -n "$n" fp8-step --data d.h5 --seq-length 16 --batch-size 4 --steps 1 --out refused -q $flags >out 2>refusal </dev/null
  is "$n ranks with $flags: status 2" $? 2
  is "$n ranks with $flags: one line says why" "$(grep '^fp8-step' refusal)" "fp8-step: $expected"
done <<'END'
1|m.h5 --tp 2|--tp 2: does not make 1 rank; start several ranks, as with mpirun -n 2 fp8-step
3|m.h5 --tp 2|--tp 2: does not make 3 ranks; 2 or 4 ranks fit
2|m.h5 --tp 2 --dp-replicate 2|--dp-replicate 2 times --tp 2: does not make 2 ranks; 4 ranks fit
2|m.h5 --tp 2 --dp-shard 2|--dp-shard 2 times --tp 2: does not make 2 ranks; 4 ranks fit
3|m.h5 --tp 3|--tp 3: the model has 4 heads, which it does not divide; --tp 1 fits
6|m.h5 --tp 6|--tp 6: the model has 4 heads, which it does not divide; --tp 2 fits
4|m.h5 --tp 3 --dp-shard 1|--tp 3: the model has 4 heads, which it does not divide; --tp 4 fits
8|m.h5 --tp 8|--tp 8: the model has 4 heads, which it does not divide; --tp 4 fits
2|x.h5 --tp 2 --ep 3|--ep 3: does not divide 2, the number of ranks that share a copy of the parameters; --ep 2 fits
4|m.h5 --tp 4 --tensor-stats-every 1 --precision fp8 --recipe mxfp8|--tp 4: blocks of 32 elements of model.layers.0.self_attn.q_proj.weight are on several ranks, so that there are no statistics of them; --tp 1 fits
2|codes.h5 --tp 2 --lora-rank 4|--tp 2: model.layers.0.self_attn.q_proj.weight is stored as FP8 codes, of which blocks of 128 elements would be on several ranks; --tp 1 fits
4|m.h5 --tp 4 --batch-size 1 --seq-length 2|--tp 4: the smallest pass has 2 tokens, and each rank needs one; --tp 2 fits
END
ok "nothing is written then" test ! -e refused
done_testing
