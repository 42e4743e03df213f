#!/bin/sh
# fp8-plan has the memory that fp8-step -n plans on the rank that needs the most, category by category: for meshes,
# recipes, sharding and adapters, on the host and, in a build with CUDA, for a GPU. The program itself is left out: the
# two programs differ.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
export OMP_NUM_THREADS=1
fp8-init tiny -o tiny.h5 -q >out
fp8-init qwen3-moe-tiny -o moe.h5 -q >out
seq 20000 >t.txt
fp8-tokenize t.txt --tokenizer bytes -o d.h5 -q >out
size='([0-9.]+ [KMG]?i?B)'

# planned MODEL RANKS FLAGS: whether the two have the same memory
planned() {
  preset=$1 ranks=$2
  shift 2
  file=tiny.h5
  [ $preset = tiny ] || file=moe.h5
  recipe=
  case $* in *--precision*) ;; *) recipe='--precision bf16' ;; esac
  mpirun -n $ranks fp8-step $file --data d.h5 --out run --steps 8 --seq-length 32 -n "$@" 2>err >out </dev/null || return
  sed -nE "s/^fp8-step:   ([a-zA-Z0-9 ]*[a-z]) +$size\$/\1: \2/p" err | grep -v -e '^program' -e '^total' | sort >want
  fp8-plan $preset --ranks $ranks --seq-length 32 -q $recipe "$@" 2>err >out || return
  sed -nE "s/^  ([a-zA-Z0-9 ]*[a-z]) +$size\$/\1: \2/p" out | grep -v '^program' | sort >got
  diff want got >differs && [ -s want ] && return
  sed 's/^/# /' differs >&2
  return 1
}

while IFS='|' read -r preset ranks flags; do
  chosen "$preset" || continue
  ok "$way on $ranks ranks:$flags" planned $way $ranks --device cpu $flags
done <<'END'
tiny|1|
long: tiny|1| --precision fp32
tiny|1| --precision fp8 --batch-size 3 --grad-accumulation 2
tiny|4| --precision fp8 --recipe rowwise --async-save
long: tiny|4| --precision fp8 --recipe rowwise --rowwise-single-copy
long: tiny|4| --precision fp8 --recipe rowwise_with_gw_hp --recompute selective
tiny|4| --precision fp8 --recipe delayed --zero 1
long: tiny|4| --precision fp8 --recipe current --fuse-projections --no-fp8-all-gather
tiny|4| --precision fp8 --recipe blockwise --tp 2
long: tiny|4| --precision fp8 --recipe mxfp8 --zero 2 --grad-accumulation 2
long: tiny|3|
tiny|4| --pp 2 --grad-accumulation 4
long: tiny|4| --pp 2 --stages 1,1 --grad-accumulation 1 --precision fp8 --recipe delayed
tiny|8| --tp 2 --pp 2 --grad-accumulation 3 --recompute full
tiny|4| --precision fp8 --dp-replicate 2 --reduce-dtype bf16
long: tiny|6| --dp-replicate 3 --zero 2
long: tiny|4| --recompute selective --no-reshard-after-forward --moments bf16 --master bf16
tiny|2| --precision fp8 --lora-rank 4
long: tiny|4| --lora-rank 8 --lora-targets q_proj,down_proj --tp 2
long: tiny|2| --precision fp8 --filter *.q_proj --recipe *.o_proj=rowwise
long: tiny|2| --precision fp8 --fp8-gemms forward,dgrad --fp8-lm-head
long: tiny|4| --precision fp8 --activations f32
long: tiny|5| --zero 1 --grad-accumulation 2
long: qwen3-moe-tiny|1|
qwen3-moe-tiny|4| --precision fp8 --ep 2
long: qwen3-moe-tiny|4| --precision fp8 --recipe delayed --ep 4 --expert-rows 1.5
qwen3-moe-tiny|4| --ep 2 --tp 2
long: qwen3-moe-tiny|4| --precision fp8 --recipe rowwise --pp 2 --recompute full --grad-accumulation 2
long: qwen3-moe-tiny|4| --precision fp8 --recipe blockwise --ep 4 --zero 1
long: qwen3-moe-tiny|2| --precision fp8 --recipe current --recompute selective
END

if fp8-step tiny.h5 --data d.h5 --out run --steps 8 -n --device cuda -q >out 2>err; then
  while IFS='|' read -r preset ranks flags; do
    chosen "$preset" || continue
    ok "$way for $ranks GPUs:$flags" planned $way $ranks --device cuda $flags
  done <<'END'
tiny|1| --precision fp8
long: tiny|1|
tiny|4| --precision fp8 --recipe rowwise --zero 1
long: tiny|4| --precision fp8 --recipe delayed --async-save
long: tiny|4| --precision fp8 --recipe blockwise --recompute full
tiny|4| --pp 2 --grad-accumulation 4 --no-deterministic
long: tiny|4| --tp 2 --precision fp8
long: tiny|2| --attention plain
long: tiny|2| --precision fp8 --lora-rank 4
qwen3-moe-tiny|4| --precision fp8 --ep 2
long: qwen3-moe-tiny|2| --precision fp8 --recipe rowwise --recompute selective
END
fi
done_testing
