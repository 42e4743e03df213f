#!/bin/sh
# A run that is killed repeatedly at random times, with and without fp8-resume: no committed checkpoint is lost, and the last checkpoint is
# equal to that of an uninterrupted run.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
. "$SRC/tests/fault/lib.sh"
[ "$faults" = all ] && wanted=60 || wanted=5
train="fp8-step ../m.h5 --data ../d.h5 --seq-length 32 --batch-size 4 --steps 40 --save-every 1 --keep 3 --out run --config ../way.json -q"
echo "{}" >../way.json
since() { date +%s.%N | awk -v begin="$1" '{ print $1 - begin }'; } # BEGIN: prints the seconds since then
begin=$(date +%s.%N)
ok "an uninterrupted run" $train
took=$(since "$begin")
mv run ../full
# seconds SEED LEAST MOST: prints a random time between LEAST and MOST times the duration of a run
seconds() { awk -v seed="$1" -v least="$2" -v most="$3" -v took="$took" 'BEGIN { srand(seed); print took * (least + rand() * (most - least)) }'; }
# killed SECONDS COMMAND...: kills the command after SECONDS and returns its status. Waits for the end of all threads, which hold the lock.
killed() {
  after=$1
  shift
  "$@" >../out 2>../err </dev/null &
  trained=$!
  { sleep "$after" && kill -KILL $trained; } 2>/dev/null &
  { wait $trained; } 2>/dev/null
  got=$?
  kill $! 2>/dev/null
  return $got
}
newest() { fp8-resume run --print 2>/dev/null | sed 's/.*step-0*//'; }

before=0 number=0
while [ $kills -lt $wanted ] && [ $number -lt 500 ]; do
  number=$((number + 1))
  echo "{\"async-save\": $([ $((number % 2)) = 0 ] && echo true || echo false)}" >../way.json
  begin=$(date +%s.%N)
  killed "$(seconds $number 0.3 1.1)" $train
  got=$?
  if [ $got = 0 ]; then
    same run/step-00000040 ../full/step-00000040
    [ $before != 0 ] || took=$(since "$begin") # the first run may have been slow
    rm -rf run && before=0
  else
    [ $got = 137 ] || complain "status $got"
    kills=$((kills + 1))
    [ -z "$(newest)" ] || whole run
    after=$(newest)
    [ "${after:-0}" -ge $before ] || complain "step $before is lost"
    before=${after:-0}
  fi
done
$train >../out 2>../err </dev/null || complain "the run does not resume"
same run/step-00000040 ../full/step-00000040
[ "$(fp8-log run --json 2>../err | grep -c '"steps":40,')" = 1 ] || complain "the log cannot be read"
tally "killed at random"

rm -rf run ../pid
fp8-resume run --attempts 20 -- sh -c "echo \$\$ >../pid; exec $train" >../out 2>../err </dev/null &
job=$!
[ "$faults" = all ] && wanted=12 || wanted=2
tries=0
until [ -s ../pid ] || [ $((tries += 1)) = 600 ]; do sleep 0.1; done # a busy machine starts it late
step() { find run -maxdepth 1 2>/dev/null | sed -n 's/.*\/step-0*\([0-9]*\)$/\1/p' | sort -n | tail -1 | grep . || echo 0; }
before=0
for number in $(seq $wanted); do
  # The run may be many times as fast as an earlier one was on a busy machine, so each kill follows a new checkpoint.
  until [ "$(step)" -gt $before ] || ! kill -0 $job 2>/dev/null; do sleep 0.02; done
  before=$(step)
  sleep "$(seconds $number 0 0.04)"
  pid=$(cat ../pid 2>/dev/null) && kill -KILL "$pid" 2>/dev/null && kills=$((kills + 1))
done
wait $job
is "fp8-resume restarts the run until it is done" $? 0
same run/step-00000040 ../full/step-00000040
tally "killed at random under fp8-resume"
finish
