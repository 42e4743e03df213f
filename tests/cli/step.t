#!/bin/sh
# fp8-step on one rank: what it refuses, what it records, a standard output that fails.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
golden=$SRC/tests/golden/models
base="--out x --steps 2 --seq-length 16 --batch-size 2"
full="m.h5 --data d.h5 $base"

# --- what is needed, and inputs that are something else
refused "no model" 'MODEL: needed' --data d.h5 $base
refused "no data" '--data: needed' m.h5 $base
refused "no folder for the run" '--out: needed' m.h5 --data d.h5 --steps 2
refused "no steps" '--steps: needed \(or --epochs\)' m.h5 --data d.h5 --out x
cp -r "$golden/llama3/hf" hf && chmod -R u+w hf
head -c 100000 m.h5 >short.h5
: >empty.h5
cp m.h5 flipped.h5 && printf '\001' | dd of=flipped.h5 bs=1 seek=300000 conv=notrunc 2>/dev/null
ok "a run to mistake for a model" fp8-step m.h5 --data d.h5 --out run --steps 1 --seq-length 16 --batch-size 2
refused "a model that is not there" 'none.h5: No such file' none.h5 --data d.h5 $base
refused "a token file as model" 'd.h5: a token file, not a checkpoint' d.h5 --data d.h5 $base
refused "a run as model" 'run: the folder of a run, not a checkpoint; its newest is run/step-00000001' run --data d.h5 $base
refused "a Hugging Face folder as model" 'hf: a Hugging Face folder, not a checkpoint: .*fp8-convert' hf --data d.h5 $base
refused "a mixture of experts as model" '.*mixtral/hf: ' "$golden/mixtral/hf" --data d.h5 $base
refused "a text as model" 'text.txt: not a checkpoint' text.txt --data d.h5 $base
refused "safetensors as model" 'hf/model.safetensors: not a checkpoint' hf/model.safetensors --data d.h5 $base
refused "an empty file as model" 'empty.h5: not a checkpoint' empty.h5 --data d.h5 $base
refused "a model cut short" 'short.h5: truncated: 100000 bytes of' short.h5 --data d.h5 $base
refused "a model with one bit flipped" 'flipped.h5: /weights/.*: damaged' flipped.h5 --data d.h5 $base
refused "data that is not there" 'none.h5: No such file' m.h5 --data none.h5 $base
refused "a model as data" 'm.h5: not a token file' m.h5 --data m.h5 $base
refused "a text as data" 'text.txt: not a token file' m.h5 --data text.txt $base
refused "a folder as data" 'hf: not a regular file' m.h5 --data hf $base
refused "a GPU where there is none" '--device cuda: (no |this build has no )' m.h5 --data d.h5 $base --device cuda
refused "a device as data" '/dev/null: not a regular file' m.h5 --data /dev/null $base
head -c 5000 d.h5 >sd.h5
refused "data cut short" 'sd.h5: truncated: 5000 bytes of' m.h5 --data sd.h5 $base
{ cat d.h5 && echo more; } >ld.h5
refused "data with more behind it" 'ld.h5: damaged' m.h5 --data ld.h5 $base
fp8-tokenize text.txt --vocab-size 300 -o d300.h5 >out 2>err
refused "a vocabulary beyond the model's" "d300.h5: made with a vocabulary of 300, the model's has 256" m.h5 --data d300.h5 $base
refused "also of evaluation data" "d300.h5: made with a vocabulary of 300" $full --eval-data d300.h5 --eval-every 1
fp8-init tiny --set vocab_size=512 -o m512.h5 >out 2>err
ok "a smaller vocabulary than the model's is legal" fp8-step m512.h5 --data d300.h5 --out small --steps 1 --seq-length 16 --batch-size 2
refused "a sequence longer than the data" 'd.h5: 20000 tokens are too few for --seq-length 20000' $full --seq-length 20000
echo here >afile
refused "--out is a file" 'afile: exists and is not a folder' m.h5 --data d.h5 --steps 2 --out afile
refused "--out below a file" 'afile/x: ' m.h5 --data d.h5 --steps 2 --out afile/x
refused "--out where nothing can be made" '/proc/x: cannot make the folder' m.h5 --data d.h5 --steps 2 --out /proc/x --seq-length 16
refused "--out is a device" '/dev/null: exists and is not a folder' m.h5 --data d.h5 --steps 2 --out /dev/null
is "the file is as it was" "$(cat afile)" here

# --- numbers and words out of range
for words in "--seq-length 0" "--seq-length -3" "--seq-length 1.5" "--batch-size 0" "--grad-accumulation 0" "--steps 0" "--steps 1e3x" \
  "--lr -1" "--lr nan" "--lr 1e-3x" "--lr +-3" "--clip -1" "--eps 2" "--warmup-ratio 1.5" "--weight-decay -1" "--betas 0.9" "--betas 0.9,1" \
  "--zero 4" "--zero 0" "--recipe mxfp8" "--recipe delayed" "--precision int8" "--sampler random" "--schedule sine" "--master fp16" \
  "--moments fp8" "--recompute some" "--keep -1" "--save-every -1" "--log-every 0" "--seed -1" "--until-step 0" "--epochs 0" "--activations f16" \
  "--accumulate volta" "--profile 0" "--profile 3-2" "--profile 1-" "--profile some" "--profile 999"; do
  flag=${words%% *}
  refused "$words" "$flag: " $full $words
