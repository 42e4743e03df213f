#!/bin/sh
# fp8-eval on one rank: records, values, and what it refuses.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
data="--data d.h5 --seq-length 32"

ok "a run to score" fp8-step m.h5 --data d.h5 --out run --steps 20 --seq-length 32 --batch-size 8 --lr 3e-3 --precision fp32 --eval-data d.h5 --eval-every 20
cp out run.log
fp8-eval run/step-00000020 $data --precision fp32 >whole 2>err
result $? "a checkpoint is scored"
is "one record, in silence" "$(wc -l <whole)$(cat err)" 1
says "with what was promised" '^\{"type":"eval","tokens":19968,"loss":[0-9.]+,"perplexity":[0-9.]+,"precision":"fp32","recipe":null,"emulated":false\}$' cat whole
loss=$(field loss whole)
is "perplexity is the exponential" "$(field perplexity whole | awk -v l="$loss" '{ d = $1 / exp(l) - 1; print (d < 1e-12 && d > -1e-12) }')" 1
is "equal to the run's own" "$(field loss run.log | tail -1 | awk -v l="$loss" '{ d = $1 / l - 1; print (d < 1e-6 && d > -1e-6) }')" 1
fp8-eval m.h5 $data --precision fp32 >fresh 2>err
is "training has lowered it" "$(field loss fresh | awk -v l="$loss" '{ print (l < $1 - 1) }')" 1
is "a fresh model knows nothing" "$(field loss fresh | awk '{ print ($1 > 5.4 && $1 < 5.7) }')" 1

# --- token by token
fp8-eval run/step-00000020 $data --precision fp32 --per-token >each 2>err
result $? "--per-token"
is "a record for every sequence, then the sum" "$(grep -c '^{"type":"sequence"' each) $(tail -1 each)" "624 $(cat whole)"
is "in their order" "$(field index each)" "$(seq 0 623)"
is "of as many numbers as tokens" "$(sed -n 's/.*"losses":\[\(.*\)\]}/\1/p' each | awk -F, '{ print NF }' | sort -u)" 32
is "whose mean is the loss" "$(sed -n 's/.*"losses":\[\(.*\)\]}/\1/p' each | tr ',' '\n' | awk -v l="$loss" '{ s += $1 } END { d = s / NR / l - 1; print (d < 1e-6 && d > -1e-6) }')" 1
for b in 1 7 1000; do
  fp8-eval run/step-00000020 $data --precision fp32 --per-token --batch-size $b >other 2>err
  is "the same in batches of $b" "$(paste -d' ' other each | sed 's/[^0-9.e+-]\{1,\}/ /g' | awk '{ n = NF / 2; for (i = 1; i <= n; i++) { d = $i - $(i + n); if (d > 1e-5 || d < -1e-5) bad = 1 } } END { print bad + 0 }')" 0
done
fp8-eval run/step-00000020 --data d.h5 --precision fp32 >long 2>err
is "by default sequences are the model's context" "$(field tokens long)" 19968
fp8-eval run/step-00000020 --data d.h5 --precision fp32 --seq-length 10000 --per-token >one 2>err
is "one long sequence, and what is left over goes" "$(wc -l <one) $(field tokens one)" "2 10000"

# --- precisions
for way in bf16 fp8 "fp8 --recipe rowwise" "fp8 --recipe rowwise_with_gw_hp" "fp8 --activations f32" "fp8 --fp8-lm-head" "fp8 --filter *down*"; do
  fp8-eval run/step-00000020 $data --precision $way >scored 2>err
  is "$way is near" "$? $(field loss scored | awk -v l="$loss" '{ d = $1 - l; print (d < 0.02 && d > -0.02 && d != 0) }')" "0 1"
done
for accumulate in hopper ada; do
  fp8-eval run/step-00000020 $data --precision fp8 --accumulate $accumulate >scored 2>err
  is "FP8 with the sums of $accumulate is near" "$? $(field loss scored | awk -v l="$loss" '{ d = $1 - l; print (d < 0.02 && d > -0.02 && d != 0) }')" "0 1"
  says "and said" "\"emulated\":true,\"accumulate\":\"$accumulate\"\}$" cat scored
  cp scored $accumulate.scored
done
[ "$(field loss hopper.scored)" != "$(field loss ada.scored)" ]
result $? "each in its own way"
says "FP8 is said" '"precision":"fp8","recipe":"tensorwise","emulated":true\}$' fp8-eval run/step-00000020 $data --precision fp8
fp8-init tiny --set hidden_size=72 --set head_dim=18 -o odd.h5 >out 2>err
status "FP8 on a model without a fit linear is status 3" 3 fp8-eval odd.h5 $data --precision fp8
is "and one line" "$(wc -l <err)" 1

# --- refusals
bad() { # NAME REGEX WORDS...
  name=$1 pattern=$2
  shift 2
  fp8-eval "$@" >out 2>err </dev/null
  got=$?
  [ $got = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -Eq -e "^fp8-eval: $pattern" err && [ ! -s out ]
  result $? "$name"
}
bad "no checkpoint" 'CHECKPOINT: needed' $data
bad "no data" '--data: needed' m.h5
bad "a checkpoint that is not there" 'none.h5: No such file' none.h5 $data
bad "data as checkpoint" 'd.h5: a token file, not a checkpoint' d.h5 $data
bad "a checkpoint as data" 'm.h5: not a token file' m.h5 --data m.h5
bad "a run" 'run: the folder of a run, not a checkpoint; its newest is run/step-00000020' run $data
bad "a Hugging Face folder" '.*llama3/hf: a Hugging Face folder' "$SRC/tests/golden/models/llama3/hf" $data
bad "a sequence longer than the data" 'd.h5: 20000 tokens are too few' m.h5 --data d.h5 --seq-length 20000
bad "batches of none" '--batch-size: 0 is below 1' m.h5 $data --batch-size 0
bad "more tokens than can be numbered" '--batch-size: ' m.h5 $data --batch-size 99999999999999
bad "f32 activations of bf16" '--activations: f32 needs' m.h5 $data --activations f32
bad "bf16 activations of fp32" '--activations: bf16 contradicts' m.h5 $data --precision fp32 --activations bf16
bad "sums of a tensor core without FP8" '--accumulate: hopper needs --precision fp8' m.h5 $data --accumulate hopper
bad "sums of an unknown chip" "--accumulate: 'volta' is not one of" m.h5 $data --accumulate volta
bad "an unknown recipe" "--recipe: 'mxfp8' is not one of" m.h5 $data --recipe mxfp8
fp8-tokenize text.txt --vocab-size 300 -o d300.h5 >out 2>err
bad "a vocabulary beyond the model's" "d300.h5: made with a vocabulary of 300, the model's has 256" m.h5 --data d300.h5
head -c 100000 m.h5 >short.h5
bad "a checkpoint cut short" 'short.h5: truncated' short.h5 $data
cp m.h5 flipped.h5 && printf '\001' | dd of=flipped.h5 bs=1 seek=300000 conv=notrunc 2>/dev/null
bad "a bit flipped" 'flipped.h5: /weights/.*: damaged' flipped.h5 $data
fp8-eval m.h5 $data >/dev/full 2>err
is "a full standard output" "$? $(cat err)" "2 fp8-eval: standard output: No space left on device"
mkfifo pipe
head -1 pipe >first &
fp8-eval m.h5 $data --per-token --batch-size 1 >pipe 2>err
is "a closed pipe ends quietly" "$?$(cat err)" 0
wait $!

done_testing
