#!/bin/sh
# fp8-step on one rank: checkpoints, stopping, resuming, damaged checkpoints, values that are not finite.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
few="--seq-length 16 --batch-size 2 -q"
steps() { (cd "$1" && echo step-*); }

# --- checkpoints
ok "a run of three steps" fp8-step m.h5 --data d.h5 $few --out last --steps 3
is "the last step is saved by default" "$(ls last)" "$(printf 'log.jsonl\nstep-00000003')"
is "a checkpoint is one file and a manifest" "$(ls last/step-00000003)" "$(printf 'manifest.json\nrank-00000-of-00001.h5')"
ok "--save-every succeeds" fp8-step m.h5 --data d.h5 $few --out every --steps 5 --save-every 2
is "--save-every saves every second step and the last" "$(steps every)" "step-00000002 step-00000004 step-00000005"
ok "--keep succeeds" fp8-step m.h5 --data d.h5 $few --out keep --steps 5 --save-every 1 --keep 2
is "--keep keeps the newest checkpoints" "$(steps keep)" "step-00000004 step-00000005"
ok "the kept checkpoints verify" sh -c 'fp8-info --verify keep/step-00000004 && fp8-info --verify keep/step-00000005'
cp keep/log.jsonl before
ok "a completed run gives status 0" fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 2 --out keep --steps 5 --save-every 1 --keep 2
is "a completed run prints one line" "$(cat err)" "fp8-step: keep: already at step 5 of 5, nothing to do"
is "a completed run prints no record" "$(cat out)" ""
cmp before keep/log.jsonl
result $? "a completed run does not change the log"
ok "a run can start from a checkpoint of another run" fp8-step keep/step-00000005 --data d.h5 $few --out fresh --steps 1
is "the new run starts at step 1" "$(story fresh/log.jsonl)" "run step1 checkpoint1 end1 "

# --- a resumed run is equal to an uninterrupted run, bit for bit
same_command() { fp8-step ../m.h5 --data ../d.h5 --seq-length 16 --batch-size 4 --steps 4 --save-every 2 --lr 1e-2 --out run "$@"; }
n=0
for way in "--precision fp32" "--precision bf16" "--precision fp8" "--precision fp8 --recipe rowwise" "--precision fp8 --recipe rowwise_with_gw_hp" \
  "--precision fp8 --accumulate hopper" "--precision fp8 --recipe rowwise_with_gw_hp --accumulate ada --activations f32" \
  "--precision bf16 --master bf16" "--precision fp8 --master bf16 --moments bf16" "--precision fp8 --grad-accumulation 2 --recompute full" \
  "--precision fp8 --recipe current" "--precision fp8 --recipe delayed --amax-history 3 --grad-accumulation 2 --recompute full --paranoid 2" \
  "--precision fp8 --recipe delayed --fp8-format e4m3 --amax-algo most_recent --margin 1 --no-fp8-all-gather" \
  "--precision fp8 --recipe rowwise --rowwise-single-copy" "--precision fp8 --recipe delayed --fp8-gemms dgrad,wgrad --fp8-gemms *.o_proj=forward" \
  "--precision fp8 --recipe blockwise" "--precision fp8 --recipe mxfp8" "--precision fp8 --recipe nvfp4 --grad-accumulation 2" \
  "--sampler sequential --schedule wsd --decay-steps 2 --warmup-steps 1" "--precision fp8 --fuse-projections" \
  "--optimizer muon --precision fp8 --recipe delayed --master bf16 --moments bf16" "--optimizer muon --muon-scale original --async-save"; do
  n=$((n + 1))
  mkdir a$n b$n
  (cd a$n && same_command $way >log 2>err)
  cp -r a$n/run b$n/run && rm -r b$n/run/step-00000004 b$n/run/log.jsonl # the state after a kill after step 2
  (cd b$n && same_command $way >log 2>err)
  is "$way: the run resumes at step 3" "$(story b$n/log)" "run step3 step4 checkpoint4 end4 "
  is "$way: the losses are equal" "$(losses b$n/log)" "$(losses a$n/log | tail -2)"
  cmp a$n/run/step-00000004/rank-00000-of-00001.h5 b$n/run/step-00000004/rank-00000-of-00001.h5 &&
    cmp a$n/run/step-00000004/manifest.json b$n/run/step-00000004/manifest.json
  result $? "$way: the checkpoint files are equal"
