#!/bin/sh
# Recipe nvfp4: what the options change, what does not depend on threads and micro-batches, records, refusals.
# shellcheck disable=SC2086 # lists of words on purpose
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
# shellcheck source=tests/cli/train.sh
. "$SRC/tests/cli/train.sh"
flags="--data d.h5 --seq-length 16 --steps 2 --lr 1e-3 --precision fp8"
four="--recipe nvfp4"
train() { # NAME FLAGS...
  name=$1
  shift
  fp8-step m.h5 $flags --out "$name.run" "$@" >"$name" 2>"$name.err"
}

# --- options
train all $four --batch-size 8
result $? "a model trains"
for option in stochastic-gradients hadamard; do
  train "no-$option" $four --batch-size 8 --no-$option
  is "--no-$option leaves the loss of the first step" "$(losses "no-$option" | awk '{ print $2; exit }')" "$(losses all | awk '{ print $2; exit }')"
  [ "$(norm "no-$option")" != "$(norm all)" ]
  result $? "--no-$option changes its gradient"
  fp8-step m.h5 $flags --out "no-$option.run" $four --batch-size 8 --steps 3 --change steps >again 2>err
  ok "--$option on resuming is a phase" grep -q '"changed":\[.*"name":"'$option'"' again
done
train seed $four --batch-size 8 --seed 1 --sampler sequential
train other $four --batch-size 8 --seed 2 --sampler sequential
[ "$(losses seed | awk '{ print $2; exit }')" = "$(losses other | awk '{ print $2; exit }')" ] && [ "$(norm seed)" != "$(norm other)" ]
result $? "another seed rounds gradients otherwise"
OMP_NUM_THREADS=1 train threads-1 $four --batch-size 8
OMP_NUM_THREADS=3 train threads-3 $four --batch-size 8
near "the codes do not depend on threads" threads-3 threads-1 1e-4

# --- records
is "all planned GEMMs are FP4, and none FP8" "$(field fp4_gemms all | tail -1) $(field fp8_gemms all | tail -1)" "42 0"
is "the shares say so" "$(field fp8_flop_share all | tail -1) $(field fp4_flop_share all | tail -1 | cut -c 1-3)" "0.0 0.8"
is "linears are fp4 in the record, and emulated" "$(head -1 all | grep -o '"precision":"fp4"' | wc -l) $(field emulated all | sort -u)" "14 true"
ok "and in the table" grep -Eq ': *fp4 *model.layers.\*.mlp.down_proj' all.err
train mixed --recipe tensorwise --recipe '*.down_proj=nvfp4' --batch-size 8
is "with a glob some are FP4" "$(field fp4_gemms mixed | tail -1) $(field fp8_gemms mixed | tail -1)" "6 36"
train some $four --fp8-gemms forward --batch-size 8
is "and with --fp8-gemms" "$(field fp4_gemms some | tail -1) $(field bf16_gemms some | tail -1)" "14 19"
train eight --recipe tensorwise --batch-size 8
is "runs without FP4 have no field of it" "$(field fp4_gemms eight)" ""
fp8-eval m.h5 --data d.h5 --seq-length 16 --precision fp8 $four >eval-out 2>err
is "fp8-eval has them too" "$(field fp4_flop_share eval-out | cut -c 1-3) $(field fp8_flop_share eval-out)" "0.8 0.0"

# --- refusals
refused "a format of FP8" "--fp8-format: no operand is FP8 under --recipe nvfp4" m.h5 $flags --out x $four --fp8-format e4m3
refused "powers of two" "--power-of-2-scales: scales of blocks are E4M3 under --recipe nvfp4" m.h5 $flags --out x $four --power-of-2-scales
refused "FP8 all-gather" "--fp8-all-gather: weights are gathered in the format of activations under --recipe nvfp4" m.h5 $flags --out x $four \
  --fp8-all-gather
for sums in hopper ada; do
  refused "sums of a tensor core, $sums" "--accumulate: $sums: this chip has no GEMM of --recipe nvfp4" m.h5 $flags --out x $four --accumulate $sums
done
refused "a GPU" "--recipe nvfp4: is computed on the CPU only; add --device cpu" m.h5 $flags --out x $four --device cuda -n
refused "fused projections" "--fuse-projections: needs" m.h5 $flags --out x $four --fuse-projections
train off $four --batch-size 8 --no-fp8-all-gather --no-power-of-2-scales
same_bits "what is off already may be turned off" off all
fp8-step m.h5 $flags $four --no-hadamard --out printed.run --print-config >printed.json 2>err
fp8-step m.h5 --config printed.json --batch-size 8 >printed 2>err
same_bits "a printed configuration reads back" printed no-hadamard
train plain --recipe rowwise --no-hadamard
ok "an option without effect is noted" grep -q '^fp8-step: --no-hadamard: no effect under --recipe rowwise\|--hadamard: no effect under --recipe rowwise' plain.err
done_testing