done

# --- flags that contradict
refused "f32 products with bf16 activations" '--activations: bf16 contradicts --precision fp32' $full --precision fp32 --activations bf16
refused "bf16 products with f32 activations" '--activations: f32 needs --precision fp32 or fp8' $full --activations f32
refused "sums of a tensor core without FP8" '--accumulate: hopper needs --precision fp8' $full --accumulate hopper
refused "steps and epochs" '--steps: contradicts --epochs' $full --epochs 1
refused "two warmups" '--warmup-steps: contradicts --warmup-ratio' $full --warmup-steps 1 --warmup-ratio 0.1
refused "a lowest rate above the highest" '--min-lr: above --lr' $full --min-lr 1
refused "evaluation of nothing" '--eval-every: needs --eval-data' $full --eval-every 1
refused "decay longer than the run" '--decay-steps: more than the steps after warmup' $full --schedule wsd --warmup-steps 1 --decay-steps 2
refused "decay of a schedule without" '--decay-steps: only with --schedule wsd' $full --decay-steps 1
refused "a filter of nothing" '--filter nothing: matches no tensor' $full --precision fp8 --filter nothing
refused "more tokens than can be numbered" '--batch-size: [0-9]+ sequences of 16 tokens' $full --batch-size 99999999999999
refused "a batch that does not fit" 'out of memory: .* on each rank: activations .*; use a smaller --batch-size' $full --seq-length 512 --batch-size 4194303
refused "a step that does not fit" 'out of memory: the tokens of a step' $full --grad-accumulation 10000000000000

# --- FP8 that cannot run is status 3
fp8-init tiny --set hidden_size=72 --set head_dim=18 -o odd.h5 >out 2>err
status "FP8 on a model whose width does not divide by 16" 3 fp8-step odd.h5 --data d.h5 $base --precision fp8
cp err said
says "is named" '^fp8-step: odd.h5: no linear of this model can run in FP8' cat said
status "FP8 with everything filtered away" 3 fp8-step $full --precision fp8 --filter '*'
is "is one line" "$(wc -l <err)" 1
ok "bf16 runs all the same" fp8-step odd.h5 --data d.h5 --out odd --steps 1 --seq-length 16 --batch-size 2
[ ! -e x ]
result $? "nothing was created by what failed"

# --- configuration files
fp8-step m.h5 $base --data d.h5 --precision fp8 --recipe rowwise --no-power-of-2-scales --filter '*down*' --lr 1e-3 --clip 0 --no-fp8-all-gather \
  --warmup-ratio 0.5 --print-config >run.json 2>err
result $? "--print-config"
[ ! -e x ]
result $? "creates nothing"
ok "reads back" fp8-step m.h5 --config run.json --print-config
is "to the same" "$(cat out)" "$(cat run.json)"
ok "flags win over the file" fp8-step m.h5 --config run.json --lr 0.25 --print-config
is "and only they" "$(grep -v '"lr"' out)" "$(grep -v '"lr"' run.json)"
is "with their value" "$(field lr out)" " 0.25"
fp8-step m.h5 --config run.json --out a >a.log 2>err && fp8-step m.h5 $base --data d.h5 --precision fp8 --recipe rowwise --no-power-of-2-scales \
  --filter '*down*' --lr 1e-3 --clip 0 --no-fp8-all-gather --warmup-ratio 0.5 --out b >b.log 2>err
same_bits "a run from the file is that of the flags" a.log b.log
fp8-step m.h5 --config run.json --power-of-2-scales --out c >c.log 2>err
[ "$(losses c.log)" != "$(losses a.log)" ]
result $? "and a switch in it makes a difference"
refused "a file that is not there" 'none.json: No such file' $full --config none.json
refused "a file that has no end" '/dev/zero: larger than 16777216 bytes$' $full --config /dev/zero
echo '{"lr": 1' >bad.json
refused "a file that is no JSON" 'bad.json: line 2' $full --config bad.json
echo '{"lrx": 1}' >bad.json
refused "an unknown name" 'bad.json: "lrx": unknown name' $full --config bad.json
echo '{"steps": "3"}' >bad.json
refused "a value of another kind" 'bad.json: "steps": expected an integer, found string' $full --config bad.json
echo '{"zero": "4"}' >bad.json
refused "a value out of range" "bad.json: \"zero\": '4' is not one of 1, 2, 3" $full --config bad.json
echo '{"precision": "fp32", "activations": "bf16"}' >bad.json
refused "a contradiction" '--activations: bf16 contradicts' $full --config bad.json

