#!/bin/sh
# fp8-eval on one rank: records, values, errors.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
text_size=4000
. "$SRC/tests/cli/train.sh"
data="--data d.h5 --seq-length 32"
# eval_ WORDS: the records without their times
eval_() { fp8-eval "$@" | sed 's/,"time":"[^"]*"}$/}/'; }

ok "a run to evaluate" fp8-step m.h5 --data d.h5 --out run --steps 20 --seq-length 32 --batch-size 8 --lr 3e-3 --precision fp32 --eval-data d.h5 \
  --eval-every 20
cp out run.log
eval_ run/step-00000020 $data --precision fp32 >whole 2>err
result $? "fp8-eval evaluates a checkpoint"
is "it prints one record and no message" "$(wc -l <whole)$(cat err)" 1
says "the record has all documented fields" \
  '^\{"type":"eval","tokens":3968,"loss":[0-9.]+,"perplexity":[0-9.]+,"precision":"fp32","recipe":null,"emulated":false,"attention":"cpu",'\
'"documents":"joined","checkpoint":"[^"]+"\}$' cat whole
loss=$(field loss whole)
is "the perplexity is exp(loss)" "$(field perplexity whole | awk -v l="$loss" '{ d = $1 / exp(l) - 1; print (d < 1e-12 && d > -1e-12) }')" 1
is "the loss is equal to the evaluation of the run" \
  "$(field loss run.log | tail -1 | awk -v l="$loss" '{ d = $1 / l - 1; print (d < 1e-6 && d > -1e-6) }')" 1
fp8-eval m.h5 $data --precision fp32 >fresh 2>err
is "the loss is lower than that of the initial model" "$(field loss fresh | awk -v l="$loss" '{ print (l < $1 - 1) }')" 1
is "the loss of an initial model is near ln 256" "$(field loss fresh | awk '{ print ($1 > 5.4 && $1 < 5.7) }')" 1

# --- losses per token
eval_ run/step-00000020 $data --precision fp32 --per-token >each 2>err
result $? "--per-token succeeds"
is "--per-token prints a record per sequence, then the total" "$(grep -c '^{"type":"sequence"' each) $(tail -1 each)" "124 $(cat whole)"
is "the sequences are in order" "$(field index each)" "$(seq 0 123)"
is "each record has one loss per token" "$(sed -n 's/.*"losses":\[\(.*\)\]}/\1/p' each | awk -F, '{ print NF }' | sort -u)" 32
is "the mean of the token losses is the loss" \
  "$(sed -n 's/.*"losses":\[\(.*\)\]}/\1/p' each | tr ',' '\n' |
  awk -v l="$loss" '{ s += $1 } END { d = s / NR / l - 1; print (d < 1e-6 && d > -1e-6) }')" 1
for b in 1 7 1000; do
  eval_ run/step-00000020 $data --precision fp32 --per-token --batch-size $b >other 2>err
  is "--batch-size $b gives the same losses" \
    "$(paste -d' ' other each | sed 's/[^0-9.e+-]\{1,\}/ /g' |
    awk '{ n = NF / 2; for (i = 1; i <= n; i++) { d = $i - $(i + n); if (d > 1e-5 || d < -1e-5) bad = 1 } } END { print bad + 0 }')" 0
done
fp8-eval run/step-00000020 --data d.h5 --precision fp32 >long 2>err
is "the default sequence length is the context of the model" "$(field tokens long)" 3968
fp8-eval run/step-00000020 --data d.h5 --precision fp32 --seq-length 2100 --per-token >one 2>err
is "a sequence of 2100 is evaluated; the rest of the data is dropped" "$(wc -l <one) $(field tokens one)" "2 2100"

# --- precisions
for way in bf16 fp8 "fp8 --recipe rowwise" "fp8 --recipe rowwise_with_gw_hp" "fp8 --recipe current" "fp8 --recipe delayed" "fp8 --recipe blockwise" \
  "fp8 --recipe mxfp8" "fp8 --activations f32" "fp8 --fp8-lm-head" "fp8 --filter *down*"; do
  fp8-eval run/step-00000020 $data --precision $way >scored 2>err
  is "$way: the loss is near that of fp32" "$? $(field loss scored | awk -v l="$loss" '{ d = $1 - l; print (d < 0.02 && d > -0.02 && d != 0) }')" \
    "0 1"
done
for accumulate in hopper ada; do
  fp8-eval run/step-00000020 $data --precision fp8 --accumulate $accumulate >scored 2>err
  is "FP8 with --accumulate $accumulate: the loss is near that of fp32" \
    "$? $(field loss scored | awk -v l="$loss" '{ d = $1 - l; print (d < 0.02 && d > -0.02 && d != 0) }')" "0 1"
  says "the record states --accumulate $accumulate" "\"emulated\":true,\"accumulate\":\"$accumulate\"," cat scored
  cp scored $accumulate.scored
done
[ "$(field loss hopper.scored)" != "$(field loss ada.scored)" ]
result $? "the losses of hopper and ada differ"
says "the record states precision, recipe and emulation" \
  '"precision":"fp8","recipe":"tensorwise","emulated":true,"attention":"cpu","fp8_gemms":[1-9][0-9]*,"fp8_flop_share":0\.[0-9]+,'\
