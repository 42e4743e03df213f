#!/bin/sh
# Samples of sharded models: every rank gathers the weights, the first one chooses. Equal to fp8-generate, after a restart
# too, and without effect on the run.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
base="--data d.h5 --seq-length 32 --batch-size 2 --lr 3e-3 --steps 6 --save-every 3 -q"
sampled="--sample-every 2 --sample-prompt the --sample-tokens 12"
ids() { sed -n 's/^{"type":"sample",.*"ids":\(\[[0-9,]*\]\).*/\1/p' "$1"; }
train() { mpirun -n 2 fp8-step m.h5 $base --out "$@" 2>>err </dev/null; }
# both: runs with the flags $way, without samples and with them; the status is that of the second
both() {
  rm -rf run with
  train run $way >log
  train with $way $sampled >with.log
}
# unchanged: the runs of both differ in nothing but the samples
unchanged() {
  same_bits "$way: the same losses" with.log log
  same_step "$way: the same weights and moments" with/step-00000006 run/step-00000006
}

for way in "--precision fp32" "long: --precision fp32 --zero 1" \
  "long: --precision fp32 --no-reshard-after-forward" "--precision fp32 --lora-rank 4"; do
  chosen "$way" || continue
  both
  is "$way: a run with samples" "$? $(story with.log)" \
    "0 run step1 step2 sample2 step3 checkpoint3 step4 sample4 step5 step6 sample6 checkpoint6 end6 "
  unchanged
  is "$way: the text of the checkpoint" "$(ids with.log | tail -n 1)" \
    "$(fp8-generate with the --greedy --max-tokens 12 --precision fp32 --json | tail -n 1 | sed 's/.*"ids"://; s/}$//')"
done
for way in "--precision fp8 --recipe delayed --amax-algo most_recent" "long: --precision fp8" "--precision bf16 --lora-rank 4 --lora-dropout 0.2"; do
  chosen "$way" || continue
  both
  is "$way: samples" "$? $(ids with.log | wc -l)" "0 3"
  unchanged
  rm -r with/step-00000006
  train with $way $sampled >again.log
  is "$way: resumed samples are the same" "$? $(ids again.log)" "0 $(ids with.log | tail -n 2)"
  same_step "$way: the same weights and moments after a restart" with/step-00000006 run/step-00000006
done
done_testing
