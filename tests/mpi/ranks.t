#!/bin/sh
# fp8-step and fp8-eval under mpirun: the losses do not depend on the number of ranks, the stage or the split of the batch.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
golden=$SRC/tests/golden/models

# train RANKS BATCH LOG FLAGS: trains four steps of twelve sequences in the folder run.LOG
train() {
  n=$1 batch=$2 log=$3
  shift 3
  mpirun -n "$n" fp8-step "$@" --data d.h5 --seq-length 16 --batch-size "$batch" --steps 4 --lr 1e-2 --out "run.$log" -q >"$log" 2>err </dev/null
}

# --- f32: losses within 1e-6 at 1, 2, 3 and 4 ranks, at every stage
train 1 12 one m.h5 --precision fp32
for n in 2 3 4; do
  for stage in 1 2 3; do
    case $n$stage in 22 | 31 | 41 | 42) long || continue ;; esac
    train $n $((12 / n)) many$n$stage m.h5 --precision fp32 --zero $stage
    near "$n ranks, --zero $stage: the losses are those of one rank" many$n$stage one 1e-6
  done
done
is "standard output of mpirun is JSON Lines" "$(grep -vc '^{"type":"[a-z]*",.*}$' many43)" 0
cmp many43 run.many43/log.jsonl
result $? "log.jsonl is equal to standard output"
is "a checkpoint has a file for each rank and a manifest" "$(cd run.many33/step-00000004 && echo ./*)" "./manifest.json ./rank-00000-of-00003.h5 ./rank-00001-of-00003.h5 ./rank-00002-of-00003.h5"
ok "the checkpoint verifies" fp8-info --verify run.many33/step-00000004
says "the run record has the mesh" '"mesh":\{"dp_replicate":1,"dp_shard":3,"pp":1,"ep":1,"tp":1\}' head -1 many33
train 3 4 noreshard m.h5 --precision fp32 --no-reshard-after-forward
same_bits "--no-reshard-after-forward gives the same bits" noreshard many33
train 2 2 micro1 m.h5 --precision fp32 --grad-accumulation 3 --zero 1
train 2 2 micro2 m.h5 --precision fp32 --grad-accumulation 3 --zero 2
train 2 2 micro3 m.h5 --precision fp32 --grad-accumulation 3
for stage in 1 2 3; do near "micro-batches on two ranks, --zero $stage: the losses are those of one batch" micro$stage one 1e-6; done
train 1 2 micro m.h5 --precision fp32 --grad-accumulation 6
near "micro-batches on one rank: the losses are those of one batch" micro one 1e-6
mpirun -n 1 fp8-step m.h5 --data d.h5 --seq-length 16 --steps 4 --lr 1e-2 --out run.8 -q --precision fp32 --batch-size 8 >eight 2>err
mpirun -n 1 fp8-step m.h5 --data d.h5 --seq-length 16 --steps 4 --lr 1e-2 --out run.42 -q --precision fp32 --batch-size 2 --grad-accumulation 4 >fourtwo 2>err
near "four micro-batches of 2 have the losses of a batch of 8" fourtwo eight 1e-6

# --- --profile: rank 0 prints the table, the trace has all ranks, and the losses are unchanged
train 2 6 profiled m.h5 --precision fp32 --profile 2-3
same_bits "--profile does not change the losses" profiled many23
trace=run.profiled/profile-2-3.json
is "the trace has two steps of each rank" "$(grep -c '"name":"step".*"pid":0' $trace) $(grep -c '"name":"step".*"pid":1' $trace)" "2 2"
says "the trace has the collectives" '"name":"reduce-scatter","cat":"communication"' cat $trace

# --- --recompute gives the same bits
for precision in fp32 bf16 fp8; do
  train 2 6 none.$precision m.h5 --precision $precision
  for recompute in selective full; do
    case $precision$recompute in fp32selective | bf16full) long || continue ;; esac
    train 2 6 $recompute.$precision m.h5 --precision $precision --recompute $recompute
    same_bits "--precision $precision --recompute $recompute gives the same bits" $recompute.$precision none.$precision
  done
done

