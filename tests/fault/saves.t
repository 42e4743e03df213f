#!/bin/sh
# A save of one rank, killed at each counted call, also with a power loss that drops unsynced data: no committed checkpoint is lost, and the
# resumed run ends with equal checkpoints.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
. "$SRC/tests/fault/lib.sh"
train="fp8-step ../m.h5 --data ../d.h5 --seq-length 16 --batch-size 2 --steps 3 --save-every 1 --lr 1e-2 --out run -q"

ok "a run of one step" $train --until-step 1
cp -r run ../base
ok "the run resumes without a fault" $train
mv run ../full
begin() { rm -rf run && cp -r ../base run; }
# Resumes the run; complains unless the checkpoints are those of the uninterrupted run, no temporary folder is left, and the log is complete.
goes_on() {
  [ -d run/step-00000001 ] || $train --until-step 1 >../out 2>../err </dev/null
  $train >../out 2>../err </dev/null || complain "the run does not resume"
  same run/step-00000002 ../full/step-00000002
  same run/step-00000003 ../full/step-00000003
  for left in run/*.tmp; do [ ! -e "$left" ] || complain "$left is left"; done
  [ "$(fp8-log run --json 2>../err | grep -c '"steps":3,')" = 1 ] || complain "the log cannot be read"
}

# campaign NAME DO CALLS FLAGS: kills the run at each of the CALLS and resumes every tenth. With threads the order of calls may vary by $slack.
campaign() {
  name=$1 do=$2 calls=$3 flags=$4 number=0
  begin
  calls $train $flags >/dev/null
  for at in $(some "$calls"); do
    begin
    kill_at $do $at $train $flags
    must=1
    [ "$at" -le $(($(committed 2) + slack)) ] || must="1 2"
    whole run $must
    number=$((number + 1))
    [ $((number % 10)) != 1 ] || goes_on
  done
  tally "$name"
}
slack=0
campaign "killed at each call of a save" kill "" "--until-step 2"
campaign "killed in the middle of each write" torn write "--until-step 2"
campaign "power lost at each call of a save" power "" "--until-step 2"
campaign "bytes lost at each sync and rename" bytes "fsync rename" "--until-step 2"
slack=5 words="mkdir rename fsync unlink"
[ "$faults" != all ] || words=
campaign "killed at each call of an asynchronous save" kill "$words" --async-save
campaign "power lost at each call of an asynchronous save" power "$words" --async-save

# A damaged checkpoint is replaced and older ones are removed: at each call there is a valid checkpoint.
cp -r ../full/step-00000002 ../base && printf '\001' | dd of=../base/step-00000002/rank-00000-of-00001.h5 bs=1 seek=300000 conv=notrunc 2>/dev/null
begin
calls $train --keep 1 --until-step 2 >/dev/null
for do in kill power; do
  for at in $(some "mkdir fsync rename unlink"); do
    begin
    kill_at $do $at $train --keep 1 --until-step 2
    fp8-resume run --print >../out 2>../err || complain "no checkpoint is left"
    goes_on
  done
  tally "$do: at each call of replacing and removing checkpoints"
done
rm -r ../base/step-00000002

# fp8-resume is killed while it writes its count of attempts: the count stays valid and the run resumes.
export FAULT_IN=fp8-resume
begin
calls fp8-resume run --attempts 2 -q -- sh -c 'exit 1' >/dev/null 2>&1
for do in kill power; do
  for at in $(some); do
    begin
    kill_at $do "$at" fp8-resume run --attempts 2 -q -- sh -c 'exit 1'
    whole run 1
    fp8-resume run --attempts 2 -q -- $train >../out 2>../err </dev/null || complain "the run does not resume"
    is_left=$(cd run && echo .*.tmp)
    [ "$is_left" = ".*.tmp" ] || complain "$is_left is left"
  done
  tally "$do: fp8-resume, at each call"
done
unset FAULT_IN

# The folder of a run is synced before its first checkpoint.
rm -rf run && calls $train --until-step 1 >/dev/null
for at in $(some "mkdir fsync rename"); do
  rm -rf run
  kill_at power $at $train --until-step 1
  [ ! -d run/step-00000001 ] || whole run 1
  goes_on
done
rm -rf run
kill_at power $(($(committed 1) + 1)) $train --until-step 1
whole run 1
tally "power: the first save of a run"
finish
