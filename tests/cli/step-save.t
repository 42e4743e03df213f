#!/bin/sh
# fp8-step on one rank: saving beside the steps, which checkpoints stay, and saves that fail.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
few="--seq-length 16 --batch-size 2 -q"
steps() { (cd "$1" && echo step-*); }

# --- beside the steps: the same bytes, in their order, and memory for the copy
for way in sync async; do # the command line, which checkpoints hold, is the same
  mkdir $way
  echo "{\"async-save\": $([ $way = sync ] && echo false || echo true)}" >$way/way.json
  (cd $way && fp8-step ../m.h5 --data ../d.h5 $few --steps 9 --save-every 2 --lr 1e-2 --out run --config way.json >log 2>err)
done
is "--async-save: every checkpoint" "$(steps async/run)" "$(steps sync/run)"
is "without a word" "$(cat async/err)" ""
for step in 2 4 6 8 9; do
  cmp sync/run/step-0000000$step/rank-00000-of-00001.h5 async/run/step-0000000$step/rank-00000-of-00001.h5 &&
    cmp sync/run/step-0000000$step/manifest.json async/run/step-0000000$step/manifest.json
  result $? "step $step: the same bytes"
done
is "each is told of once, in order" "$(grep '"type":"checkpoint"' async/log | field step - | tr '\n' ' ')" "2 4 6 8 9 "
is "the last at once" "$(story async/log | grep -o 'step9 .*')" "$(story async/log | grep -o 'step9 .*checkpoint9 end9 ')"
is "steps waited for less than all of it" "$(sed -n 's/.*"seconds":\([^,]*\),"wait_s":\([^}]*\)}/\1 \2/p' async/log | awk '{ print ($2 <= $1) }' | sort -u)" 1
fp8-step m.h5 --data d.h5 $few --steps 1 --out x -n 2>err
fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 1 --out x -n --async-save 2>said
says "the plan has the copy" '^fp8-step: +snapshot +[0-9.]+ [KM]iB' cat said
is "which is weights and moments" "$(fp8-step m.h5 --data d.h5 $few --steps 1 --out plan --async-save | head -1 | sed 's/.*"memory_plan":{\([^}]*\)}.*/\1/' | tr ',' '\n' |
  awk -F: '{ gsub(/"/, "", $1); v[$1] = $2 } END { print (v["snapshot"] == v["master weights"] + v["moments"]) }')" 1

# --- which checkpoints stay
ok "--milestone-every" fp8-step m.h5 --data d.h5 $few --out milestones --steps 11 --save-every 2 --keep 2 --milestone-every 3
is "makes them, and keeps them beside the newest" "$(steps milestones)" "step-00000003 step-00000006 step-00000009 step-00000010 step-00000011"
refused "--keep-best without data to measure on" '--keep-best: needs --eval-data' m.h5 --data d.h5 $few --out x --steps 1 --keep-best
best="m.h5 --data d.h5 --eval-data d.h5 --eval-batches 2 --schedule constant --lr 3e-2 --out best --save-every 1 --keep 1 --keep-best $few"
fp8-step $best --steps 5 --async-save >best.log 2>err # after step 4 the loss grows
result $? "--keep-best"
is "measures every checkpoint" "$(grep '"type":"eval"' best.log | field step - | tr '\n' ' ')" "1 2 3 4 5 "
lowest() { cat "$@" | sed -n 's/^{"type":"eval","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\2 \1/p' | sort -g | head -1 | cut -d' ' -f2; }
kept() { printf 'step-%08d\n' "$@" | sort -u | tr '\n' ' '; }
is "keeps the best and the newest" "$(steps best) " "$(kept "$(lowest best.log)" 5)"
[ "$(lowest best.log)" -lt 5 ]
result $? "which are two"
ok "the run goes on" fp8-step $best --steps 7
is "and the best of before is remembered" "$(steps best) " "$(kept "$(lowest best.log)" 7)"

# --- a time between saves
fp8-step m.h5 --data d.h5 $few --steps 1000000 --save-every 1s --out timed >timed.log 2>err </dev/null &
pid=$!
start=$(date +%s) tries=0
until [ "$(grep -c '"type":"checkpoint"' timed.log)" -ge 3 ] || [ $((tries += 1)) = 600 ]; do sleep 0.1; done
took=$(($(date +%s) - start))
kill -USR1 $pid
wait $pid
is "--save-every 1s: a stop is as ever" $? 75
[ $took -ge 2 ] && [ $took -le 30 ] && [ "$(field step timed.log | tail -1)" -gt 30 ]
result $? "three saves take three seconds, not three steps"
is "all of them stay" "$(steps timed | wc -w)" "$(grep -c '"type":"checkpoint"' timed.log)"
next=$(($(field step timed.log | tail -1) + 1))
ok "the interval may change on resuming" fp8-step m.h5 --data d.h5 $few --steps 1000000 --until-step $next --save-every 5 --out timed
echo '{"save-every": "1s", "keep": 1}' >every.json
ok "a configuration may say so" fp8-step m.h5 --data d.h5 $few --steps 9 --config every.json --print-config
is "and reads back" "$(grep -E '"(save-every|keep)"' out | tr -d '\n')" '  "save-every": "1s",  "keep": 1,'
refused "a time without a unit that is known" "--save-every: '5d' is neither a whole number nor a time, as 90s, 30m or 2h" m.h5 --data d.h5 --out x --steps 1 --save-every 5d

