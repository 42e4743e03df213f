#!/bin/sh
# The whole step on a GPU beside the CPU's: first step, curves of every recipe, the same bits twice, resuming bit for bit, a run that moves from one
# to the other, memory that does not suffice. Skipped where there is no GPU.
. "${SRC:-.}/tests/cli/lib.sh"
unset CUDA_VISIBLE_DEVICES
. "$SRC/tests/cli/train.sh"
if ! fp8-step m.h5 --data d.h5 --out none --steps 1 --device cuda -n >out 2>err; then
  result 0 "a GPU # SKIP $(head -1 err)"
  done_testing
  exit 0
fi

train() { # FOLDER FLAGS...: 50 steps, the records in FOLDER.jsonl
  folder=$1
  shift
  fp8-step m.h5 --data d.h5 --out "$folder" --steps 50 --seq-length 64 --batch-size 4 --warmup-steps 5 --lr 1e-3 --seed 7 -q "$@" >"$folder.jsonl"
}
# Losses of steps 1 and 50 and all between, within a relative TOL.
curve() { # NAME TOLERANCE FLAGS...
  name=$1 tol=$2
  shift 2
  train cpu --device cpu "$@" && train gpu --device cuda "$@"
  result $? "$name: both run"
  near "$name: losses of 50 steps within $tol" gpu.jsonl cpu.jsonl "$tol"
  train again --device cuda "$@"
  same_bits "$name: the same bits again" again.jsonl gpu.jsonl
  same_step "$name: the same weights and moments again" again/step-00000050 gpu/step-00000050
  rm -rf cpu gpu again ./*.jsonl
}
curve "fp32" 1e-4 --precision fp32
curve "bf16" 5e-3 --precision bf16
for recipe in tensorwise rowwise rowwise_with_gw_hp; do
  curve "fp8 $recipe" 2e-2 --precision fp8 --recipe $recipe
done
curve "fp8 rowwise, emulated" 2e-2 --precision fp8 --recipe rowwise --emulate
curve "stored bf16" 2e-2 --precision bf16 --master bf16 --moments bf16
curve "recomputed" 5e-3 --precision bf16 --recompute full
curve "accumulated" 5e-3 --precision bf16 --grad-accumulation 2

train whole --device cuda --precision fp8
train parts --device cuda --precision fp8 --until-step 20 --save-every 10 && train parts2 --device cuda --out parts --precision fp8
result $? "a run in two parts"
same_step "resuming is bitwise" parts/step-00000050 whole/step-00000050
train moved --device cpu --precision fp8 --until-step 25 && train moved2 --device cuda --out moved --precision fp8
result $? "a run goes on at another place"
train stayed --device cpu --precision fp8
losses stayed.jsonl | tail -25 >tail.stayed && losses moved2.jsonl | tail -25 >tail.moved
paste -d' ' tail.moved tail.stayed | awk 'NF != 6 || $1 != $4 || ($2 - $5) ^ 2 > (0.02 * $5) ^ 2 { bad = 1 } END { exit bad || NR != 25 }'
result $? "and its losses are those of a run that stayed, within 2 %"
says "a record names the GPU" '"device":"NVIDIA' head -1 whole.jsonl
says "FP8 is not emulated" '"emulated":false' sed -n 2p whole.jsonl
fp8-step m.h5 --data d.h5 --out emulated --steps 1 --seq-length 64 --device cuda --precision fp8 --emulate >emulated.jsonl
says "unless it was asked to be" '"emulated":true' sed -n 2p emulated.jsonl
fp8-eval whole/step-00000050 --data d.h5 --seq-length 64 --device cuda >gpu.eval && fp8-eval whole/step-00000050 --data d.h5 --seq-length 64 --device cpu >cpu.eval
result $? "an evaluation on both"
echo "$(field loss gpu.eval) $(field loss cpu.eval)" | awk 'NF != 2 || ($1 - $2) ^ 2 > (0.01 * $2) ^ 2 { bad = 1 } END { exit bad }'
result $? "and they agree within 1 %"
if [ "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')" -ge 2 ] && command -v mpirun >/dev/null; then
  train one --device cuda --precision fp8
  mpirun -n 2 fp8-step m.h5 --data d.h5 --out two --steps 50 --seq-length 64 --batch-size 2 --warmup-steps 5 --lr 1e-3 --seed 7 -q --device cuda \
    --precision fp8 >two.jsonl
  result $? "two ranks, a GPU each"
  near "and their losses are one's within 2e-2" two.jsonl one.jsonl 2e-2
fi

fp8-init llama-124m -o big.h5 >out 2>err # 586 GiB of activations in a few million rows: no product is too large by itself
status "memory that does not suffice" 2 fp8-step big.h5 --data d.h5 --out x --steps 1 --device cuda --batch-size 2000 --seq-length 1024
mv err told # before the next word makes it anew
says "names the largest users, and what the GPU has" 'out of memory: .*activations.* on the GPU, where .* are free\)$' cat told
done_testing
