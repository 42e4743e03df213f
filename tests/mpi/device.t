#!/bin/sh
# Whole steps through the calls of cuBLASLt, NCCL and the CUDA runtime, with the stand-ins of tests/libraries: the losses are those of the CPU, and have
# the same bits in whatever order streams run. Skipped in builds without CUDA.
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

mixture

# steps PROGRAM NAME RANKS MODEL FLAGS: runs two steps; the records are in NAME
steps() {
  program=$1 name=$2 ranks=$3 model=$4
  shift 4
  rm -rf "run.$name"
  mpirun -n "$ranks" "$program" "$model.h5" --data d.h5 --seq-length 16 --steps 2 --lr 1e-3 -q --out "run.$name" "$@" >"$name" 2>err </dev/null
}

# --- every recipe on one rank, in every order of the operations of streams
while read -r way; do
  chosen "$way" || continue
  order=${way%% *} flags=${way#* }
  model=${flags%% *} flags=${flags#* }
  export FP8_DEVICE_ORDER="$order"
  steps fp8-step cpu 1 "$model" --batch-size 1 $flags && steps "$step" gpu 1 "$model" --batch-size 1 --device cuda $flags
  near "$model.h5, $flags: the losses are those of the CPU" gpu cpu 1e-3
done <<END
first m --precision bf16
first x --precision bf16
last m --precision fp8 --recipe tensorwise
long: last x --precision fp8 --recipe tensorwise
1 m --precision fp8 --recipe rowwise
2 m --precision fp8 --recipe rowwise_with_gw_hp
first m --precision fp8 --recipe blockwise
last m --precision fp8 --recipe mxfp8
3 m --precision fp8 --recipe delayed
last m --precision fp8 --recipe tensorwise --optimizer muon --update-rms-every 1
END

# --- a library that has no kernels with row scales, and one that refuses calls of those that it has
steps "$step" rows 1 m --batch-size 1 --device cuda --precision fp8 --recipe rowwise
is "with kernels for row scales nothing is noted" "$(cat err)" ""
noted="fp8-step: row scales are applied to the sums of some GEMMs: matrix multiply:"
for way in "FP8_CUBLASLT_REFUSES=rows:cuBLASLt 13.10.0 on compute capability 9.0 has no kernel for" "FP8_CUBLASLT_REFUSES=row_calls:cuBLASLt 13.10.0 refused"; do
  rm -f after
  export "${way%%:*}"
  steps "$step" after 1 m --batch-size 1 --device cuda --precision fp8 --recipe rowwise
  is "${way%%:*}: one line says that sums are scaled" "$(wc -l <err) $(grep -c "^$noted ${way#*:}" err)" "1 1"
  near "${way%%:*}: the losses are those with row scales in the library" after rows 1e-4
  unset FP8_CUBLASLT_REFUSES FP8_CUBLASLT_VERSION
done
FP8_CUBLASLT_REFUSES=blocks steps "$step" x 1 m --device cuda --precision fp8 --recipe blockwise
is "scales for blocks have no other way: status 2 and one line" "$? $(grep -c '^fp8-step: ' err) $(grep -c 'has no kernel for .* with scales for 1x128' err)" "2 1 1"
FP8_CUBLASLT_VERSION=120800 steps "$step" x 1 m --device cuda
is "a cuBLASLt that is too old: status 2 and one line" "$? $(grep '^fp8-step: ' err)" "2 fp8-step: cuBLASLt 12.8.0 is too old: cuBLAS of CUDA 12.9 or later is needed"
FP8_CUBLASLT_REFUSES=fp8_calls steps "$step" x 1 m --device cuda --precision fp8 --recipe tensorwise
is "a refused call with one scale has no other way: status 2 and one line" "$? $(grep -c '^fp8-step: ' err) $(grep -c 'cuBLASLt 13.10.0 refused ' err)" "2 1 1"
FP8_CUBLASLT_REFUSES=narrow "${step%/*}/libraries_test" --gtest_filter='*Fp8GemmGpu*' >out 2>err
is "tests of GEMMs pass with a library that refuses FP8 results with a number of columns that 16 does not divide" "$? $(grep -c '^\[  PASSED  \] 21 tests' out)" "0 1"
FP8_CUBLASLT_REFUSES=e5m2_blocks "${step%/*}/libraries_test" --gtest_filter='*Fp8GemmGpu*' >out 2>err
is "kernels that no manual promises are skipped with the reason of the library" \
  "$? $(grep -c '^\[  SKIPPED \] .*E5m2.* ms)$' out) $(grep -c 'none is promised: matrix multiply: cuBLASLt .* has no kernel for ' out)" "0 6 6"
FP8_CUBLASLT_REFUSES=blocks "${step%/*}/libraries_test" --gtest_filter='*Fp8GemmGpu*' >out 2>err
is "and those that one promises fail" "$? $(grep -c '^\[  FAILED  \] Fp8GemmGpu.IsExact/.* ms)$' out)" "1 3"

# --- chips of other generations: FP8 GEMMs, and whole steps with their row scales applied to sums, or with emulated FP8
while read -r capability flags; do
  export FP8_DEVICE_CAPABILITY="$capability"
  "${step%/*}/libraries_test" --gtest_filter='GemmGpu.Unsupported*:*Fp8GemmGpu*' >out 2>err
  is "tests of GEMMs pass on compute capability $capability" "$? $(grep -c '^\[  FAILED  \]' out)" "0 0"
  steps "$step" other 1 m --batch-size 1 --device cuda --precision fp8 --recipe rowwise $flags
  is "compute capability $capability: nothing is noted" "$(cat err)" ""
  near "compute capability $capability: the losses are those with row scales in the library" other rows 1e-4
done <<END
80 --emulate
89
100
END
unset FP8_DEVICE_CAPABILITY

# --- the GEMMs of all experts in one call, and in libraries that have no such call or refuse it
while read -r ways flags; do
  ways=$(echo "$ways" | tr , ' ')
  export FP8_CUBLASLT_TELL=1
  steps "$step" together 1 x --batch-size 1 --device cuda $flags
  is "$flags: GEMMs of experts run together, and nothing is noted" "$(grep -c '^fp8-step: ' err) $(grep -c ': [1-9][0-9]* grouped GEMMs' err)" "0 1"
  for way in $ways; do
    export "${way?}"
    steps "$step" apart 1 x --batch-size 1 --device cuda $flags
    is "$flags, $way: one line says that they do not" "$(grep -c '^fp8-step: ' err) $(grep -c '^fp8-step: some GEMMs of experts run one after the other: matrix multiply: ' err) $(
      grep -c ': 0 grouped GEMMs' err)" "1 1 1"
    same_bits "$flags, $way: the losses have the same bits" apart together
    unset FP8_CUBLASLT_REFUSES FP8_CUBLASLT_VERSION
  done
  unset FP8_CUBLASLT_TELL
done <<END
FP8_CUBLASLT_REFUSES=groups,FP8_CUBLASLT_VERSION=130100 --precision bf16
FP8_CUBLASLT_REFUSES=group_calls,FP8_CUBLASLT_VERSION=130400 --precision fp8 --recipe tensorwise
END
export FP8_CUBLASLT_TELL=1
for recipe in rowwise blockwise; do
  steps "$step" few 1 x --batch-size 1 --device cuda --precision fp8 --recipe $recipe
  notes=$(grep -c '^fp8-step: ' err) few=$(sed -n 's/.*with \([0-9]*\) kernels.*/\1/p' err)
  FP8_CUBLASLT_REFUSES=other_rows steps "$step" many 1 x --batch-size 1 --device cuda --precision fp8 --recipe $recipe
  is "$recipe: experts share kernels for rounded numbers of rows, and a library that refuses that is noted" \
    "$notes $((few < $(sed -n 's/.*with \([0-9]*\) kernels.*/\1/p' err))) $(
      grep -c '^fp8-step: each number of rows of experts has a kernel of its own: matrix multiply: ' err)" "0 1 1"
  same_bits "$recipe: the losses have the same bits" few many
done
unset FP8_CUBLASLT_TELL
FP8_CUBLASLT_TELL=1 "${step%/*}/libraries_test" --gtest_filter='GemmGpu.ProductsTogether*' >out 2>err
is "40 experts, some of one row, have grouped GEMMs in bf16 and FP8, for outputs and for gradients of weights" "$? $(sed -n 's/.*: \([0-9]*\) grouped.*/\1/p' err)" "0 4"

# --- several ranks: shards of all stages, even and uneven, replicas, experts, linears that ranks divide, and stages of layers
while read -r way; do
  chosen "$way" || continue
  ranks=${way%% *} flags=${way#* }
  model=${flags%% *} flags=${flags#* }
  steps fp8-step cpu "$ranks" "$model" --batch-size 1 $flags
  FP8_DEVICE_ORDER=first steps "$step" first "$ranks" "$model" --batch-size 1 --device cuda $flags
  FP8_DEVICE_ORDER=last steps "$step" last "$ranks" "$model" --batch-size 1 --device cuda $flags
  near "$ranks ranks, $model.h5, $flags: the losses are those of the CPU" first cpu 1e-3
  same_bits "$ranks ranks, $model.h5, $flags: in another order they have the same bits" last first
done <<END
long: 2 m --precision bf16 --zero 1
2 m --precision fp8 --recipe rowwise_with_gw_hp --zero 2 --reduce-dtype bf16
long: 3 m --precision fp8 --recipe mxfp8 --zero 3
2 m --precision fp8 --recipe blockwise --dp-replicate 2
long: 4 m --precision fp8 --recipe blockwise --zero 3 --dp-replicate 2
long: 2 m --precision fp8 --recipe rowwise --tp 2
2 m --precision fp8 --recipe current --tp 2
long: 4 m --precision fp8 --recipe current --tp 4
2 m --precision fp8 --recipe delayed --pp 2 --grad-accumulation 2
long: 2 x --precision fp8 --recipe delayed --ep 2
4 x --precision fp8 --recipe tensorwise --ep 2 --dp-replicate 2 --reduce-dtype bf16
2 m --precision bf16 --zero 3 --optimizer muon --update-rms-every 2
END
is "a slow rank is recorded on CPUs only" "$(grep -c '"slowest_rank":' cpu) $(grep -c '"slowest' first)" "2 0"
# --- GPUs with different memory: ranks that divide the vocabulary exchange sums of each block of logits, so they have blocks of the same size
fp8-init tiny --set vocab_size=32768 -o v.h5 -q >out 2>err
more="$step v.h5 --data d.h5 --seq-length 128 --batch-size 16 --device cuda --precision bf16 --tp 2 --steps 1 --out run.plan -n" \
  less="env FP8_DEVICE_MIB=1390 $step ${more#* }"
mpirun -n 1 $more : -n 1 $more >out 2>err && mpirun -n 1 $more : -n 1 $less >out 2>err.less
is "a plan has the logits that fit into the smaller memory" "$(grep -h 'logits block' err err.less | tr -s ' ')" "fp8-step: logits block 64 MiB
fp8-step: logits block 32 MiB"
# --- stages whose messages are late at random: none waits for ever, and the bits are those without delays
fp8-init tiny --set num_hidden_layers=4 -o l.h5 -q >out 2>err
FP8_DEVICE_TRACE=trace steps "$step" traced 2 l --batch-size 1 --device cuda --precision bf16 --zero 3 --steps 1
# Stream 1 computes, stream 2 gathers. Of eight gathers, the first is waited for at once, and six are of a layer while another one is computed.
is "gathers of weights are started before computation that does not wait for them" "$(awk '
  $1 == 2 && /all-gather/ { gathers++; begun = 1; before = 0; next }
  $0 == "1 wait for 2" && begun { begun = 0; at_once += before == 0; layers += before >= 8 }
  $1 == 1 && begun { before++ }
  END { print gathers, at_once + 0, layers }' trace.0)" "8 1 6"
flags="--batch-size 1 --grad-accumulation 3 --device cuda --precision fp8 --eval-data d.h5 --eval-every 2 --eval-batches 3"
for stages in 2 4; do
  [ $stages = 2 ] || long || continue
  [ $stages = 2 ] && model=m || model=l
  FP8_DEVICE_ORDER=first steps "$step" prompt $stages $model $flags --pp $stages
  FP8_DEVICE_ORDER=$stages FP8_NCCL_DELAY=$stages steps "$step" late $stages $model $flags --pp $stages
  same_bits "$stages stages: the bits of steps without delays" late prompt
  is "$stages stages: and of the evaluation" "$(evaluations late)" "$(evaluations prompt)"
done
FP8_NCCL_VERSION=22500 steps "$step" old 2 m --batch-size 1 --device cuda --precision bf16 --zero 1
steps fp8-step cpu 2 m --batch-size 1 --precision bf16 --zero 1
near "with a NCCL that does not order communicators" old cpu 1e-3
for n in 2 4; do
  [ $n = 2 ] || long || continue
  GTEST_FILTER='NcclGpu.Several*' ok "the collectives of $n ranks" mpirun -n $n "${step%/*}/libraries_test"
done
done_testing