done
# The first steps have no targets: until one has, recipe delayed has no scales.
printf '{"messages":[{"role":"user","content":"%064d"},{"role":"assistant","content":"An answer that fills the next steps of the run with '\
'targets."}]}' 0 >late.jsonl
fp8-tokenize late.jsonl --tokenizer "$SRC/examples/3-fine-tune/tokenizer" --template chatml -o late.h5 -q >out 2>err
late() { fp8-step m.h5 --data late.h5 --any-tokenizer --seq-length 16 --batch-size 1 --sampler sequential --steps 8 --lr 1e-2 --precision fp8 \
  --recipe delayed -q "$@" 2>err; }
late --out straight >straight.log && late --out halted --until-step 2 >halted.log && fp8-info halted@2 >scales && late --out halted >>halted.log
is "steps without targets come first, and a run that stops there calibrates at the same step" \
  "$(field masked - <halted.log | head -n 3 | tr '\n' ' ')$(grep '"calibrated"' straight.log | field step -)" \
  "true true true $(grep '"calibrated"' halted.log | field step -)"
is "a checkpoint from before it has histories and no scales" "$(grep -c amax_history scales) $(grep -c '/scale' scales)" "42 0"
same_step "and the run ends with the weights of one that was not stopped" halted/step-00000008 straight/step-00000008
[ "$(losses a3/log)" != "$(losses a6/log)" ] && [ "$(losses a3/log)" != "$(losses a4/log)" ] && [ "$(losses a2/log)" != "$(losses a3/log)" ]
result $? "the losses of bf16, tensorwise, rowwise and hopper differ"
is "the run begins with a calibration, the resumed run does not" "$(grep -c '"calibrated":true' a12/log b12/log | tr '\n' ' ')" "a12/log:1 b12/log:0 "
says "the run record states --accumulate hopper, which is proven" '"emulated":true,"accumulate":"hopper","accumulate_proven":true,' head -1 a6/log
says "the run record states --accumulate ada, which is not proven" '"emulated":true,"accumulate":"ada","accumulate_proven":false,' head -1 a7/log
says "the run record states f32 sums" '"emulated":true,"accumulate":"f32","accumulate_proven":null,' head -1 a3/log
says "the run record of bf16 has no sums" '"emulated":false,"accumulate":null,"accumulate_proven":null,' head -1 a2/log
ok "--until-step succeeds" fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 4 --steps 4 --lr 1e-2 --precision fp8 --out until --until-step 3
is "--until-step is the reason of the end" "$(story until/log.jsonl)$(tail -1 until/log.jsonl | grep -c until-step)" \
  "run step1 step2 step3 checkpoint3 end3 1"
printf '{"type":"step","st' >>until/log.jsonl # an incomplete line of a killed process
ok "without --until-step the run resumes" fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 4 --steps 4 --lr 1e-2 --precision fp8 --out until
is "an incomplete line of the log stays on its own line" "$(grep -c '^{"type":"step","st$' until/log.jsonl)" 1
is "fp8-log counts no restart after a planned end and ignores the incomplete line" \
  "$(fp8-log until --json | sed 's/,"settings".*//' | grep -o '"steps":[0-9]*,\|"restarts":[0-9]*' | tr -d '\n')" '"steps":4,"restarts":0'
same_step "the weights and moments are those of an uninterrupted run" until/step-00000004 a3/run/step-00000004
ok "an --until-step before the last checkpoint gives status 0" fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 4 --steps 4 --lr 1e-2 \
  --precision fp8 --out until --until-step 2

# --- flags that may change on resuming, and flags that may not
go_on() { fp8-step m.h5 --data d.h5 --out until --seq-length 16 --batch-size 4 --lr 1e-2 --precision fp8 "$@"; }
for words in "--lr 1e-3" "--seed 3" "--seq-length 32" "--sampler sequential" "--schedule linear" "--warmup-steps 1" "--weight-decay 0" \
  "--schedule-steps 3" "--decay all" \
  "--betas 0.9,0.9" "--clip 2" "--moments bf16"; do
  says "another ${words%% *} is refused" "^fp8-step: until: this run was started with another ${words%% *} \\(.*; use another --out" go_on \
    --steps 8 $words