# --- dry runs
ok "-n" fp8-step $full -n --precision fp8
cp err said
is "writes nothing" "$(cat out)$(ls x 2>/dev/null)" ""
says "says which linears run in FP8" '^fp8-step: +fp8 +model.layers.\*.self_attn.q_proj.weight +64x64 +x2' cat said
says "and why one does not" 'bf16 +lm_head.weight +256x64 +x1 +LM head' cat said
says "and what memory it takes" 'total, each rank +[0-9.]+ [KM]iB' cat said
fp8-convert "$golden/llama-tied/hf" -o tied.h5 >out 2>err
says "a tied head is among the linears" 'lm_head.weight .*LM head, tied' fp8-step tied.h5 --data d.h5 $base -n --fp8-lm-head --precision fp8

# --- records
fp8-step m.h5 --data d.h5 --eval-data d.h5 --out rec --steps 4 --seq-length 16 --batch-size 2 --save-every 2 --eval-every 2 --eval-batches 3 \
  --precision fp8 >rec.log 2>err
result $? "a run with evaluations"
is "tells of everything in order" "$(story rec.log)" "run step1 step2 eval2 checkpoint2 step3 step4 eval4 checkpoint4 end4 "
cmp rec.log rec/log.jsonl
result $? "log.jsonl is what was on standard output"
is "every line is an object" "$(grep -vc '^{"type":"[a-z]*",.*}$' rec.log)" 0
number='-?[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?'
for f in loss grad_norm lr step_s data_wait_s tokens_per_s model_tflops saturated_share underflow_share fp8_flop_share fp8_flop_share_total; do
  is "$f is a number in every step" "$(grep '"type":"step"' rec.log | grep -Ec "\"$f\":${number}[,}]")" 4
done
for f in step tokens memory_peak_bytes fp8_gemms bf16_gemms; do
  is "$f is a whole number in every step" "$(grep '"type":"step"' rec.log | grep -Ec "\"$f\":[0-9]+[,}]")" 4
done
is "what ran is said" "$(grep -c '"precision":"fp8","recipe":"tensorwise","emulated":true,.*"skipped":false' rec.log)" 4
is "tokens are those seen" "$(grep '"type":"step"' rec.log | sed 's/.*"tokens":\([0-9]*\).*/\1/' | tr '\n' ' ')" "32 64 96 128 "
is "of all FLOPs, attention's included, a smaller share is in FP8" "$(python3 -c '
import json
r = [json.loads(line) for line in open("rec.log") if "fp8_flop_share" in line]
print({0 < s["fp8_flop_share_total"] < s["fp8_flop_share"] < 1 for s in r})')" "{True}"
is "42 GEMMs of FP8 a step" "$(field fp8_gemms rec.log | sort -u)" 42
says "the first record says versions, mesh, model and precisions" \
  '"type":"run","version":"[^"]+","config":\{.*"mesh":\{"world":1.*"model":\{.*"cpu_isa":"(avx2|avx512|avx512_bf16|neon)","memory_plan":.*"linears":\[\{"name":"model.layers.0.self_attn.q_proj.weight","precision":"fp8","reason":""\}' head -1 rec.log
says "and the configuration" '"config":\{"data":"d.h5".*"seq-length":16,"batch-size":2.*"precision":"fp8"' head -1 rec.log
says "an evaluation is a record" '"type":"eval","step":2,"tokens":96,"loss":[0-9.]+,"perplexity":[0-9.]+,"precision":"fp8"' cat rec.log
is "losses have all their digits" "$(losses rec.log | awk 'length($2) >= 15' | wc -l)" 4
ok "fp8-log reads it" fp8-log rec.log --json
ok "quiet" fp8-step $full --out quiet -q
is "says nothing on standard error" "$(cat err)" ""
fp8-step $full --out every --steps 5 --log-every 2 >every.log 2>err
is "--log-every: every second step and the last" "$(story every.log)" "run step2 step4 step5 checkpoint5 end5 "

# --- a standard output that fails
fp8-step $full --out full --steps 3 >/dev/full 2>err -q
is "a full standard output is status 2 and one line" "$? $(cat err)" "2 fp8-step: standard output: No space left on device"
says "the checkpoint is not lost" '"type":"checkpoint"' cat full/log.jsonl
ok "and is whole" sh -c 'fp8-info --verify full/step-0000000?'
mkfifo pipe
head -1 pipe >first &
fp8-step $full --out closed --steps 300 -q >pipe 2>err
is "a closed pipe ends quietly" "$?$(cat err)" 0
wait $!
is "the reader had its line" "$(wc -l <first)" 1
is "and what was trained is saved" "$(cd closed && echo step-* | wc -w)" 1
ok "and goes on" fp8-step $full --out closed --steps 300 -q
is "to the end" "$(tail -1 out | grep -c '"step":300')" 1

done_testing
