#!/bin/sh
# A disk that fails during a save: the earlier checkpoint stays valid, training continues, warns and retries the save.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
. "$SRC/tests/fault/lib.sh"
base="fp8-step ../m.h5 --data ../d.h5 --seq-length 16 --batch-size 2 --save-every 1 --lr 1e-2 --out run -q"
train="$base --steps 6"
ok "a run of one step" $train --until-step 1
cp -r run ../base
ok "the run resumes without a fault" $train
mv run ../full
begin() { rm -rf run && cp -r ../base run; }
warnings() { grep -c '"type":"warning"' run/log.jsonl; }
steps() { sed -n 's/^{"type":"step","step":\([0-9]*\),.*/\1/p' run/log.jsonl | tr '\n' ' '; }

# One call of the save of step 2 fails: the run continues.
begin
calls $train --until-step 2 >/dev/null
first=$(grep -n 'mkdir .*/step-00000002.tmp$' ../calls | cut -d: -f1) last=$(committed 2)
ways=eio
[ "$faults" != all ] || ways="eio enospc"
for do in $ways; do
  tried=0
  for at in $(some ""); do
    if [ "$at" -lt "$first" ] || [ "$at" -gt "$last" ]; then continue; fi
    begin
    faulty $do $at $train
    got=$?
    tried=$((tried + 1))
    [ $got = 0 ] || complain "$do at call $at: status $got"
    # HDF5 opens a new file twice and ignores a failure of the first open.
    [ "$(warnings)" -ge 1 ] || grep -q '"type":"checkpoint","step":2,' run/log.jsonl || complain "$do at call $at: no warning"
    [ "$(steps)" = "1 2 3 4 5 6 " ] || complain "$do at call $at: steps $(steps)"
    whole run 1 6
    same run/step-00000006 ../full/step-00000006
    for left in run/*.tmp; do [ ! -e "$left" ] || complain "$left is left"; done
  done
  nothing_lost "$do at each call of a save, $tried calls: the run continues and retries" $tried
done

# All calls fail from some call on: the run makes its steps and reports the lost save at the end.
for do in eio enospc; do
  for at in $first $(((first + last) / 2)) $last; do
    begin
    FAULT_FOR=0 faulty $do $at $train
    got=$?
    [ $got = 2 ] || complain "$do from call $at on: status $got"
    grep -q '^fp8-step: .*step-0000000[26]' ../err || complain "$do from call $at on: no message"
    whole run 1
  done
  nothing_lost "$do for all calls from some call on: the run reports the lost save" 3
done

# A limit on the file size (RLIMIT_FSIZE) that is set while the program runs, and that is removed some calls later.
begin
FAULT_BYTES=600000 FAULT_FOR=0 faulty limit 1 $train
is "a limit on the file size gives status 2" $? 2
grep -q '^fp8-step: step 2 is not saved: .*File too large' ../err || complain "a limit on the file size: no message"
whole run 1
begin
FAULT_BYTES=1000 faulty limit $(((first + last) / 2)) $train || complain "a temporary limit on the file size"
[ "$(warnings)" = 1 ] || complain "warnings: $(warnings)"
same run/step-00000006 ../full/step-00000006
nothing_lost "a temporary limit on the file size: the save is retried" 2

# A disk that becomes full or read-only during a run, and is repaired later.
wait_for() { # REGEX: waits at most a minute until a new line of the log matches
  tries=0
  until sed -n "$from,\$p" ../log 2>/dev/null | grep -Eq "$1" || [ $tries = 600 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
  [ $tries -lt 600 ] || complain "no $1"
  from=$(($(wc -l <../log) + 1))
}
trap 'umount -l "$place/run" 2>/dev/null; cd / && rm -rf "$work"' EXIT
ailing() { # NAME MOUNT BREAK REPAIR FLAGS: the run saves, fails to save after BREAK, and saves again after REPAIR
  rm -rf run ../log && mkdir run # the job may start later than the first wait for its log
  if ! (mkdir -p ../try && mount -t tmpfs none ../try && umount ../try && eval "$2") 2>../err; then
    result 0 "$1 # SKIP $(head -1 ../err)"
    return
  fi
  cp -r ../base/. run
  $base --steps 100000 --save-every 2 --keep 1 $5 >../log 2>../said </dev/null &
  job=$! from=1
  wait_for '"type":"checkpoint"'
  eval "$3" || complain "cannot break it"
  wait_for '"type":"warning".*is not saved'
  whole run
  eval "$4" || complain "cannot repair it"
  wait_for '"type":"checkpoint"'
  kill -USR1 $job
  wait $job
  got=$?
  [ $got = 75 ] || complain "status $got"
  whole run
  [ "$(steps | tr ' ' '\n' | awk 'NF && $1 != NR { print NR }')" = "" ] || complain "the log lacks steps"
  umount run 2>/dev/null
  nothing_lost "$1" 1
}
# Remounting fails while a file is open for writing; it is retried for at most ten seconds.
read_only() {
  mount --bind run run || return
  tries=0
  until mount -o remount,ro,bind run 2>>../err; do
    tries=$((tries + 1))
    [ $tries -lt 1000 ] || return
    sleep 0.01
  done
}
for do in $ways; do
  flags=
  [ "$do" = eio ] || flags=--async-save
  ailing "a full disk${flags:+, $flags}: the run saves again after space is freed" "mount -t tmpfs -o size=4m none run" \
    "{ cat /dev/zero >run/filler; test -s run/filler; } 2>/dev/null" "rm run/filler" "$flags"
  ailing "a disk that becomes read-only${flags:+, $flags}: the run saves again after it is writable" true read_only "umount -l run" "$flags"
done

# A disk that holds no checkpoint, or one and not two.
rm -rf run && mkdir run
if mount -t tmpfs -o size=1m none run 2>../err; then
  refusal='run: a checkpoint needs 1\.[0-9]* MiB, and (1|10[0-9]*) [KM]iB are free: free some space, or use another --out'
  refused "a disk too small for a checkpoint" "$refusal" ${train#fp8-step }
  says "a disk too small for a checkpoint, the folder does not exist" "^fp8-step: $(echo "$refusal" | sed 's,^run,run/a/b,')" $train --out run/a/b
  is "a disk too small for a checkpoint: nothing is written" "$(ls run)" ""
  ${base% -q} --steps 6 -n >../out 2>../err
  is "a disk too small for a checkpoint: -n has status 0" $? 0
  says "a disk too small for a checkpoint: -n has the sizes" '^fp8-step: a checkpoint takes 1\.[0-9]* MiB; run has (1|10[0-9]*) [KM]iB free' \
    cat ../err
  says "a disk too small for a checkpoint: -n warns" "^fp8-step: $refusal" cat ../err
  mpirun -n 2 $train --batch-size 1 >../out 2>../err </dev/null
  is "a disk too small for the files of two ranks: status 2" $? 2
  says "a disk too small for the files of two ranks: one rank says so" "^fp8-step: rank 0: $refusal" cat ../err
  umount run
fi
if mount -t tmpfs -o size=2m none run 2>../err; then
  cp -r ../base/. run
  mkdir run/step-00000002.tmp && head -c 500000 /dev/zero >run/step-00000002.tmp/rank-00000-of-00001.h5
  refused "no room for a second checkpoint" 'run: a checkpoint needs 1\.[0-9]* MiB, and .* KiB are free' ${train#fp8-step }
  ok "the remains of a save are removed before free space is read" test ! -e run/step-00000002.tmp
  umount run
fi
if mount -t tmpfs -o size=4m none run 2>../err; then
  note='up to 6 new checkpoints of 1\.[0-9]* MiB, and (4|3\.[0-9]*) MiB are free'
  says "a disk too small for all checkpoints: a note" "^fp8-step: run: $note: .*--keep 1 needs room for two" ${base% -q} --steps 6 -n
  $base --steps 6 --keep 1 >../out 2>../err </dev/null
  is "--keep 1 trains with room for two checkpoints" "$? $(steps) $(grep -c 'are free' ../err)" "0 1 2 3 4 5 6  0"
  umount run
fi
finish