done
says "another warmup is refused by the flag of this command" 'with another --warmup-ratio \(0.0, now 0.5\);' go_on --steps 8 --warmup-ratio 0.5
says "another batch is refused" 'another global batch \(ranks x --batch-size x --grad-accumulation\) \(4, now 2\)' go_on --steps 8 --batch-size 2
head -c 9000 text.txt >other.txt && fp8-tokenize other.txt -o d2.h5 >out 2>err && fp8-init tiny --seed 7 -o m2.h5 >out 2>err
says "other data is refused" '^fp8-step: until: this run was started with another --data;' go_on --steps 8 --data d2.h5
says "another model is refused" '^fp8-step: until: this run was started with another MODEL;' fp8-step m2.h5 --data d.h5 --out until --seq-length 16 \
  --batch-size 4 --lr 1e-2 --steps 8
status "another --lr gives status 2" 2 go_on --steps 8 --lr 1e-3
is "the refused commands write no checkpoint" "$(steps until)" "step-00000003 step-00000004"
cp m.h5 moved.h5
at=4
for words in "--steps 5" "--precision bf16" "--precision fp32" "--recipe rowwise" "--accumulate hopper" "--zero 1" \
  "--batch-size 2 --grad-accumulation 2" "--batch-size 1 --grad-accumulation 4" \
  "--recompute full" "--filter *down*" "--log-every 2 --save-every 1" "--eval-data d2.h5 --eval-every 1" "--no-fp8-all-gather" \
  "--recipe delayed --amax-history 4" "--recipe delayed --amax-history 4 --margin 2" "--recipe delayed --fp8-gemms dgrad,wgrad"; do
  at=$((at + 1))
  go_on --steps $at $words >out 2>err
  result $? "the run resumes with $words"
  is "with $words: only step $at runs" "$(losses out | cut -d' ' -f1)" $at
  cp out out$at
done
is "recipe delayed begins with a calibration, and again with another margin or length of history" \
  "$(grep -c '"calibrated":true' out$((at - 3)) out$((at - 2)) out$((at - 1)) out$at | cut -d: -f2 | tr '\n' ' ')" "0 1 1 1 "
is "a changed setting of FP8 is in the run record" "$(head -1 out$((at - 1)) | grep -o '"changed":.*"margin","old":0,"new":2}' | wc -l)" 1
says "the run record has the GEMMs that are FP8" '"precision":"fp8","reason":"","fp8_gemms":"dgrad,wgrad"' head -1 out$at
status "GEMMs with a wrong name give status 2" 2 go_on --steps 99 --fp8-gemms dx
says "GEMMs with a wrong name get one line" '^fp8-step: --fp8-gemms: dx: needs forward, dgrad and wgrad, or some of them, after an optional GLOB=' \
  go_on --steps 99 --fp8-gemms dx
says "a glob without a linear gets one line" '^fp8-step: fp8-gemms x\*=dgrad: matches no linear of the model' go_on --steps 99 --fp8-gemms 'x*=dgrad'
ok "the run resumes with a copy of the model" fp8-step moved.h5 --data d.h5 --out until --seq-length 16 --batch-size 4 --lr 1e-2 --steps $((at + 1))

# --- settings that change by name: the same bits as without a stop, once, and shown
go3() { fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 4 --lr 1e-2 --steps 9 -q "$@"; }
ok "a run of three steps is made" go3 --out part --until-step 3
cp -r part whole && cp -r part wrong
new="--lr 1e-3 --batch-size 6 --clip 1.0 --seq-length 16"
ok "--change changes settings of a run" go3 --out whole --change lr,batch $new
is "the run record lists the changes" "$(head -1 out | grep -o '"changed":\[[^]]*\]')" \
  '"changed":[{"name":"batch","old":4,"new":6},{"name":"lr","old":0.01,"new":0.001}]'
