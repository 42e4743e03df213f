#!/bin/sh
# Checkpoints with valid digests and impossible counters: tools refuse them in one line, and a run resumes from the newest valid checkpoint.
# All invalid counters and their messages are tested in lib/ckpt/tests/run_folder_test.cc and lib/train/tests/run_test.cc.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
O=${O:-$SRC/build}
train="fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 2 --out run --steps 2 --save-every 1"
ok "a run of two steps" $train -q
mv run/step-00000002 good
bad=run/step-00000002
forge() { rm -rf run/step-0000000? && cp -r one run/step-00000001 && "$O/test/forge" good $bad "$1" "$2"; } # KEY VALUE
mv run/step-00000001 one

# named TOOL WORDS...: passes if the command refuses the checkpoint with $reason in one line
named() {
  "$@" >out 2>err </dev/null
  is "$key $value: $1 gives status 2 and one line" "$? $(cat out err)" "2 $1: $bad: /train: $reason"
}
while read -r key value reason; do
  forge "$key" "$value"
  named fp8-info $bad
  named fp8-info $bad --verify
  named fp8-info one --diff $bad
  named fp8-convert $bad --merge -o x.h5
  named fp8-eval $bad --data d.h5
  named fp8-step $bad --data d.h5 --seq-length 16 --batch-size 2 --steps 1 --out x
  passed="$bad: damaged, trying an older one: $bad: /train: $reason"
  fp8-resume run --print >out 2>err
  is "$key $value: fp8-resume --print falls back to the older checkpoint, with a message" "$? $(cat out err)" \
    "$(printf '%s\n' "0 run/step-00000001" "fp8-resume: $passed")"
  fp8-resume run -- $train -q >out 2>err </dev/null
  is "$key $value: fp8-resume writes a record and resumes from the older checkpoint" \
    "$? $(story out | cut -d' ' -f1-3) $(grep -c '"action":"damaged"' out) $(losses out | cut -d' ' -f1)" "0 resume resume run 1 2"
  forge "$key" "$value"
  $train >log 2>err
  is "$key $value: fp8-step resumes from the older checkpoint, with a message" "$? $(story log) $(grep -cFx "fp8-step: $passed" err)" \
    "0 run warning step2 checkpoint2 end2  1"
done <<TABLE
step -2 step is -2, which is below 0
updates 3 3 updates in 2 steps
tokens 65 65 tokens in 2 steps of equal size
TABLE

# A mesh that is none, or that has not as many ranks as there are files.
while read -r value reason; do
  forge mesh "$value"
  for command in "fp8-info $bad --verify" "fp8-info one --diff $bad" "fp8-convert $bad --merge -o x.h5" \
    "fp8-step $bad --data d.h5 --seq-length 16 --batch-size 2 --steps 1 --out x"; do
    $command >out 2>err </dev/null
    is "mesh $value: $command gives status 2 and one line" "$? $(cat out err)" "2 ${command%% *}: $bad/manifest.json: mesh: $reason"
  done
  passed="$bad: damaged, trying an older one: $bad/manifest.json: mesh: $reason"
  fp8-resume run --print >out 2>err
  is "mesh $value: fp8-resume --print falls back to the older checkpoint, with a message" "$? $(cat out err)" \
    "$(printf '%s\n' "0 run/step-00000001" "fp8-resume: $passed")"
done <<TABLE
[] not an object
{"dp_replicate":0,"dp_shard":1,"pp":1,"ep":1,"tp":1} dp_replicate is not a positive integer
{"dp_replicate":4294967296,"dp_shard":4294967296,"pp":1,"ep":1,"tp":1} dp_replicate x dp_shard x pp x tp is not the number of files, 1
TABLE

# Only the run can check the tokens per step, which are 32.
forge tokens 66
ok "a token count for another step size verifies" fp8-info $bad --verify
$train >out 2>err
is "a run with another step size refuses the token count" "$? $(cat out err)" "2 fp8-step: $bad: /train: 66 tokens in 2 steps, which have 32 each"
rm -r $bad && cp -r one $bad
$train >out 2>err
is "a checkpoint whose step differs from its name is skipped" \
  "$? $(losses out | cut -d' ' -f1) $(grep -c "^fp8-step: $bad: damaged, .*/train: step 1 differs from the step in its name" err)" "0 2 1"
forge step -2
rm -r run/step-00000001
status "no valid checkpoint: fp8-resume --print gives status 1" 1 fp8-resume run --print
$train >out 2>err
is "no valid checkpoint: fp8-step gives status 2" "$? $(tail -1 err)" \
  "2 fp8-step: run: every checkpoint in it is damaged; move them away to start again; the newest: $bad: /train: step is -2, which is below 0"
is "the refused commands leave no file" "$(ls -d x x.h5 2>/dev/null)" ""
done_testing
