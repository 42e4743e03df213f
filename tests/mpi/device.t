#!/bin/sh
# Whole steps through the calls of cuBLASLt and the CUDA runtime, with the stand-ins of tests/libraries: the losses are those of the CPU. Skipped in
# builds without CUDA.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
step=$(dirname "$BIN")/test/device-step
if [ ! -x "$step" ]; then
  result 0 "stand-ins for libraries # SKIP a build without CUDA"
  done_testing
  exit 0
fi
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1

# steps PROGRAM NAME FLAGS: runs two steps; the records are in NAME
steps() {
  program=$1 name=$2
  shift 2
  rm -rf "run.$name"
  "$program" m.h5 --data d.h5 --seq-length 16 --steps 2 --lr 1e-3 -q --out "run.$name" "$@" >"$name" 2>err </dev/null
}

# --- every recipe on one rank, in every order of the operations of streams
for way in "first:--precision bf16" "last:--precision fp8 --recipe tensorwise" "1:--precision fp8 --recipe rowwise" \
  "2:--precision fp8 --recipe rowwise_with_gw_hp" "first:--precision fp8 --recipe blockwise" "last:--precision fp8 --recipe mxfp8" \
  "3:--precision fp8 --recipe delayed"; do
  flags=${way#*:}
  export FP8_DEVICE_ORDER=${way%%:*}
  steps fp8-step cpu --batch-size 2 $flags && steps "$step" gpu --batch-size 2 --device cuda $flags
  near "$flags: the losses are those of the CPU" gpu cpu 1e-3
done

# --- a library that has no kernels with row scales
steps "$step" rows --batch-size 2 --device cuda --precision fp8 --recipe rowwise
FP8_CUBLASLT_REFUSES=rows steps "$step" after --batch-size 2 --device cuda --precision fp8 --recipe rowwise
near "without kernels for row scales, sums are scaled" after rows 1e-4
done_testing