go3 --out part --change lr,batch $new --until-step 6 >log6 2>err && go3 --out part --change lr,batch $new >log9 2>err
result $? "the changed run stops and resumes"
is "the second start changes nothing" "$(head -1 log9 | grep -c changed)" 0
is "the command of the change is in the provenance" "$(fp8-info part/step-00000009 --json | grep -o 'fp8-step[^"]*--change' | wc -l)" 1
ok "the resumed run has the bits of the one that was not stopped" fp8-info whole/step-00000009 --diff part/step-00000009
says "fp8-log shows the changes" '^changed +from step 4: batch 4 to 6, lr 0.01 to 0.001$' fp8-log part
says "a plot marks the changes" 'lr 0.01 to 0.001' sh -c 'fp8-log --plot loss part -o changed.svg && cat changed.svg'
ok "other data begins at its first sample" go3 --out wrong --change data,lr --data d2.h5 --lr 1e-3
says "the checkpoint has the position" '"base":\{"step":3,"tokens":192,"sample":0\}' strings -n 8 wrong/step-00000009/rank-00000-of-00001.h5
# moments: how many first and second moments a checkpoint has
moments() { fp8-info "$1" | sed -n 's/^optimizer\/[mv]: \([0-9]*\) .*/\1/p' | tr '\n' ' '; }
go3 --out other --until-step 3 >log3 2>err && cp -r other same && go3 --out same --until-step 4 >log4 2>err
says "another optimizer is refused unless it is named" 'optimizer \("adamw", now "muon"\); .* --change optimizer to go on' \
  go3 --out other --optimizer muon
is "a run under AdamW has two moments of each parameter" "$(moments other@3)" "21 21 "
ok "--change optimizer goes on with Muon" go3 --out other --optimizer muon --change optimizer
is "the loss before its first update is that of AdamW" "$(losses out | head -n 1)" "$(losses log4)"
is "Muon has one moment of the linears of layers" "$(moments other@last)" "21 7 "
says "an unknown name is refused with the list" "^fp8-step: --change: 'rate' is not one of data, seq-length, batch, sampler, " go3 --out wrong \
  --change rate
says "a difference that is not named is refused" 'or --change clip to go on with the new ones$' go3 --out part --change lr,batch $new --clip 2 \
  --steps 12
says "a change of precision prints a note" '^fp8-step: from step 10 on: precision fp8 \(was bf16\), recipe rowwise \(was not set\)$' \
  fp8-step m.h5 --data d.h5 --out part $new --steps 10 --precision fp8 --recipe rowwise
says "and of what is not the default of the recipe" 'recipe tensorwise \(was rowwise\), .*fuse-projections true \(was false\)' \
  fp8-step m.h5 --data d.h5 --out part $new --steps 11 --precision fp8 --fuse-projections
ok "back to bf16" fp8-step m.h5 --data d.h5 --out part $new --steps 12 --precision bf16
says "--fuse-projections with the first FP8 step is a change" 'recipe tensorwise \(was not set\), fuse-projections true \(was not set\)$' \
  fp8-step m.h5 --data d.h5 --out part $new --steps 13 --precision fp8 --fuse-projections
refused "flags of FP8 without FP8" '--recipe, --fp8-all-gather, --fp8-gemms, --emulate: needs --precision fp8; it is bf16$' \
  m.h5 --data d.h5 --seq-length 16 --out x --steps 1 --recipe rowwise --no-fp8-all-gather --fp8-gemms forward --emulate
says "a flag without effect under the recipe prints a note" '^fp8-step: --amax-history, --margin: no effect under --recipe rowwise$' \
  fp8-step m.h5 --data d.h5 --seq-length 16 --out note2 --steps 1 --precision fp8 --recipe rowwise --amax-history 4 --margin 1
fp8-step m.h5 --data d.h5 --seq-length 16 --out note3 --steps 1 --precision fp8 --recipe mxfp8 --print-config >printed.json 2>err
fp8-step m.h5 --config printed.json >out 2>err
is "a configuration with every flag prints none" "$? $(grep -c 'no effect' err)" "0 0"
says "fp8-eval prints it under the recipe" '^fp8-eval: --power-of-2-scales: no effect under --recipe delayed$' fp8-eval m.h5 --data d.h5 \
  --precision fp8 --recipe delayed --no-power-of-2-scales
says "fp8-eval refuses flags of FP8 without it" '^fp8-eval: --recipe: needs --precision fp8; it is bf16$' fp8-eval m.h5 --data d.h5 --recipe rowwise
printf '{"precision": "fp8", "recipe": "rowwise", "fp8-gemms": ["forward"]}' >file.json
says "flags of a configuration are ignored with a note" '^fp8-step: --recipe, --fp8-gemms: no effect without --precision fp8$' \
  fp8-step m.h5 --data d.h5 --seq-length 16 --out note4 --steps 1 --config file.json --precision bf16

