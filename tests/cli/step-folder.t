#!/bin/sh
# fp8-step ends with status 2 and writes nothing more when its folder or the lock in it has been removed, renamed or replaced. Each case stops
# rank 0, changes the folder, and lets it go on.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
flags="m.h5 --data d.h5 --seq-length 32 --batch-size 2 --save-every 2 --keep 2 --seed 1 -q"
other="m.h5 --data d.h5 --seq-length 32 --batch-size 2 --save-every 2 --seed 2 -q" # of the second run
gone='run: the folder of this run has been removed or renamed; the run ends and writes nothing more'
replaced='run: another folder has taken the place of the folder of this run; the run ends and writes nothing more'
unlocked='run/.lock: has been removed or replaced while this run held the lock, so another job may write to the folder; the run ends and writes nothing more'

# begin COMMAND...: starts a run of a million steps, and stops its rank 0, process $rank, between step 10 and its end
begin() {
  rm -rf run moved first
  "$@" >first 2>first.err </dev/null &
  job=$!
  tries=0
  until grep -qs '"type":"checkpoint","step":10,' run/log.jsonl || [ $((tries += 1)) = 600 ]; do sleep 0.1; done
  rank=$(sed 's/.*process \([0-9]*\),.*/\1/' run/.lock)
  kill -STOP "$rank"
  until [ "$(sed 's/.*) \(.\).*/\1/' "/proc/$rank/stat")" = T ]; do sleep 0.1; done
}
# ends NAME REGEX: lets the run go on; passes if it ends with status 2 and one line that matches
ends() {
  kill -CONT "$rank"
  timeout 20 tail -s 0.1 --pid=$job -f /dev/null
  kill -KILL $job 2>/dev/null
  wait $job
  got="$? $(grep -c '^fp8-step' first.err) $(grep -Ec "^fp8-step: (rank 0: )?$2\$" first.err)"
  [ "$got" = "2 1 1" ] || sed 's/^/# /' first.err >&2
  is "$1: status 2 and one line" "$got" "2 1 1"
}
# intact NAME STEPS: passes if run/ has the checkpoints of a second run alone, all valid, and its log alone
intact() {
  bad=
  for s in run/step-*; do fp8-info --verify "$s" >out 2>err || bad="$bad $s"; done
  is "$1: the checkpoints of the second run are valid" "$bad" ""
  is "$1: and there are no others" "$(cd run && echo step-*)" "$2"
  is "$1: its log holds no record of the first" "$(story run/log.jsonl)" "run step1 step2 checkpoint2 step3 step4 checkpoint4 end4 "
}
four="step-00000002 step-00000004"
content() { # of what counts: not the lock, and no temporary folder, whose files are open
  find "$1" -type f ! -name .lock ! -path "*.tmp/*" -exec cksum {} + | sort -k3
}

# --- the folder is removed, and a second run makes its own there
for kind in "" --async-save "mpirun -n 2"; do
  start='' more=$kind
  [ "$kind" != "mpirun -n 2" ] || start=$kind more="--batch-size 1 --async-save"
  case="removed and made again${kind:+, $kind}"
  begin $start fp8-step $flags $more --out run --steps 1000000
  rm -rf run
  ok "$case: a second run" fp8-step $other --out run --steps 4
  ends "$case" "$replaced"
  intact "$case" "$four"
done

# --- the folder is renamed
begin fp8-step $flags --async-save --out run --steps 1000000 --tensor-stats-every 1 --precision fp8
mv run moved
content moved >before
ends "renamed" "$gone"
content moved >after
is "renamed: nothing more is written" "$(cat after)" "$(cat before)"
status "renamed: no folder is made in its place" 1 test -e run
ok "renamed: the run goes on in the new place" fp8-step $flags --out moved --steps 1000000 --until-step 30 --precision fp8

# --- the lock is removed, and a second job begins
begin fp8-step $flags --out run --steps 1000000
rm run/.lock
next=$(($(fp8-resume run --print | sed 's/.*step-0*//') + 3))
ok "lock removed: a second job" fp8-step $flags --out run --steps 1000000 --until-step $next
content run >before
ends "lock removed" "$unlocked"
is "lock removed: the first job writes nothing more" "$(content run)" "$(cat before)"

# --- under fp8-resume
begin fp8-resume run -- fp8-step $flags --steps 1000000
rm -rf run
ok "under fp8-resume: a second run" fp8-step $other --out run --steps 4
echo '{}' >run/attempts.json # of a second fp8-resume
ends "under fp8-resume" "$replaced"
is "under fp8-resume: the command is not started again" "$(grep -c '"action":"launch"' first)" 1
is "under fp8-resume: the count of attempts of the second run stays" "$(cat run/attempts.json)" '{}'
intact "under fp8-resume" "$four"

begin fp8-resume run -- fp8-step $flags --steps 1000000
mv run moved
kill -KILL "$rank"
timeout 20 tail -s 0.1 --pid=$job -f /dev/null
wait $job
is "under fp8-resume: no new start where the folder was" "$? $(grep -c '"action":"launch"' first) $(tail -1 first.err)" "2 1 fp8-resume: $gone"
status "under fp8-resume: no folder is made in its place" 1 test -e run
done_testing
