#!/bin/sh
# fp8-step on one rank: asynchronous saves, retention of checkpoints, and saves that fail.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
few="--seq-length 16 --batch-size 2 -q"
steps() { (cd "$1" && echo step-*); }

# --- asynchronous saves: equal files, in order, and memory for the snapshot
for way in sync async; do # the flag is in a file, so that the command lines recorded in the checkpoints are equal
  mkdir $way
  echo "{\"async-save\": $([ $way = sync ] && echo false || echo true)}" >$way/way.json
  (cd $way && fp8-step ../m.h5 --data ../d.h5 $few --steps 9 --save-every 2 --lr 1e-2 --out run --config way.json >log 2>err)
done
is "--async-save writes the same checkpoints" "$(steps async/run)" "$(steps sync/run)"
is "--async-save prints no message" "$(cat async/err)" ""
for step in 2 4 6 8 9; do
  cmp sync/run/step-0000000$step/rank-00000-of-00001.h5 async/run/step-0000000$step/rank-00000-of-00001.h5 &&
    cmp sync/run/step-0000000$step/manifest.json async/run/step-0000000$step/manifest.json
  result $? "step $step: synchronous and asynchronous checkpoints are equal"
done
is "each checkpoint has one record, in order" "$(grep '"type":"checkpoint"' async/log | field step - | tr '\n' ' ')" "2 4 6 8 9 "
is "the last save ends before the end record" "$(story async/log | grep -o 'step9 .*')" "$(story async/log | grep -o 'step9 .*checkpoint9 end9 ')"
fp8-step m.h5 --data d.h5 $few --steps 1 --out x -n 2>err
fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 1 --out x -n --async-save 2>said
says "the memory plan lists the snapshot" '^fp8-step: +snapshot +[0-9.]+ [KM]iB' cat said
is "the snapshot has the size of weights and moments" \
  "$(fp8-step m.h5 --data d.h5 $few --steps 1 --out plan --async-save | head -1 | sed 's/.*"memory_plan":{\([^}]*\)}.*/\1/' | tr ',' '\n' |
  awk -F: '{ gsub(/"/, "", $1); v[$1] = $2 } END { print (v["snapshot"] == v["master weights"] + v["moments"]) }')" 1

# --- on cores that others keep busy: a save that is waited for is as fast as a synchronous one, and the waiting is counted
ok "a model of 18 MB" \
  fp8-init tiny --set hidden_size=256 --set intermediate_size=1024 --set num_attention_heads=4 --set num_key_value_heads=4 --set head_dim=64 -o big.h5
burners=
for _ in $(seq "$(nproc)"); do
  while :; do :; done &
  burners="$burners $!"
done
# on_busy_cores FOLDER [FLAG]: seconds from the first step to the last checkpoint, and those of them in steps and in wait_s
on_busy_cores() {
  timeout 300 fp8-step big.h5 --data d.h5 $few --steps 6 --save-every 1 --out "$@" 2>err |
    while read -r record; do echo "$(date +%s.%N) $record"; done |
    awk '{ at = $1 } /"type":"step"/ { if (!begun) { begun = at; next } sub(/.*"step_s":/, ""); steps += $0 }
      /"type":"checkpoint"/ { sub(/.*"wait_s":/, ""); waits += $0; end = at } END { print end - begun, steps + waits }'
}
sync=$(on_busy_cores busy-sync)
async=$(on_busy_cores busy-async --async-save)
kill $burners
echo "$sync $async" | awk '{ exit !($3 > 0 && $3 < 4 * $1 + 4) }'
result $? "busy cores: synchronous ${sync% *} s, --async-save ${async% *} s"
for way in "$sync" "$async"; do
  echo "$way" | awk '{ exit !($2 > 0.6 * $1 - 0.3 && $2 < $1 + 0.5) }'
  result $? "busy cores: of ${way% *} s are steps and wait_s ${way#* }"
done

# --- retention of checkpoints
ok "--milestone-every succeeds" fp8-step m.h5 --data d.h5 $few --out milestones --steps 11 --save-every 2 --keep 2 --milestone-every 3
is "milestones and the newest checkpoints are kept" "$(steps milestones)" "step-00000003 step-00000006 step-00000009 step-00000010 step-00000011"
refused "--keep-best without --eval-data is refused" '--keep-best: needs --eval-data' m.h5 --data d.h5 $few --out x --steps 1 --keep-best
best="m.h5 --data d.h5 --eval-data d.h5 --eval-batches 2 --schedule constant --lr 3e-2 --out best --save-every 1 --keep 1 --keep-best $few"
fp8-step $best --steps 5 --async-save >best.log 2>err # after step 4 the loss grows
result $? "--keep-best succeeds"
is "--keep-best evaluates every checkpoint" "$(grep '"type":"eval"' best.log | field step - | tr '\n' ' ')" "1 2 3 4 5 "
lowest() { cat "$@" | sed -n 's/^{"type":"eval","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\2 \1/p' | sort -g | head -1 | cut -d' ' -f2; }
kept() { printf 'step-%08d\n' "$@" | sort -u | tr '\n' ' '; }
is "--keep-best keeps the best and the newest checkpoint" "$(steps best) " "$(kept "$(lowest best.log)" 5)"
[ "$(lowest best.log)" -lt 5 ]
result $? "the best checkpoint is not the newest"
ok "the run with --keep-best resumes" fp8-step $best --steps 7
is "the best checkpoint is kept after resuming" "$(steps best) " "$(kept "$(lowest best.log)" 7)"

