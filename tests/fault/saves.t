#!/bin/sh
# A save of one rank, killed at every call by which it changes something: nothing that was committed is lost, and the run goes on to the same
# bytes. Also when the disk loses its power, and with it what was not synced.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
. "$SRC/tests/fault/lib.sh"
train="fp8-step ../m.h5 --data ../d.h5 --seq-length 16 --batch-size 2 --steps 3 --save-every 1 --lr 1e-2 --out run -q"

ok "the first step of a run" $train --until-step 1
cp -r run ../base
ok "which goes on, and nothing disturbs it" $train
mv run ../full
begin() { rm -rf run && cp -r ../base run; }
# What was interrupted goes on: the same bytes, nothing unfinished, a log that tells of each step once.
goes_on() {
  [ -d run/step-00000001 ] || $train --until-step 1 >../out 2>../err </dev/null
  $train >../out 2>../err </dev/null || complain "it does not go on"
  same run/step-00000002 ../full/step-00000002
  same run/step-00000003 ../full/step-00000003
  for left in run/*.tmp; do [ ! -e "$left" ] || complain "$left is left"; done
  [ "$(fp8-log run --json 2>../err | grep -c '"steps":3,')" = 1 ] || complain "the log cannot be read"
}

# campaign NAME DO CALLS FLAGS: the run is killed at each of these calls; every tenth goes on. With threads the order of calls may vary.
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
campaign "killed at each call of a save beside the steps" kill "$words" --async-save
campaign "power lost at each call of a save beside the steps" power "$words" --async-save

# A damaged step is replaced, older ones go: at each moment there is one to go on from.
cp -r ../full/step-00000002 ../base && printf '\001' | dd of=../base/step-00000002/rank-00000-of-00001.h5 bs=1 seek=300000 conv=notrunc 2>/dev/null
begin
calls $train --keep 1 --until-step 2 >/dev/null
for do in kill power; do
  for at in $(some "mkdir fsync rename unlink"); do
    begin
    kill_at $do $at $train --keep 1 --until-step 2
    fp8-resume run --print >../out 2>../err || complain "no step is left"
    goes_on
  done
  tally "$do: at each moment of replacing and removing"
done
rm -r ../base/step-00000002

# fp8-resume, killed while it counts attempts: it counts on, and the run goes on.
export FAULT_IN=fp8-resume
begin
calls fp8-resume run --attempts 2 -q -- sh -c 'exit 1' >/dev/null 2>&1
for do in kill power; do
  for at in $(some); do
    begin
    kill_at $do "$at" fp8-resume run --attempts 2 -q -- sh -c 'exit 1'
    whole run 1
    fp8-resume run --attempts 2 -q -- $train >../out 2>../err </dev/null || complain "it does not go on"
    is_left=$(cd run && echo .*.tmp)
    [ "$is_left" = ".*.tmp" ] || complain "$is_left is left"
  done
  tally "$do: fp8-resume, at each call"
done
unset FAULT_IN

# The folder of a run is on the disk before its first step is.
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