# --- layers that share a buffer are gathered as codes and in bf16
fp8-init tiny --set num_hidden_layers=4 -o deep.h5 -q >out 2>err
for n in 1 2; do train $n $((12 / n)) deep$n deep.h5 --precision fp8 --recipe rowwise --rowwise-single-copy --filter '*.layers.0.*'; done
near "the first layer in bf16 and all-gather in FP8: the losses are those of one rank" deep2 deep1 1e-4

# --- bf16 and FP8: weights are cast as on one rank. Activation scales depend on the micro-batch, so tensorwise losses differ slightly
train 1 12 one.bf16 m.h5 --precision bf16
near "bf16 on two ranks: the losses are near those of one rank" none.bf16 one.bf16 1e-4
for recipe in tensorwise rowwise rowwise_with_gw_hp current delayed; do
  case $recipe in *hp | current) long || continue ;; esac # their weights are in shard_mpi_test
  train 1 12 one.$recipe m.h5 --precision fp8 --recipe $recipe
  train 3 4 three.$recipe m.h5 --precision fp8 --recipe $recipe
  near "$recipe on three ranks: the losses are near those of one rank" three.$recipe one.$recipe 1e-2
  is "$recipe: the FP8 GEMMs of three ranks are counted" "$(field fp8_gemms three.$recipe)" "$(field fp8_gemms one.$recipe | awk '{ print 3 * $1 }')"
  case $recipe in rowwise* | current) long || continue ;; esac
  train 3 4 stage1.$recipe m.h5 --precision fp8 --recipe $recipe --zero 1
  same_bits "$recipe: --zero 1 gives the same bits" stage1.$recipe three.$recipe
done
train 1 12 one.hopper m.h5 --precision fp8 --accumulate hopper
train 3 4 three.hopper m.h5 --precision fp8 --accumulate hopper
near "--accumulate hopper on three ranks: the losses are near those of one rank" three.hopper one.hopper 1e-2
if long; then
  train 3 4 stage1.hopper m.h5 --precision fp8 --accumulate hopper --zero 1
  same_bits "--accumulate hopper: --zero 1 gives the same bits" stage1.hopper three.hopper
fi
train 3 4 bf16.gather m.h5 --precision fp8 --no-fp8-all-gather
for recipe in tensorwise current delayed; do
  [ $recipe = delayed ] || long || continue
  train 3 4 codes.$recipe m.h5 --precision fp8 --recipe $recipe --master bf16
  train 3 4 weights.$recipe m.h5 --precision fp8 --recipe $recipe --master bf16 --no-fp8-all-gather
  same_bits "$recipe with bf16 master weights: the bits do not depend on FP8 all-gather" codes.$recipe weights.$recipe
done
train 3 4 codes.single m.h5 --precision fp8 --recipe rowwise --rowwise-single-copy --master bf16
train 3 4 weights.single m.h5 --precision fp8 --recipe rowwise --rowwise-single-copy --master bf16 --no-fp8-all-gather
same_bits "--rowwise-single-copy with bf16 master weights: the bits do not depend on FP8 all-gather" codes.single weights.single
ok "a checkpoint of three ranks with delayed scales verifies" fp8-info --verify run.codes.delayed/step-00000004
near "--no-fp8-all-gather: the losses are near those of the FP8 all-gather" bf16.gather three.tensorwise 1e-2

# --- other models: biases, QK norm, tied embeddings, fewer rows than ranks
for model in qwen2 qwen3 llama-tied; do
  [ $model != qwen3 ] || long || continue # few.h5 is one
  fp8-convert "$golden/$model/hf" --dtype f32 -o $model.h5 >out 2>err
  train 1 12 $model.one $model.h5 --precision fp32
  train 3 4 $model.three $model.h5 --precision fp32
  near "$model on three ranks: the losses are those of one rank" $model.three $model.one 1e-6
done
fp8-init "$golden/qwen3/hf/config.json" --set head_dim=2 --set num_attention_heads=4 --set num_key_value_heads=1 -o few.h5 >out 2>err
train 1 12 few.one few.h5 --precision fp32
for stage in 1 2 3; do
  [ $stage != 2 ] || long || continue
  train 4 3 few.$stage few.h5 --precision fp32 --zero $stage
  near "fewer rows than ranks, --zero $stage: the losses are those of one rank" few.$stage few.one 1e-6