# --- a run goes on in its precision, with all flags of it as a set, unless --precision is given
short="--data d.h5 --seq-length 16 --batch-size 4 --save-every 2"
set="--precision fp8 --recipe delayed --recipe *.down_proj=rowwise --filter *.0.self_attn.o_proj --margin 1 --amax-history 3 --fp8-gemms \
*gate_proj=forward --fp8-gemms *up_proj=forward"
fp8-step m.h5 $short --steps 4 $set --out same-one >same-one.log 2>err
fp8-step m.h5 $short --steps 4 --until-step 2 $set --out same-two >same-two.log 2>err
fp8-step m.h5 $short --steps 4 --out same-two >>same-two.log 2>err
same_bits "an FP8 run without --precision goes on as it was" same-two.log same-one.log
grep -q "^fp8-step: precision as in same-two/step-00000002: --precision fp8 --recipe 'delayed,\*.down_proj=rowwise'$" err
result $? "a note says so"
is "--print-config does the same" "$(fp8-step m.h5 $short --steps 6 --out same-two --print-config 2>err | tr -d ' \n' |
  grep -o '"precision":"fp8"\|"recipe":\[[^]]*\]\|"margin":1\|"filter":\[[^]]*\]' | tr '\n' ' ')" \
    '"precision":"fp8" "recipe":["delayed","*.down_proj=rowwise"] "margin":1 "filter":["*.0.self_attn.o_proj"] '
says "a flag of precision alone is refused" \
  '^fp8-step: --recipe, --filter: needs --precision; without it the run goes on as in same-two/step-00000004, with --precision fp8 --recipe '\
'.delayed,' \
  fp8-step m.h5 $short --steps 6 --out same-two --recipe rowwise --filter '*.o_proj'
printf '{"recipe": "rowwise"}' >alone.json
says "one of a configuration is not used, with a note" '^fp8-step: --recipe: not used: --precision is not given$' fp8-step m.h5 $short --steps 5 \
  --out same-two --config alone.json
is "and the run goes on in its precision" "$(grep '"type":"step"' same-two/log.jsonl | tail -1 | grep -o '"recipe":"[^"]*"')" \
  '"recipe":"delayed,*.down_proj=rowwise"'
says "with --precision no flag comes from the checkpoint" \
  'from step 6 on: recipe "tensorwise" \(was \["delayed","\*.down_proj=rowwise"\]\)|recipe tensorwise \(was' \
  fp8-step m.h5 $short --steps 6 --out same-two --precision fp8
ok "bf16 is given" fp8-step m.h5 $short --steps 7 --out same-two --precision bf16
is "and stays" "$(fp8-step m.h5 $short --steps 8 --out same-two --filter '*.o_proj' 2>err | grep '"type":"step"' |
  grep -o '"precision":"[a-z0-9]*"')" '"precision":"bf16"'
fp8-step m.h5 $short --steps 4 --until-step 2 --precision fp32 --out same-wide >same-wide.log 2>err
fp8-step m.h5 $short --steps 4 --out same-wide >>same-wide.log 2>err
is "fp32 goes on, with its activations" \
  "$(grep '"type":"step"' same-wide.log | grep -o '"precision":"[a-z0-9]*"' | cut -d: -f2 | sort -u | tr '\n' ' ')" '"fp32" '

# --- what comes from the checkpoint is checked as flags are, and printed as they would be
fp8-step m.h5 $short --steps 4 --until-step 2 --precision fp8 --fuse-projections --out fused >out 2>err
says "statistics of fused projections are refused" '^fp8-step: --tensor-stats-every: measures each projection alone' \
  fp8-step m.h5 $short --steps 4 --out fused --tensor-stats-every 1