'"fp8_flop_share_total":0\.[0-9]+,"documents":"joined","checkpoint":"run/step-00000020","time":"20[0-9TZ:.-]*"\}$' fp8-eval run/step-00000020 $data \
--precision fp8
status "FP8 in backward alone gives status 3" 3 fp8-eval run/step-00000020 $data --precision fp8 --fp8-gemms dgrad,wgrad
is "with the reason" "$(cat err)" "fp8-eval: --fp8-gemms: under recipe tensorwise no GEMM of a forward pass runs in FP8; use --precision bf16"
fp8-init tiny --set hidden_size=72 --set head_dim=18 -o odd.h5 >out 2>err
status "FP8 on a model without an eligible linear gives status 3" 3 fp8-eval odd.h5 $data --precision fp8
is "the error is one line" "$(wc -l <err)" 1

# --- several recipes
recipes="tensorwise rowwise delayed"
# A slow machine also prints progress to standard error.
table() { grep -v '^fp8-eval: [0-9]*/[0-9]* sequences'; }
for recipe in $recipes; do eval_ run/step-00000020 $data --precision fp8 --recipe $recipe -q; done >each 2>err
eval_ run/step-00000020 $data --precision fp8 --recipe "$(echo $recipes | tr ' ' ,)" 2>&1 >listed | table >err
is "a list of recipes gives the record of each" "$(cat listed)" "$(cat each)"
is "a table on standard error compares them with the first" "$(awk '{ print $1, NF }' err | tr '\n' ',')" "recipe 5,tensorwise 3,rowwise 4,delayed 4,"
is "its figures are those of the records" "$(awk 'NR > 1 { print $2 }' err | tr '\n' ' ')" "$(field loss each | awk '{ printf "%.6g ", $1 }')"
is "the differences too" "$(awk 'NR > 2 { print $3 }' err | tr '\n' ' ')" \
  "$(field loss each | awk 'NR == 1 { a = $1 } NR > 1 { printf "%s%.3g ", ($1 > a ? "+" : ""), $1 - a }')"
is "-q prints no table" "$(eval_ run/step-00000020 $data --precision fp8 --recipe tensorwise,rowwise -q 2>&1 >out)" ""
is "one recipe has none" "$(eval_ run/step-00000020 $data --precision fp8 --recipe rowwise 2>&1 >out | table)" ""
eval_ run/step-00000020 $data -q >plain 2>err
eval_ run/step-00000020 $data --precision fp8 --recipe bf16,all 2>&1 >all | table >err
is "bf16 in the list is that precision" "$(head -1 all)" "$(cat plain)"
is "all stands for every recipe" "$(field recipe all | tr -d '"' | tr '\n' ' ')" \
  "null tensorwise rowwise rowwise_with_gw_hp current delayed blockwise mxfp8 nvfp4 "
is "the table has the differences from bf16" "$(head -1 err | tr -s ' ') $(wc -l <err)" "recipe loss from bf16 perplexity 10"
is "on a terminal it follows the lines" \
  "$(on_terminal "fp8-eval run/step-00000020 $data --precision fp8 --recipe bf16,rowwise" | tr -d '\r' |
  grep -c -e 'evaluation  loss' -e '^recipe ' -e '^bf16 ' -e '^rowwise ')" 5
for flags in "--recipe tensorwise,rowwise --rowwise-single-copy" "--recipe rowwise,current --fuse-projections"; do
  ok "$flags: a flag of some of the recipes" fp8-eval run/step-00000020 $data --precision fp8 $flags
done
is "applies to those" "$(grep -c fuse_projections out) $(grep fuse_projections out | grep -c '"recipe":"current"')" "1 1"
is "a recipe that is given twice is computed once" "$(fp8-eval run/step-00000020 $data --precision fp8 --recipe rowwise,rowwise -q | wc -l)" 1
fp8-quantize run/step-00000020 --scaling row -o codes.h5 >out 2>err
says "codes have one recipe of all" '^fp8-eval: --recipe all: uses rowwise alone, to which the codes of codes.h5 belong' fp8-eval codes.h5 $data \
  --recipe all

