#!/bin/sh
# Training on a GPU compared with the CPU: losses with every recipe, equal bits in repeated and resumed runs, a run that moves from the CPU to the GPU,
# out of memory. Skipped without a GPU.
. "${SRC:-.}/tests/cli/lib.sh"
unset CUDA_VISIBLE_DEVICES
. "$SRC/tests/cli/train.sh"
if ! fp8-step m.h5 --data d.h5 --out none --steps 1 --device cuda -n >out 2>err; then
  result 0 "a GPU # SKIP $(head -1 err)"
  done_testing
  exit 0
fi

train() { # FOLDER FLAGS...: trains 50 steps; writes the records to FOLDER.jsonl
  folder=$1
  shift
  fp8-step m.h5 --data d.h5 --out "$folder" --steps 50 --seq-length 64 --batch-size 4 --warmup-steps 5 --lr 1e-3 --seed 7 -q "$@" >"$folder.jsonl"
}
curve() { # NAME TOLERANCE FLAGS...: passes if all losses of CPU and GPU differ by at most TOLERANCE, relatively, and a second run is equal
  name=$1 tol=$2
  shift 2
  train cpu --device cpu "$@" && train gpu --device cuda "$@"
  result $? "$name: CPU and GPU train 50 steps"
  near "$name: the losses of 50 steps differ by at most $tol" gpu.jsonl cpu.jsonl "$tol"
  train again --device cuda "$@"
  same_bits "$name: a second run has equal losses" again.jsonl gpu.jsonl
  same_step "$name: a second run has equal weights and moments" again/step-00000050 gpu/step-00000050
  rm -rf cpu gpu again ./*.jsonl
}
curve "fp32" 1e-4 --precision fp32 --attention plain
curve "bf16" 5e-3 --precision bf16
curve "bf16, --attention plain" 5e-3 --precision bf16 --attention plain
refused "fp32 activations need --attention plain" 'attention: cuDNN: needs bf16 activations \(use --attention plain' m.h5 --data d.h5 --out none --steps 1 \
  --seq-length 64 --device cuda --precision fp32
for recipe in tensorwise rowwise rowwise_with_gw_hp; do
  curve "fp8 $recipe" 2e-2 --precision fp8 --recipe $recipe
done
curve "fp8 rowwise, emulated" 2e-2 --precision fp8 --recipe rowwise --emulate
curve "bf16 master weights and moments" 2e-2 --precision bf16 --master bf16 --moments bf16
curve "--recompute full" 5e-3 --precision bf16 --recompute full
curve "--grad-accumulation 2" 5e-3 --precision bf16 --grad-accumulation 2

train whole --device cuda --precision fp8
train parts --device cuda --precision fp8 --until-step 20 --save-every 10 && train parts2 --device cuda --out parts --precision fp8
result $? "a run stops and resumes"
same_step "the resumed run has equal weights and moments" parts/step-00000050 whole/step-00000050
train moved --device cpu --precision fp8 --until-step 25 && train moved2 --device cuda --out moved --precision fp8
result $? "a run of the CPU resumes on the GPU"
train stayed --device cpu --precision fp8
losses stayed.jsonl | tail -25 >tail.stayed && losses moved2.jsonl | tail -25 >tail.moved
paste -d' ' tail.moved tail.stayed | awk 'NF != 6 || $1 != $4 || ($2 - $5) ^ 2 > (0.02 * $5) ^ 2 { bad = 1 } END { exit bad || NR != 25 }'
result $? "its losses are within 2 % of those on the CPU"
says "the run record names the GPU" '"device":"NVIDIA' head -1 whole.jsonl
says "the step records state that FP8 is not emulated" '"emulated":false' sed -n 2p whole.jsonl
fp8-step m.h5 --data d.h5 --out emulated --steps 1 --seq-length 64 --device cuda --precision fp8 --emulate >emulated.jsonl
says "--emulate: the step records state that FP8 is emulated" '"emulated":true' sed -n 2p emulated.jsonl
fp8-eval whole/step-00000050 --data d.h5 --seq-length 64 --device cuda >gpu.eval && fp8-eval whole/step-00000050 --data d.h5 --seq-length 64 --device cpu >cpu.eval
result $? "an evaluation on CPU and GPU"
echo "$(field loss gpu.eval) $(field loss cpu.eval)" | awk 'NF != 2 || ($1 - $2) ^ 2 > (0.01 * $2) ^ 2 { bad = 1 } END { exit bad }'
result $? "the losses of the evaluations agree within 1 %"
if [ "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')" -ge 2 ] && command -v mpirun >/dev/null; then
  train one --device cuda --precision fp8
  mpirun -n 2 fp8-step m.h5 --data d.h5 --out two --steps 50 --seq-length 64 --batch-size 2 --warmup-steps 5 --lr 1e-3 --seed 7 -q --device cuda \
    --precision fp8 >two.jsonl
  result $? "two ranks train with a GPU each"
  near "the losses of two ranks are within 2e-2 of those of one rank" two.jsonl one.jsonl 2e-2
fi

fp8-init llama-124m -o big.h5 >out 2>err # 586 GiB of activations, with no single tensor too large
status "out of memory gives status 2" 2 fp8-step big.h5 --data d.h5 --out x --steps 1 --device cuda --batch-size 2000 --seq-length 1024
mv err told # says overwrites err
says "the message names the largest uses and the free memory of the GPU" 'out of memory: .*activations.* on the GPU, where .* are free\)$' cat told
done_testing