fp8-step m.h5 $short --steps 4 --out fused >out 2>err
is "fused projections stay fused" "$? $(grep -c '"type":"step"' fused/log.jsonl) $(field fp8_gemms fused/log.jsonl | sort -u | wc -l)" "0 4 1"
fp8-step m.h5 $short --steps 4 --until-step 2 --precision fp8 --recipe rowwise --out rows >out 2>err
fp8-step m.h5 $short --steps 4 --out rows --print-config >resumed.json 2>err
fp8-step m.h5 $short --steps 4 --out rows --precision fp8 --recipe rowwise --print-config >given.json 2>err
is "the printed configuration is that of the first start" "$(cat resumed.json)" "$(cat given.json)"
printf '2 --precision fp8 --recipe rowwise\n4 --log-every 1\n6 --precision bf16\n8 --log-every 1\n' >four.phases
fp8-resume phased --phases four.phases -- fp8-step m.h5 $short --steps 8 -q >out 2>err
is "a phase without --precision goes on in that of the phase before" \
  "$(grep '"type":"step"' phased/log.jsonl | grep -o '"precision":"[a-z0-9]*","recipe":[^,]*' | uniq -c | tr -s ' ' | tr -d '"' | tr '\n' ';')" \
  " 4 precision:fp8,recipe:rowwise; 4 precision:bf16,recipe:null;"

# --- --print-config refuses what the run refuses
pairs="--data d.h5 --seq-length 16 --batch-size 4"
for flags in "--lora-alpha 4" "--lora-targets q_proj" "--rslora" "--lora-dropout 0.1" "--lora-rank 2 --fuse-projections --precision fp8" \
  "--lora-rank 2 --master bf16" "--lora-rank 2 --lora-targets nothing" "--keep-best" "--eval-every 2" "--min-lr 1" "--decay-steps 2" \
  "--schedule wsd --decay-steps 9" "--profile 9" "--sample-every 1" "--sample-prompt x" "--seq-length 100000" \
  "--fp8-gemms wgrad --precision fp8 --lora-rank 2" \
  "--tensor-stats-every 1 --fuse-projections --precision fp8" "--epochs 2" "--activations f32" \
  "--paranoid 1 --no-deterministic" "--warmup-steps 1 --warmup-ratio 0.1" "--data m.h5" "--eval-data none.h5" "--out same-one/step-00000004"; do
  fp8-step m.h5 $pairs --steps 4 --out x $flags -q >out 2>run.err
  run=$?
  fp8-step m.h5 $pairs --steps 4 --out x $flags -q --print-config >out 2>print.err
  is "$flags: --print-config ends as the run does" "$? $(cat print.err)" "$run $(cat run.err)"
  [ $run != 0 ] && [ ! -s out ] && [ ! -e x ]
  result $? "$flags: the run is refused"
  rm -rf x
done
for flags in "--lora-alpha 4" "--lora-rank 2 --fuse-projections --precision fp8" "--lora-rank 2 --master bf16" "--keep-best"; do
  status "$flags: --print-config refuses it without the model too" 2 fp8-step none.h5 $pairs --steps 4 --out x $flags --print-config