done
ok "fewer rows than ranks: the checkpoint verifies" fp8-info --verify run.few.3/step-00000004
mpirun -n 4 fp8-step few.h5 --data d.h5 --seq-length 16 --batch-size 3 --steps 5 --lr 1e-2 --precision fp32 --out run.few.3 -q >out 2>err
is "fewer rows than ranks: the run resumes" "$? $(losses out | cut -d' ' -f1)" "0 5"
ok "fewer rows than ranks: the run resumes on one rank" fp8-step few.h5 --data d.h5 --seq-length 16 --batch-size 12 --steps 6 --lr 1e-2 --precision fp32 --out run.few.3 -q

# --- evaluation
mpirun -n 3 fp8-step m.h5 --data d.h5 --eval-data d.h5 --eval-every 2 --eval-batches 5 --seq-length 16 --batch-size 4 --steps 4 --lr 1e-2 --precision fp32 --out e3 -q >e3.log 2>err
fp8-step m.h5 --data d.h5 --eval-data d.h5 --eval-every 2 --eval-batches 5 --seq-length 16 --batch-size 12 --steps 4 --lr 1e-2 --precision fp32 --out e1 -q >e1.log 2>err
evaluations() { grep '"type":"eval"' "$1" | sed 's/.*"step":\([0-9]*\),"tokens":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2 \3/'; }
is "evaluations of 3 ranks and of 1 rank have the same tokens" "$(evaluations e3.log | cut -d' ' -f1-2)" "$(evaluations e1.log | cut -d' ' -f1-2)"
is "evaluations have the tokens of five batches" "$(evaluations e1.log | cut -d' ' -f1-2 | tr '\n' ' ')" "2 960 4 960 "
evaluations e1.log >a && evaluations e3.log | paste -d' ' - a | awk '{ d = ($3 - $6) / $6; if (d > 1e-6 || d < -1e-6) bad = 1 } END { exit bad }'
result $? "evaluations of 3 ranks and of 1 rank have the same losses"
near "evaluations do not change the training losses" e3.log one 1e-6
head -c 4000 text.txt >some.txt && fp8-tokenize some.txt -o some.h5 -q >out 2>err
fp8-eval e1/step-00000004 --data some.h5 --seq-length 16 --precision fp32 --per-token --batch-size 7 >eval1 2>err
for n in 2 4; do
  [ $n = 4 ] || long || continue
  mpirun -n $n fp8-eval e1/step-00000004 --data some.h5 --seq-length 16 --precision fp32 --per-token --batch-size 7 >evaln 2>err
  is "fp8-eval on $n ranks: the sequences are in order" "$(field index evaln)" "$(seq 0 248)"
  is "fp8-eval on $n ranks: the token losses are those of one rank" "$(paste -d" " eval1 evaln | sed 's/,"time":"[^"]*"//g' | sed 's/[^0-9.e+-]\{1,\}/ /g' | awk '{ n = NF / 2; for (i = 1; i <= n; i++) { d = $i - $(i + n); if (d > 1e-5 || d < -1e-5) bad = 1 } } END { print bad + 0 }')" 0
  is "fp8-eval on $n ranks: the loss is that of one rank" "$(tail -1 evaln | field loss - | awk -v l="$(tail -1 eval1 | field loss -)" '{ d = $1 / l - 1; print (d < 1e-6 && d > -1e-6) }')" 1
done
head -c 200 text.txt >short.txt && fp8-tokenize short.txt -o short.h5 -q >out 2>err
mpirun -n 3 fp8-eval few.h5 --data short.h5 --seq-length 100 --precision fp8 >out 2>err
is "fp8-eval with fewer sequences than ranks succeeds" "$? $(field tokens out)" "0 100"

# --- two ranks on one core, which mpirun takes for two slots: they yield by themselves as if Open MPI were told to; without it a step takes 100 times
# as long
on_core() {
  mpirun --host localhost:2 -n 2 taskset -c "$core" fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 1 --steps 8 --out "run.$1" -q >"$1" 2>err
}
core=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
on_core told
(unset OMPI_MCA_mpi_yield_when_idle && on_core untold)
median() { field step_s "$1" | sort -g | sed -n 4p; }
is "ranks that share a core yield it while they wait" "$(median untold | awk -v told="$(median told)" '{ print ($1 < 10 * told) }')" 1

done_testing
