#!/bin/sh
# fp8-eval on ranks that have stages of layers (--pp): the losses have the bits of the same evaluation without stages; data that a stage cannot
# read; and what is refused.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
fp8-init tiny --set num_hidden_layers=4 -o u.h5 -q >out 2>err
fp8-init tiny --set num_hidden_layers=4 --set tie_word_embeddings=true -o t.h5 -q >out 2>err
fp8-init qwen3-moe-tiny --set num_experts=7 --set num_hidden_layers=4 -o y.h5 -q >out 2>err
head -c 3000 text.txt >short.txt && fp8-tokenize short.txt -o d.h5 -f -q >out 2>err
result $? "models of four layers and short data are made"

# bits RANKS MODEL LOG FLAGS: the losses of an evaluation, without what differs between runs
bits() {
  evaluate "$1" "$2" all --data d.h5 --seq-length 16 --batch-size 7 --per-token $4
  evaluated=$?
  grep -E '"type":"(eval|sequence)"' all | sed 's/,"time":"[^"]*"}$/}/' >"$3"
  return $evaluated
}
# A model, and flags of both evaluations.
while read -r line; do
  chosen "$line" || continue
  model=${way%% *} way=${way#* } ranks=1
  case $way in *--[a-z-]*\ 2) ranks=2 ;; esac
  bits $ranks $model.h5 one "$way"
  is "$model $way: there are losses of sequences" "$? $([ "$(grep -c '"sequence"' one)" -gt 100 ] && echo many)" "0 many"
  for stages in "2 --pp 2" "3 --pp 3 --stages 1,2,1"; do
    bits $((ranks * ${stages%% *})) $model.h5 many "$way ${stages#* }"
    is "$model $way ${stages#* }: the losses have the bits of one stage" "$? $(cat many)" "0 $(cat one)"
  done
done <<END
u --precision fp32
u --precision bf16 --tp 2
long: u --precision fp8 --recipe tensorwise --tp 2
u --precision fp8 --recipe rowwise --dp-replicate 2
y --precision bf16 --ep 2
long: u --precision fp8 --recipe current
u --precision fp8 --recipe delayed --tp 2
long: u --precision fp8 --recipe rowwise
long: u --precision fp8 --recipe mxfp8
long: t --precision fp32 --tp 2
t --precision fp8 --recipe delayed
END

# --- data that is damaged after some batches ends the evaluation with the line of one rank, and no stage waits for another
for _ in 1 2 3 4 5 6; do cat text.txt; done | head -c 80000 >long.txt && fp8-tokenize long.txt -o long.h5 -f -q >out 2>err
printf '\001' | dd of=long.h5 bs=1 seek=72000 conv=notrunc 2>/dev/null
for stages in 1 3; do
  evaluate $stages u.h5 out --data long.h5 --seq-length 32 --batch-size 32 --pp $stages
  echo "$? $(grep '^fp8-eval' err)" >damaged.$stages
done
says "damaged data is named" '^2 fp8-eval: long.h5: /tokens: damaged: block 1' cat damaged.1
is "by three stages in the same way" "$(cat damaged.3)" "$(cat damaged.1)"

# not_evaluated NAME REGEX FLAGS: passes if the evaluation is refused with a line that matches
not_evaluated() {
  name=$1 pattern=$2
  shift 2
  fp8-eval u.h5 --data d.h5 "$@" >out 2>err </dev/null
  is "$name" "$? $(grep -Ec "^fp8-eval: $pattern" err) $(wc -l <err)" "2 1 1"
}
not_evaluated "more stages than layers" "--pp 5: .* has 4 layers, and each stage needs one; --pp 1 fits" --pp 5
not_evaluated "stages of another number of layers" "--stages 1,2: these are 3 layers, and .* has 4" --pp 2 --stages 1,2
not_evaluated "another number of stages" "--stages 4: these are 1 stage, and --pp is 2" --pp 2 --stages 4
not_evaluated "one rank for two stages" "--pp 2: does not make 1 rank" --pp 2
done_testing