# --- without --save-every: of the checkpoints that nobody asked for, the newest two
ok "--save-every 2 keeps all" fp8-step m.h5 --data d.h5 $few --steps 1000000 --until-step 6 --save-every 2 --out rolling
for _ in 1 2 3; do
  rm -f out
  fp8-step m.h5 --data d.h5 $few --steps 1000000 --out rolling >out 2>err </dev/null &
  pid=$!
  tries=0
  until grep -qs '"type":"step"' out || [ $((tries += 1)) = 600 ]; do sleep 0.1; done
  kill -USR1 $pid
  wait $pid
done
two=$(grep '"type":"checkpoint"' rolling/log.jsonl | field step - | tail -2)
is "the others stay" "$(steps rolling) " "$(kept 2 4 6 $two)"
next=$(($(echo "$two" | tail -1) + 1))
ok "its last step" fp8-step m.h5 --data d.h5 $few --steps 1000000 --until-step $next --out rolling
is "is one of the two" "$(steps rolling) " "$(kept 2 4 6 "$(echo "$two" | tail -1)" $next)"
ok "0 saves the last step alone" fp8-step m.h5 --data d.h5 $few --steps 3 --save-every 0 --out last
is "and nothing else" "$(steps last)" step-00000003

# --- a save that fails
limit() { # BLOCKS COMMAND...: files of at most that many blocks of 512 bytes
  blocks=$1
  shift
  (ulimit -f "$blocks" && exec "$@")
}
limit 400 fp8-step m.h5 --data d.h5 $few --out full --steps 9 --save-every 3 >full.log 2>err
is "no room for any: status 2" $? 2
is "trained to the end all the same" "$(story full.log)" \
  "run step1 step2 step3 warning3 step4 warning4 step5 step6 warning6 step7 step8 step9 warning9 end9 "
is "each attempt is a line, and the last the reason of the end" "$(cut -d: -f2 err | tr '\n' ';') $(grep -c 'File too large' err)" \
  " step 3 is not saved; step 4 is not saved; step 6 is not saved; step 9 is not saved; full/step-00000009.tmp/rank-00000-of-00001.h5; 5"
is "nothing is left over" "$(ls full)" log.jsonl
limit 400 fp8-step m.h5 --data d.h5 $few --out full --steps 9 --async-save --save-every 4 --until-step 5 >out 2>err
is "beside the steps too" "$? $(grep -c 'step 4 is not saved' err) $(ls full)" "2 1 log.jsonl"
ok "with room it is done" fp8-step m.h5 --data d.h5 $few --out full --steps 9 --save-every 3
cp -r full/step-00000009 before
limit 400 fp8-step m.h5 --data d.h5 $few --out full --steps 11 --save-every 1 --keep 1 >out 2>err
is "a later failure" $? 2
ok "leaves what was there" fp8-info --verify full/step-00000009
same_step "as it was" before full/step-00000009
ok "from where it goes on" fp8-step m.h5 --data d.h5 $few --out full --steps 11 --keep 1
is "step by step" "$(losses out | cut -d' ' -f1 | tr '\n' ' ') $(steps full)" "10 11  step-00000011"

# --- a run that diverges finishes the save that it had begun
status "steps that are skipped" 4 fp8-step m.h5 --data d.h5 $few --lr 1e6 --weight-decay 1e6 --out diverged --steps 9 --save-every 1 --keep 1 --async-save
newest=$(printf '%s\n' diverged/step-* | tail -1)
is "what was begun before is there" "$(field path diverged/log.jsonl | tail -1) $(find diverged -name '*tmp*')" "\"$newest\" "
ok "and whole" fp8-info --verify "$newest"

# --- a log that fails
mkdir logfull && ln -s /dev/full logfull/log.jsonl
fp8-step m.h5 --data d.h5 $few --out logfull --steps 3 >out 2>err
is "a log on a full disk: the run goes on" "$? $(story out)" "0 run warning step1 step2 step3 checkpoint3 end3 "
is "which is said, and what it lacks" "$(cat err)" "$(printf '%s\n' "fp8-step: logfull/log.jsonl: cannot write: No space left on device; records wait in memory until it takes them" "fp8-step: logfull/log.jsonl: lacks the last 7 records")"

done_testing