# --- --save-every with a time
fp8-step m.h5 --data d.h5 $few --steps 1000000 --save-every 1s --out timed >timed.log 2>err </dev/null &
pid=$!
start=$(date +%s) tries=0
until [ "$(grep -c '"type":"checkpoint"' timed.log)" -ge 3 ] || [ $((tries += 1)) = 600 ]; do sleep 0.1; done
took=$(($(date +%s) - start))
kill -USR1 $pid
wait $pid
is "--save-every 1s: a stop on request gives status 75" $? 75
[ $took -ge 2 ] && [ $took -le 30 ] && [ "$(field step timed.log | tail -1)" -gt 30 ]
result $? "--save-every 1s: three saves take at least two seconds"
is "--save-every 1s: all checkpoints are kept" "$(steps timed | wc -w)" "$(grep -c '"type":"checkpoint"' timed.log)"
next=$(($(field step timed.log | tail -1) + 1))
ok "--save-every may change on resuming" fp8-step m.h5 --data d.h5 $few --steps 1000000 --until-step $next --save-every 5 --out timed
echo '{"save-every": "1s", "keep": 1}' >every.json
ok "a configuration can set a time" fp8-step m.h5 --data d.h5 $few --steps 9 --config every.json --print-config
is "--print-config prints the time" "$(grep -E '"(save-every|keep)"' out | tr -d '\n')" '  "save-every": "1s",  "keep": 1,'
refused "a time with an unknown unit is refused" "--save-every: '5d' is neither a whole number nor a time, as 90s, 30m or 2h" m.h5 --data d.h5 \
  --out x --steps 1 --save-every 5d

# --- without --save-every: the newest two of the automatic checkpoints are kept
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
is "automatic checkpoints do not replace those of --save-every" "$(steps rolling) " "$(kept 2 4 6 $two)"
next=$(($(echo "$two" | tail -1) + 1))
ok "the run is resumed to a last step" fp8-step m.h5 --data d.h5 $few --steps 1000000 --until-step $next --out rolling
is "the last step is one of the two kept" "$(steps rolling) " "$(kept 2 4 6 "$(echo "$two" | tail -1)" $next)"
ok "--save-every 0 succeeds" fp8-step m.h5 --data d.h5 $few --steps 3 --save-every 0 --out last
is "--save-every 0 saves only the last step" "$(steps last)" step-00000003

# --- a save that fails
limit() { # BLOCKS COMMAND...: runs the command with files limited to BLOCKS blocks of 512 bytes
  blocks=$1
  shift
  (ulimit -f "$blocks" && exec "$@")
}
limit 400 fp8-step m.h5 --data d.h5 $few --out full --steps 9 --save-every 3 >full.log 2>err
is "a last save that fails gives status 2" $? 2
is "a run whose saves fail continues to its last step" "$(story full.log)" \
  "run step1 step2 step3 warning3 step4 warning4 step5 step6 warning6 step7 step8 step9 warning9 end9 "
is "each failed save has one line with the reason" "$(cut -d: -f2 err | tr '\n' ';') $(grep -c 'File too large' err)" \
  " step 3 is not saved; step 4 is not saved; step 6 is not saved; step 9 is not saved; full/step-00000009.tmp/rank-00000-of-00001.h5; 5"
is "a failed save leaves no file" "$(ls full)" log.jsonl
limit 400 fp8-step m.h5 --data d.h5 $few --out full --steps 9 --async-save --save-every 4 --until-step 5 >out 2>err
is "an asynchronous save that fails gives status 2 and leaves no file" "$? $(grep -c 'step 4 is not saved' err) $(ls full)" "2 1 log.jsonl"
ok "the same command succeeds without the limit" fp8-step m.h5 --data d.h5 $few --out full --steps 9 --save-every 3
cp -r full/step-00000009 before
limit 400 fp8-step m.h5 --data d.h5 $few --out full --steps 11 --save-every 1 --keep 1 >out 2>err
is "a failed save of a resumed run gives status 2" $? 2
ok "the checkpoint of before still verifies" fp8-info --verify full/step-00000009
same_step "the checkpoint of before is unchanged" before full/step-00000009
ok "the run resumes from the checkpoint of before" fp8-step m.h5 --data d.h5 $few --out full --steps 11 --keep 1
is "the run resumes at step 10" "$(losses out | cut -d' ' -f1 | tr '\n' ' ') $(steps full)" "10 11  step-00000011"

# --- a run that diverges completes the save in progress
status "a run with skipped steps gives status 4" 4 fp8-step m.h5 --data d.h5 $few --lr 1e6 --weight-decay 1e6 --out diverged --steps 9 \
  --save-every 1 --keep 1 --async-save
newest=$(printf '%s\n' diverged/step-* | tail -1)
is "the save in progress is committed" "$(field path diverged/log.jsonl | tail -1) $(find diverged -name '*tmp*')" "\"$newest\" "
ok "the committed checkpoint verifies" fp8-info --verify "$newest"

# --- a log that fails
mkdir logfull && ln -s /dev/full logfull/log.jsonl
fp8-step m.h5 --data d.h5 $few --out logfull --steps 3 >out 2>err
is "a log on a full disk does not stop the run" "$? $(story out)" "0 run warning step1 step2 step3 checkpoint3 end3 "
is "messages state the cause and the number of lost records" "$(cat err)" \
  "$(printf '%s\n' "fp8-step: logfull/log.jsonl: cannot write: No space left on device; records are buffered in memory until they can be written" \
  "fp8-step: logfull/log.jsonl: lacks the last 7 records")"

done_testing