# --- errors
bad() { # NAME REGEX WORDS...
  name=$1 pattern=$2
  shift 2
  fp8-eval "$@" >out 2>err </dev/null
  got=$?
  [ $got = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -Eq -e "^fp8-eval: $pattern" err && [ ! -s out ]
  result $? "$name"
}
bad "no checkpoint is refused" 'CHECKPOINT: needed' $data
bad "no data is refused" '--data: needed' m.h5
bad "a missing checkpoint is refused" 'none.h5: No such file' none.h5 $data
bad "a token file as checkpoint is refused" 'd.h5: a token file, not a checkpoint' d.h5 $data
bad "a checkpoint as data is refused" 'm.h5: a checkpoint, not a token file' m.h5 --data m.h5
bad "a Hugging Face folder is refused" '.*llama3/hf: a Hugging Face folder' "$SRC/tests/golden/models/llama3/hf" $data
says "a length beyond the context has a note" '--seq-length: 200 tokens are more than the model'"'"'s context of 128' fp8-eval m.h5 --data d.h5 \
  --seq-length 200
bad "a sequence longer than the data is refused" 'd.h5: 4000 tokens are too few' m.h5 --data d.h5 --seq-length 4000
bad "--batch-size 0 is refused" '--batch-size: 0 is below 1' m.h5 $data --batch-size 0
bad "a batch of too many tokens is refused" '--batch-size: ' m.h5 $data --batch-size 99999999999999
bad "--activations f32 with bf16 is refused" '--activations: f32 needs' m.h5 $data --activations f32
bad "--activations bf16 with fp32 is refused" '--activations: bf16 contradicts' m.h5 $data --precision fp32 --activations bf16
bad "--accumulate without FP8 is refused" '--accumulate: hopper needs --precision fp8' m.h5 $data --accumulate hopper
bad "--accumulate of an unknown chip is refused" "--accumulate: 'volta' is not one of" m.h5 $data --accumulate volta
bad "recipes without FP8 are refused" '--recipe: needs --precision fp8; it is bf16' m.h5 $data --recipe tensorwise,rowwise
bad "bf16 alone is no list" '--recipe: bf16: is to be compared' m.h5 $data --precision fp8 --recipe bf16
bad "a flag that no recipe of the list has" '--rowwise-single-copy: needs' m.h5 $data --precision fp8 --recipe tensorwise,current \
  --rowwise-single-copy
bad "an unknown recipe is refused" "--recipe: 'columnwise' is not one of" m.h5 $data --recipe columnwise
fp8-tokenize text.txt --vocab-size 300 -o d300.h5 >out 2>err
bad "a vocabulary larger than the model's is refused" "d300.h5: made with a vocabulary of 300, the model's has 256" m.h5 --data d300.h5
head -c 100000 m.h5 >short.h5
bad "a truncated checkpoint is refused" 'short.h5: truncated' short.h5 $data
cp m.h5 flipped.h5 && printf '\001' | dd of=flipped.h5 bs=1 seek=300000 conv=notrunc 2>/dev/null
bad "a checkpoint with a changed byte is refused" 'flipped.h5: /weights/.*: damaged' flipped.h5 $data
fp8-eval m.h5 $data >/dev/full 2>err
is "a full standard output gives status 2 and one line" "$? $(cat err)" "2 fp8-eval: standard output: No space left on device"
mkfifo pipe
head -1 pipe >first &
fp8-eval m.h5 $data --per-token --batch-size 1 >pipe 2>err
is "a closed pipe gives status 0 and no message" "$?$(cat err)" 0
wait $!

# --- mixtures of experts
for preset in mixtral-tiny qwen3-moe-tiny; do
  fp8-init $preset -o moe.h5 -f >out 2>err
  loss=$(fp8-eval moe.h5 $data --precision fp32 -q | field loss /dev/stdin)
  for b in 1 7 1000; do
    is "$preset: batches of $b give the loss" \
      "$(fp8-eval moe.h5 $data --batch-size $b --precision fp32 -q | field loss /dev/stdin |
      awk -v l="$loss" '{ d = $1 / l - 1; print (d < 1e-6 && d > -1e-6) }')" 1
  done
  is "$preset: so do two ranks" \
    "$(mpirun -n 2 fp8-eval moe.h5 $data --batch-size 7 --precision fp32 -q | field loss /dev/stdin |
    awk -v l="$loss" '{ d = $1 / l - 1; print (d < 1e-6 && d > -1e-6) }')" 1
  eval_ moe.h5 $data --recipe all --precision fp8 -q >every
  is "$preset: every recipe runs in FP8 or FP4, with a loss of its own that is near" \
    "$? $(wc -l <every) $(field loss every | awk -v l="$loss" '{ d = $1 - l; print (d != 0 && d < 0.01 && d > -0.01) }' |
    sort -u) $(grep -oE '"fp[48]_flop_share":[0-9.]*' every | awk -F: '$2 > 0.8' | wc -l)" "0 8 1 8"
  # Documents as sequences of their own, whose padding goes to no expert: as if each were alone.
  printf '{"text":"First Citizen: speak."}\n{"text":"All"}\n{"text":"We are accounted poor citizens"}\n' >texts.jsonl
  fp8-tokenize texts.jsonl -o documents.h5 -f >out 2>err
  fp8-eval moe.h5 --data documents.h5 --documents separate --seq-length 32 --batch-size 3 --precision fp8 --recipe delayed -q --per-token >together
  is "$preset: padding changes no loss" \
    "$(fp8-eval moe.h5 --data documents.h5 --documents separate --seq-length 32 --batch-size 3 --precision fp32 -q | field loss /dev/stdin |
    cut -c1-7) $(grep -c sequence together)" \
      "$(fp8-eval moe.h5 --data documents.h5 --documents separate --seq-length 32 --batch-size 1 --precision fp32 -q | field loss /dev/stdin |
      cut -c1-7) 3"
done

done_testing