done
printf '%s\n' '[]' '["--lr","1x"]' '["--tp","2","--lora-alpha","2"]' '["--tp","2"]' '["--data","none.h5"]' >variants
fp8-step m.h5 $pairs --steps 4 --out x --check-variants --print-config <variants >out 2>err
is "--check-variants checks the command with the flags of each line, on any mesh" "$? $(cat out)" \
  "0 {\"type\":\"variant\",\"error\":null,\"status\":0}
{\"type\":\"variant\",\"error\":\"--lr: '1x' is not a number\",\"status\":2}
{\"type\":\"variant\",\"error\":\"--lora-alpha: needs --lora-rank or --lora\",\"status\":2}
{\"type\":\"variant\",\"error\":null,\"status\":0}
{\"type\":\"variant\",\"error\":null,\"status\":0}"
is "with -n the data must exist" \
  "$(fp8-step m.h5 $pairs --steps 4 --out x --check-variants -n <variants |
  tail -1)" '{"type":"variant","error":"none.h5: No such file or directory","status":2}'
is "alone it checks only flags" "$(fp8-step none.h5 $pairs --steps 4 --out x --check-variants <variants | grep -c null)" 4
says "a line that is no array is refused" '^fp8-step: standard input: expected arrays of strings$' \
  sh -c "echo '{}' | fp8-step m.h5 $pairs --check-variants"
ok "--print-config prints an incomplete command" fp8-step m.h5 --data d.h5 --lr 1e-3 --print-config
refused "and refuses what contradicts itself in it" '--lora-alpha: needs --lora-rank or --lora$' m.h5 --data d.h5 --lora-alpha 4 --print-config
is "steps follow --epochs" "$(fp8-step m.h5 $pairs --epochs 2 --out x --print-config | grep -E '"(steps|epochs)"' | tr -d ' \n')" \
  '"steps":625,"epochs":null,'
is "for all ranks" "$(mpirun -n 2 fp8-step m.h5 $pairs --epochs 2 --out x --print-config | grep '"steps"')" '  "steps": 312,'
is "a run has as many" "$(fp8-step m.h5 $pairs --epochs 0.05 --out epochs -q | grep -c '"type":"step"')" \
  "$(fp8-step m.h5 $pairs --epochs 0.05 --out x --print-config | grep '"steps"' | tr -dc 0-9)"
is "without the data --epochs stays" "$(fp8-step m.h5 --data none.h5 --epochs 2 --out x --print-config | grep -E '"(steps|epochs)"' | tr -d ' \n')" \
  '"steps":null,"epochs":2.0,'

# --- damaged checkpoints
cp -r a1 damaged
printf '\001' | dd of=damaged/run/step-00000004/rank-00000-of-00001.h5 bs=1 seek=300000 conv=notrunc 2>/dev/null
mkdir damaged/run/step-00000009.tmp && echo half >damaged/run/step-00000009.tmp/rank-00000-of-00001.h5
(cd damaged && same_command --precision fp32 >log 2>err)
result $? "a run with a damaged newest checkpoint resumes"
says "a message names the damaged checkpoint" \
  '^fp8-step: run/step-00000004: damaged, trying an older one: run/step-00000004/rank-00000-of-00001.h5: ' cat damaged/err
is "the log has a warning about it" "$(grep -c '"type":"warning","message":"run/step-00000004: damaged' damaged/run/log.jsonl)" 1
says "a message names the removed temporary folder" '^fp8-step: run/step-00000009.tmp: left over from an interrupted save, removed' cat damaged/err
says "a message names the older checkpoint" '^fp8-step: resuming from run/step-00000002' cat damaged/err
is "the run resumes at step 3" "$(story damaged/log)" "run warning step3 step4 checkpoint4 end4 "
cmp damaged/run/step-00000004/rank-00000-of-00001.h5 a1/run/step-00000004/rank-00000-of-00001.h5
result $? "the damaged checkpoint is replaced by an equal file"
for f in damaged/run/step-*/rank*; do : >"$f"; done
(cd damaged && same_command --precision fp32 >log 2>err)
is "all checkpoints damaged: status 2" $? 2
says "all checkpoints damaged: a message states it" '^fp8-step: run: every checkpoint in it is damaged' tail -1 damaged/err
is "all checkpoints damaged: none is removed" "$(steps damaged/run)" "step-00000002 step-00000004"

# --- signals
for signal in USR1 TERM; do
  rm -f sig.log
  fp8-step m.h5 --data d.h5 --out sig$signal --steps 4000 --batch-size 8 --seq-length 32 -q >sig.log 2>err &
  job=$!
  until grep -q '"type":"step"' sig.log 2>/dev/null; do sleep 0.05; done
  kill -$signal $job
  wait $job
  is "$signal: status 75 and no message" "$? $(cat err)" "75 "
  at=$(field step sig.log | tail -1)
  is "$signal: the log ends with a checkpoint and the reason" "$(tail -2 sig.log | cut -c1-28 | tr '\n' ' ')$(grep -c 'stopped on request' sig.log)" \
    "$(printf '{"type":"checkpoint","step":%s {"type":"end","step":%s,"tokens":' "$at" "$at" |
    awk '{ print substr($1, 1, 28), substr($2, 1, 28) }') 1"
  ok "$signal: the same command resumes" fp8-step m.h5 --data d.h5 --out sig$signal --steps 4000 --batch-size 8 --seq-length 32 -q \
    --until-step $((at + 1))
  is "$signal: the run resumes at the next step" "$(losses out | cut -d' ' -f1)" $((at + 1))
done

# A signal before the model is read, while fp8-step waits for a record on a pipe.
mkfifo early.pipe
fp8-step - --data d.h5 --out early --steps 4 $few <early.pipe >early.log 2>err &
job=$!
exec 9>early.pipe
tries=0
until grep -Eq '^SigBlk:.*[2367abef]..$' /proc/$job/status || [ $((tries = tries + 1)) = 600 ]; do sleep 0.05; done
kill -USR1 $job
(trap '' PIPE && echo '{"type":"checkpoint","path":"m.h5"}' >&9) 2>/dev/null # the run may have ended already
exec 9>&-
wait $job
is "a signal before the start: status 75 and no message" "$? $(cat err)" "75 "
is "a signal before the start: no record" "$(cat early.log)" ""

# --- values that are not finite
cp -r "$SRC/tests/golden/models/llama3/hf" nan && chmod -R u+w nan
size=$(wc -c <nan/model.safetensors)
last_weight() { printf '%b' "$1" | dd of=nan/model.safetensors bs=1 seek=$((size - 2)) conv=notrunc 2>/dev/null; }
last_weight '\377\377'
invalid='/weights/[a-z0-9_.]*: holds a value that is not finite'
says "fp8-convert converts a weight that is NaN, with a message" "^fp8-convert: bad.h5: $invalid, in 1 of [0-9]+ weights; no tool trains" \
  fp8-convert nan -o bad.h5
for tool in "fp8-info --verify" "fp8-step --data d.h5 $few --steps 1 --out bad" "fp8-eval --data d.h5" "fp8-convert -o x.h5" \
  "fp8-quantize --scaling row -o x.h5"; do
  status "${tool%% *} refuses the model" 2 $tool bad.h5
  is "${tool%% *} names the weight" "$(grep -c "^${tool%% *}: bad.h5: $invalid$" err)" 1
done
is "the refused commands leave no file" "$(ls -d bad x.h5 2>/dev/null)" ""
last_weight '\177\177'
ok "a weight near the largest bf16 is converted" fp8-convert nan -o nan.h5
for way in bf16 fp8; do
  status "$way: ten skipped steps give status 4" 4 fp8-step nan.h5 --data d.h5 $few --out nan$way --steps 20 --save-every 4 --precision $way
  is "$way: all steps are skipped" "$(grep -c '"skipped":true' out) $(grep -c '"skipped":false' out)" "10 0"
  is "$way: one line states the reason" "$(cat err)" "fp8-step: the loss or the gradient was not finite in 10 steps in a row; no checkpoint was saved"
  is "$way: the end record states the reason" \
    "$(tail -1 nan$way/log.jsonl | sed 's/"tokens":[0-9]*/"tokens":N/; s/"memory_used":{[^}]*},//; s/"message":.*/"message":M/')" \
    '{"type":"end","step":10,"tokens":N,"reason":"diverged","status":4,"message":M'
  says "$way: fp8-log shows the state diverged" '^state +diverged$' fp8-log nan$way
  is "$way: a loss that is not finite is null" "$(field loss nan$way/log.jsonl | sort -u)" null
done
is "a diverged run saves no checkpoint" "$(ls nanbf16 nanfp8)" "$(printf 'nanbf16:\nlog.jsonl\n\nnanfp8:\nlog.jsonl')"

# --- a run that diverges: each update multiplies weights by a large factor until no gradient is finite
wild="m.h5 --data d.h5 $few --lr 1e6 --weight-decay 1e6 --steps 10 --save-every 1 --keep 1 --out wild"
for attempt in 1 2 3; do
  status "attempt $attempt: a diverged run gives status 4" 4 fp8-step $wild -q
  newest=$(printf '%s\n' wild/step* | tail -1)
  is "attempt $attempt: the message names the last checkpoint" "$(sed 's/in [2-9] steps/in N steps/' err)" \
    "fp8-step: the loss or the gradient was not finite in N steps in a row; the last checkpoint is $newest"
  [ $attempt != 1 ] || there=$(ls wild)
  is "attempt $attempt: no checkpoint is saved or removed after diverging" "$(ls wild) $(($(printf '%s\n' wild/step* | wc -l) > 1))" "$there 1"
  is "attempt $attempt: the log names the same last checkpoint" "$(field path wild/log.jsonl | tail -1)" "\"$newest\""
done
last_weight '\004\151' # 1e25
fp8-convert nan -o large.h5 >out 2>err
status "second moments that overflow give status 4" 4 fp8-step large.h5 --data d.h5 $few --clip 0 --steps 4 --save-every 1 --out over -q
is "the message names the tensor, and no checkpoint is saved" "$(sed 's/v.[a-z0-9_.]*:/v:/' err) $(ls over)" \
  "fp8-step: over/step-00000001.tmp/rank-00000-of-00001.h5: /optimizer/v: holds a value that is not finite or below 0; no checkpoint was \
saved log.jsonl"

done_testing
