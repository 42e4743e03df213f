#!/bin/sh
# Experts that ranks share (--ep): checkpoints that any mesh reads, passes, bitwise resume, stops, refusals. equal.t compares numbers.
# shellcheck disable=SC2086,SC2016 # lists of words on purpose; each rank's shell expands the variables
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
mixture

# train RANKS LOG FLAGS: trains four steps of 24 sequences in the folder run.LOG
train() {
  n=$1 log=$2
  shift 2
  mpirun -n "$n" fp8-step x.h5 --data d.h5 --seq-length 16 --batch-size $((24 / n)) --steps 4 --lr 1e-3 --out "run.$log" -q "$@" \
    >"$log" 2>err </dev/null
}
# --- a run resumes on other meshes, with the same bytes where nothing is updated
for way in "long: --precision fp32" "--precision fp8 --recipe delayed --amax-history 3 --moments bf16 --async-save" \
  "long: --precision fp8 --recipe current --lora-rank 4"; do
  chosen "$way" || continue
  rm -rf still still.log
  at=0
  for shape in 4.2.1 2.2.1 1.1.1 4.4.1 1.1.1 8.4.2; do # ranks.ep.replicas
    at=$((at + 1)) ranks=${shape%%.*} ep=${shape#*.}
    mpirun -n $ranks fp8-step x.h5 --data few.h5 --documents separate --sampler sequential --seq-length 16 --steps 6 --lr 1e-3 -q $way \
      --batch-size $((24 / ranks)) --ep ${ep%.*} --dp-replicate ${shape##*.} --out still --save-every 1 --until-step $at \
      >>still.log 2>err </dev/null || break
  done
  is "$way: only the first step updates" "$(grep -c '"masked":true' still.log)" 5
  for at in 2 3 4 5 6; do
    fp8-info still/step-00000001 --diff still/step-0000000$at >out 2>err
    result $? "$way: the bytes of step 1 stay, $at"
  done
done

# --- a layer with more rows than --expert-rows runs in passes: other memory, the same bits and the same counts
for rows in 1 8; do train 2 rows$rows --ep 2 --expert-rows $rows --precision fp8 --recipe delayed --amax-history 3; done
same_bits "passes do not change losses" rows1 rows8
same_step "nor weights, moments and histories" run.rows1/step-00000004 run.rows8/step-00000004
planned() { grep -o '"memory_plan":.*' $1 | grep -o "\"$2\":[0-9]*" | cut -d: -f2; }
[ "$(planned rows1 activations)" -lt "$(planned rows8 activations)" ]
result $? "they take less memory"
[ "$(planned rows1 'fp8 codes')" -gt "$(planned rows8 'fp8 codes')" ]
result $? "weights for repeated GEMMs are planned only where rows can need several passes"
is "records have the most passes of a layer" "$(field expert_passes rows1 | sort -u) $(field expert_passes rows8 | sort -u)" "2 1"
counts() { for f in fp8_flop_share fp8_flop_share_total fp8_gemms bf16_gemms; do field $f "$1"; done; }
is "the GEMMs that passes repeat are not counted" "$(counts rows1)" "$(counts rows8)"

# Four experts of each rank and tokens that are all the same: a pass for each of the four.
fp8-init qwen3-moe-tiny --set num_experts=16 --set num_experts_per_tok=6 --set num_hidden_layers=2 -o p.h5 -q >out 2>err
head -c 600 /dev/zero | tr '\0' a >a.txt && fp8-tokenize a.txt -o a.h5 -q >out 2>err
mpirun -n 4 fp8-step p.h5 --data a.h5 --seq-length 16 --steps 1 --batch-size 1 --ep 4 --expert-rows 1 --out four -q >four.log 2>err </dev/null
is "a layer runs in four passes" "$(field expert_passes four.log)" 4

says "a line names the old and the new mesh" '^fp8-step: from step 5 on: mesh 1 rank \(was dp_shard=2 ep=2\)$' \
  fp8-step x.h5 --data d.h5 --seq-length 16 --batch-size 24 --steps 8 --lr 1e-3 --out run.rows8 -n --precision fp8 --recipe delayed \
  --amax-history 3
is "fp8-log has the mesh and the passes" "$(fp8-log run.rows1 | tr -s ' ' | grep -e '^mesh' -e '^passes' -e '^idle')" "mesh dp_shard=2 ep=2
idle experts 0 of 7
passes of experts 2"

# --- bitwise resume on the same mesh
for way in "long: 2 --ep 2 --precision fp8 --recipe delayed --amax-history 3" \
  "long: 2 --ep 2 --precision fp8 --recipe tensorwise --grad-accumulation 2" \
  "4 --ep 2 --precision bf16 --master bf16 --moments bf16 --aux-loss 0.1 --expert-rows 1" \
  "4 --ep 2 --dp-replicate 2 --precision fp8 --recipe delayed --amax-history 3 --paranoid 1"; do
  chosen "$way" || continue
  ranks=${way%% *}
  rm -rf run.twice uninterrupted
  train $ranks twice ${way#* } --save-every 2 && mv run.twice/step-00000004 uninterrupted
  train $ranks twice ${way#* } --save-every 2
  is "$way: the run resumes at step 3" "$(story twice)" "run step3 step4 checkpoint4 end4 "
  (cd uninterrupted && for f in *; do cmp "$f" ../run.twice/step-00000004/$f || exit 1; done && [ "$(echo * | wc -w)" = $((ranks + 1)) ]) \
    >out 2>err
  result $? "$way: the files are those of the uninterrupted run"
done
cp -r run.twice damaged
printf x | dd of=damaged/step-00000004/rank-00001-of-00004.h5 bs=1 seek=3000 conv=notrunc 2>/dev/null
says "a damaged file of some experts is named" "^fp8-info: damaged/step-00000004/rank-00001-of-00004.h5: " fp8-info --verify damaged/step-00000004

# --- a signal: a checkpoint is saved, and the same command goes on
mpirun -n 2 sh -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK; exec fp8-step "$@"' sh x.h5 --data d.h5 --seq-length 32 --batch-size 4 --steps 4000 \
  --ep 2 --out sig -q >sig.log 2>err </dev/null &
job=$!
until grep -q '"type":"step"' sig.log || ! kill -0 $job; do sleep 0.1; done
kill -TERM "$(cat pid1)"
wait $job
is "TERM to one rank: status 75" $? 75
at=$(field step sig.log | tail -1)
mpirun -n 2 fp8-step x.h5 --data d.h5 --seq-length 32 --batch-size 4 --steps 4000 --ep 2 --out sig -q --until-step $((at + 1)) \
  >out 2>err </dev/null
is "the run goes on" "$? $(losses out | cut -d' ' -f1)" "0 $((at + 1))"

# --- arrangements that do not fit: status 2 and one line
refuses() { # RANKS REGEX FLAGS
  n=$1 pattern=$2
  shift 2
  mpirun -n $n fp8-step "$@" --data d.h5 --seq-length 16 --steps 1 --out refused -q >out 2>refusal </dev/null
  is "$n ranks with $* end with status 2" $? 2
  is "$n ranks with $*: one line" "$(grep -c '^fp8-step: ' refusal)" 1
  says "$n ranks with $*: it says why" "^fp8-step: $pattern\$" grep '^fp8-step: ' refusal
}
refuses 3 '--ep 2: does not divide 3, the number of ranks that share a copy of the parameters; --ep 1 or 3 fits' x.h5 --ep 2
refuses 4 '--ep 4: does not divide 2, the number of ranks that share a copy of the parameters; --ep 2 fits' x.h5 --ep 4 --dp-replicate 2
refuses 1 \
  '--ep 2: does not divide 1, the number of ranks that share a copy of the parameters; start several ranks, as with mpirun -n 2 fp8-step' x.h5 --ep 2
refuses 3 '--ep: m.h5 has no experts' m.h5 --ep 2
refuses 2 '--ep: m.h5 has no experts' m.h5 --ep 2
refuses 8 '--ep 8: x.h5 has 7 experts, and each part needs one; --ep 4 fits' x.h5 --ep 8
refuses 2 '--aux-loss: m.h5 has no experts' m.h5 --aux-loss 0.1
refuses 2 '--expert-rows: 0.5 is below 1' x.h5 --ep 2 --expert-rows 0.5
refuses 2 '--ep: 0 is below 1' x.h5 --ep 0
refuses 2 '--lora-dropout: model.layers.1.mlp.experts.0.gate_proj: adapters of experts have no dropout; use --lora-dropout 0, or '\
'--lora-targets without experts' x.h5 --ep 2 --lora-rank 4 --lora-dropout 0.1
ok "nothing is written then" test ! -e refused
ok "adapters of attention may have dropout" fp8-step x.h5 --data d.h5 --seq-length 16 --steps 1 --out dropout -q --lora-rank 4 \
  --lora-targets q_proj,v_proj --lora-dropout 0.1
is "one rank has no passes" "$(field expert_passes out)" ""
says "--expert-rows without --ep has no effect, and a note says so" '^fp8-step: --expert-rows: no effect with --ep 1$' \
  fp8-step x.h5 --data d.h5 --seq-length 16 --steps 1 --out x -n --expert-rows 3
done_testing
