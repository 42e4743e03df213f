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

# --- a library that has no kernels with row scales, one that refuses calls of those that it has, and one that is older than they are
steps "$step" rows --batch-size 2 --device cuda --precision fp8 --recipe rowwise
is "with kernels for row scales nothing is noted" "$(cat err)" ""
noted="fp8-step: row scales are applied to the sums of some GEMMs: matrix multiply:"
for way in "FP8_CUBLASLT_REFUSES=rows:cuBLASLt 13.1.0 on compute capability 9.0 has no kernel for" "FP8_CUBLASLT_REFUSES=row_calls:cuBLASLt 13.1.0 refused" \
  "FP8_CUBLASLT_VERSION=120800:.* needs cuBLASLt 12.9 or later, and this is cuBLASLt 12.8.0$"; do
  rm -f after
  export "${way%%:*}"
  steps "$step" after --batch-size 2 --device cuda --precision fp8 --recipe rowwise
  is "${way%%:*}: one line says that sums are scaled" "$(wc -l <err) $(grep -c "^$noted ${way#*:}" err)" "1 1"
  near "${way%%:*}: the losses are those with row scales in the library" after rows 1e-4
  unset FP8_CUBLASLT_REFUSES FP8_CUBLASLT_VERSION
done
FP8_CUBLASLT_VERSION=120800 steps "$step" x --device cuda --precision fp8 --recipe blockwise
is "scales for blocks have no other way: status 2 and one line" "$? $(wc -l <err) $(grep -c 'with scales for 1x128 .* needs cuBLASLt 12.9 or later' err)" "2 1 1"
FP8_CUBLASLT_REFUSES=narrow "${step%/*}/libraries_test" --gtest_filter='GemmGpu.Fp8WithEveryPairOfScalesIsExact' >out 2>err
is "tests of GEMMs pass with a library that refuses FP8 results with a number of columns that 16 does not divide" "$? $(grep -c '^\[  PASSED  \] 1 test' out)" "0 1"
done_testing
