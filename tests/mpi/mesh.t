#!/bin/sh
# Copies of sharded parameters (--dp-replicate): numbers of one rank, checkpoints that any mesh reads, and gradients that travel in bf16.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1

# mesh RANKS REPLICAS LOG FLAGS: trains four steps of 24 sequences in the folder run.LOG
mesh() {
  n=$1 replicas=$2 log=$3
  shift 3
  mpirun -n "$n" fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size $((24 / n / ${parts:-1})) --steps 4 --lr 1e-3 --out "run.$log" --dp-replicate "$replicas" -q "$@" >"$log" 2>err </dev/null
}

# sizes RUN: the bytes of all files of its last checkpoint
sizes() { grep -o '"bytes":[0-9]*' "$1/step-00000004/manifest.json" | awk -F: '{ sum += $2 } END { print sum }'; }
# close A B TOLERANCE: whether two numbers have a relative difference of at most TOLERANCE
close() { awk -v a="$1" -v b="$2" -v tol="$3" 'BEGIN { d = a / b - 1; exit !(d <= tol && d >= -tol) }'; }

# --- fp32: losses, norm and gradients of one rank, on up to eight ranks
mesh 1 1 one --precision fp32 --gradients one.safetensors
for shape in 2.2 4.2 4.4 6.3 8.1 8.2 8.4 8.8; do
  case $shape in 4.* | 8.4 | 8.8) long || continue ;; esac
  ranks=${shape%.*} replicas=${shape#*.}
  mesh $ranks $replicas m$shape --precision fp32 --gradients $shape.safetensors
  near "$ranks ranks, $replicas copies: the losses are those of one rank" m$shape one 1e-6
  ok "$ranks ranks, $replicas copies: the gradients are those of one rank" fp8-info one.safetensors --diff $shape.safetensors --bound 1e-5
  ok "$ranks ranks, $replicas copies: the norm is that of one rank" close "$(norm m$shape)" "$(norm one)" 1e-6
done
mesh 1 1 adapters --precision fp32 --lora-rank 4 --gradients adapters.safetensors
for way in "long: one 3 --zero 1 --grad-accumulation 3" "one 1 --zero 2 --recompute full" "adapters 3 --lora-rank 4 --zero 2 --grad-accumulation 3 --recompute selective"; do
  chosen "$way" || continue
  set -- $way
  reference=$1 parts=$2
  shift 2
  mesh 8 2 mixed --precision fp32 --gradients way.safetensors -f "$@"
  near "8 ranks, 2 copies, $*: the losses are those of one rank" mixed $reference 1e-6
  ok "8 ranks, 2 copies, $*: the gradients are those of one rank" fp8-info $reference.safetensors --diff way.safetensors --bound 1e-5
  parts=1
  rm -rf run.mixed
done
says "the run record has the mesh" '"mesh":\{"dp_replicate":2,"dp_shard":4,"pp":1,"ep":1,"tp":1\}' head -1 m8.2
says "the checkpoint has the mesh" '"mesh":\{"dp_replicate":2,"dp_shard":4,"pp":1,"ep":1,"tp":1\}' head -1 run.m8.2/step-00000004/manifest.json
ok "the checkpoint verifies" fp8-info --verify run.m8.2/step-00000004
ok "each row is written once: the files of two copies are as large as those of one" close "$(sizes run.m8.2)" "$(sizes run.m8.1)" 0.02

fp8-convert run.m8.2 --merge -o merged.h5 -q >out 2>err
ok "the files merge into one" fp8-info run.m8.2 --diff merged.h5
cp -r run.m8.2 damaged
printf x | dd of=damaged/step-00000004/rank-00005-of-00008.h5 bs=1 seek=3000 conv=notrunc 2>/dev/null
says "a damaged file of a copy is named" "^fp8-info: damaged/step-00000004/rank-00005-of-00008.h5: " fp8-info --verify damaged/step-00000004

# --- every recipe, kind of save and adapter trains on copies; a run resumes on other meshes with the same numbers
for way in "--recipe tensorwise --async-save --save-every 1" "--recipe delayed --amax-history 3 --grad-accumulation 2 --paranoid 1" "long: --recipe rowwise --zero 1 --grad-accumulation 2" \
  "--recipe current --lora-rank 4 --zero 2 --paranoid 2" "long: --recipe tensorwise --no-fp8-all-gather --recompute full"; do
  chosen "$way" || continue
  rm -rf run.copies run.shards
  mpirun -n 4 fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 3 --lr 1e-3 --out run.copies --dp-replicate 2 -q --precision fp8 $way >copies 2>err </dev/null
  result $? "$way: trains on two copies"
  mpirun -n 4 fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 3 --lr 1e-3 --out run.shards -q --precision fp8 $way >shards 2>err </dev/null
  near "$way: the losses are those of four shards" copies shards 1e-3
done
all="m.h5 --data d.h5 --seq-length 8 --precision fp32 --lr 1e-3 --steps 6 -q"
fp8-step $all --batch-size 24 --out whole >whole.log 2>err
at=0
for shape in 4.2 2.2 6.3 1.1 4.4 3.1; do
  at=$((at + 1))
  mpirun -n ${shape%.*} fp8-step $all --batch-size $((24 / ${shape%.*})) --dp-replicate ${shape#*.} --out moving --until-step $at --keep 1 --async-save >>moving.log 2>err </dev/null || break
done
near "a run that changes its mesh has the losses of one rank" moving.log whole.log 1e-6

# --- gradients that travel in bf16
mesh 6 3 narrow --precision fp32 --reduce-dtype bf16 --gradients narrow.safetensors
near "--reduce-dtype bf16: the losses are near those of f32" narrow one 1e-3
ok "--reduce-dtype bf16: gradients are rounded" fp8-info one.safetensors --diff narrow.safetensors --bound 0.01
status "--reduce-dtype bf16: they are not those of f32" 1 fp8-info one.safetensors --diff narrow.safetensors --bound 1e-5

# --- arrangements that do not fit
while IFS=: read -r flags fitting; do
  mpirun -n 3 fp8-step m.h5 --data d.h5 --seq-length 16 --steps 1 --out refused -q $flags >out 2>refusal </dev/null
  is "3 ranks with $flags end with status 2" $? 2
  is "3 ranks with $flags: one line says why, and what fits" "$(grep '^fp8-step' refusal)" "fp8-step: $fitting"
done <<'END'
--dp-replicate 2:--dp-replicate 2: does not make 3 ranks; 2 or 4 ranks fit
--dp-shard 2:--dp-replicate 1 times --dp-shard 2: does not make 3 ranks; 2 ranks fit
--dp-shard 1:--dp-replicate 1 times --dp-shard 1: does not make 3 ranks; 1 rank fits
--dp-replicate 3 --dp-shard 2:--dp-replicate 3 times --dp-shard 2: does not make 3 ranks; 6 ranks fit
--dp-replicate 4:--dp-replicate 4: does not make 3 ranks; 4 ranks fit
END
ok "nothing is written then" test ! -e refused
done_testing
