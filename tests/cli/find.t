#!/bin/sh
# RUN, RUN@last, RUN@best and RUN@N name a checkpoint of a run in every tool, also while the run saves and removes checkpoints.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
text_size=3000
. "$SRC/tests/cli/train.sh"
flags="m.h5 --data d.h5 --seq-length 32 --batch-size 2 -q"

# --- while a run saves and prunes after every step
fp8-step $flags --save-every 1 --keep 1 --out live --steps 1000000 >out 2>err </dev/null &
job=$!
tries=0
until grep -qs '"type":"checkpoint","step":5,' live/log.jsonl || [ $((tries += 1)) = 600 ]; do sleep 0.1; done
# race NAME TIMES COMMAND...: passes if the command succeeds each time
race() {
  name=$1 times=$2 bad=0
  shift 2
  for i in $(seq "$times"); do
    rm -rf x "x$i.h5"
    "$@" >out 2>err </dev/null || { bad=$((bad + 1)) && sed 's/^/# /' err >&2; }
  done
  is "$name while a run saves and prunes" $bad 0
}
race "fp8-resume --print" 30 fp8-resume live --print
race "fp8-export" 20 fp8-export live -o x -q
race "fp8-generate" 15 fp8-generate live --ids 5,6 --greedy --max-tokens 1 -q
race "fp8-info" 15 fp8-info live@last
race "fp8-eval" 8 fp8-eval live --data d.h5 --seq-length 1024 -q
race "fp8-eval on two ranks" 3 mpirun -n 2 fp8-eval live --data d.h5 --seq-length 1024 -q
kill -KILL $job
wait $job 2>/dev/null

# --- in every tool
loss_of() { fp8-eval "$1" --data d.h5 --seq-length 32 -q | grep -o '"loss":[0-9.]*'; }
ok "a run with evaluations" fp8-step $flags --eval-data d.h5 --eval-every 2 --eval-batches 2 --save-every 2 --steps 8 --lr 1e-2 --out run
best=$(sed -n 's/.*"type":"eval","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\2 \1/p' run/log.jsonl | sort -g | head -1 | cut -d' ' -f2)
worst=$(sed -n 's/.*"type":"eval","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\2 \1/p' run/log.jsonl | sort -g | tail -1 | cut -d' ' -f2)
ok "the best checkpoint is removed, so that the newest is not the best" test "$best" = 8
mv run/step-0000000$best best.kept
second=$(sed -n 's/.*"type":"eval","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\2 \1/p' run/log.jsonl | sort -g | sed -n '2s/.* //p')
is "fp8-resume --print --best" "$(fp8-resume run --print --best)" "run/step-0000000$second"
is "fp8-resume --print" "$(fp8-resume run --print)" run/step-00000006
status "fp8-resume --print --best without an evaluation: status 1" 1 fp8-resume live --print --best
says "and says why" 'live: no checkpoint with an evaluation loss$' fp8-resume live --print --best
status "--best needs --print" 2 fp8-resume run --best -- true
for at in "" @last @6 @best "@$worst"; do
  case $at in @best) step=$second ;; "@$worst") step=$worst ;; *) step=6 ;; esac
  folder=run/step-0000000$step
  is "fp8-info run$at" "$(fp8-info run$at)" "$(fp8-info $folder)"
  ok "fp8-info --diff run$at" fp8-info $folder --diff run$at
  says "fp8-export run$at says what it exported" "from $folder\$" fp8-export run$at -o x -f
  says "fp8-export run$at --json too" "\"source\":\"$folder\"" fp8-export run$at -o x -f --json
  ok "fp8-convert run$at" fp8-convert run$at --merge -o c.h5 -f
  ok "fp8-convert run$at takes that step" fp8-info c.h5 --diff $folder
  ok "fp8-quantize run$at" fp8-quantize run$at -o q.h5 --scaling row -f
  is "fp8-eval run$at" "$(loss_of run$at)" "$(loss_of $folder)"
  ok "fp8-generate run$at" fp8-generate run$at --ids 5,6 --greedy --max-tokens 1
  ok "fp8-inspect run$at" fp8-inspect run$at --data d.h5 --seq-length 32
  rm -rf new
  ok "fp8-step run$at" fp8-step run$at --data d.h5 --seq-length 32 --batch-size 2 --steps 1 --out new -q
done
ok "fp8-eval run@best on two ranks" mpirun -n 2 fp8-eval run@best --data d.h5 --seq-length 32 -q

# --- the newest is damaged
cp -r run hurt
printf x | dd of=hurt/step-00000006/rank-00000-of-00001.h5 bs=1 seek=5000 conv=notrunc 2>err
passed="hurt/step-00000006: damaged, trying an older one: "
for command in "fp8-info hurt" "fp8-info m.h5 --diff hurt" "fp8-info m.h5 --diff hurt --bound 1" \
  "fp8-export hurt -o x -f" "fp8-convert hurt --weights-only -o c.h5 -f" \
  "fp8-quantize hurt -o q.h5 --scaling row -f" "fp8-eval hurt --data d.h5 --seq-length 32" \
  "fp8-generate hurt --ids 5,6 --greedy --max-tokens 1" "fp8-inspect hurt --data d.h5 --seq-length 32" \
  "fp8-step hurt --data d.h5 --seq-length 32 --steps 1 --out new -q"; do
  rm -rf new
  says "$command says that it passed over the newest" "^${command%% *}: $passed" $command
done
says "and fp8-eval which it read" '"checkpoint":"hurt/step-00000004"' fp8-eval hurt --data d.h5 --seq-length 32 -q
is "a checkpoint without damage is not reported" "$(fp8-info run 2>&1 >/dev/null)" ""

echo '{"type":"checkpoint","path":"run@best"}' >record
is "a record may name a run" "$(fp8-info - <record)" "$(fp8-info run@best)"
cp -r run/step-00000002 run@last
is "a path that exists wins" "$(fp8-info run@last | sed 1d)" "$(fp8-info run/step-00000002 | sed 1d)"
status "no checkpoint of that step" 2 fp8-info run@7
says "and the message lists those there are" '^fp8-info: run@7: the run has no checkpoint of this step; it has 2 4 6$' fp8-info run@7
says "a wrong name behind @" '^fp8-info: run@worst: expected last, best or a step after @$' fp8-info run@worst
says "no such run" '^fp8-info: none@last: No such file or directory' fp8-info none@last
done_testing
