#!/bin/sh
# fp8-step locks the folder of a run: a second job is refused, alone, under mpirun and under fp8-resume.
# shellcheck disable=SC2016,SC2086 # another shell expands the variables; lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
flags="m.h5 --data d.h5 --seq-length 32 --batch-size 2 --save-every 5 --keep 2 -q"
until_saved() { # FOLDER: waits at most a minute for the checkpoint of step 20
  tries=0
  until grep -qs '"type":"checkpoint","step":20' "$1/log.jsonl" || [ $((tries += 1)) = 600 ]; do sleep 0.1; done
}
held="another fp8-step uses this folder: host $(uname -n), process"
since='since 20[0-9-]*T[0-9:.]*Z; wait until it ends, or use another --out'
# second NAME COMMAND...: passes if the command gives status 2 within 5 s and one line that names $pid
second() {
  name=$1
  shift
  timeout 5 "$@" >out 2>err </dev/null
  is "a second job $name: status 2 and one line" "$? $(grep -c '^fp8-step' err) $(grep -Ec "^fp8-step: (rank 0: )?run/?: $held $pid, $since\$" err)" \
    "2 1 1"
  is "a second job $name: no record" "$(grep -c '"type":"\(run\|step\)"' out)" 0
}

# --- a second job while the first one runs
fp8-step $flags --milestone-every 20 --out run --steps 1000000 >first 2>notes </dev/null &
pid=$!
until_saved run
second "alone" fp8-step $flags --out run --steps 1000000
second "with another command line" fp8-step $flags --out run/ --steps 3
second "under mpirun" mpirun -n 2 fp8-step $flags --out run --steps 1000000
second "under fp8-resume" fp8-resume run -- fp8-step $flags --steps 1000000
is "fp8-resume does not retry the refused job" "$(tail -1 out | cut -d, -f1-3)" '{"type":"resume","action":"failed","status":2'
ok "a dry run is not refused" fp8-step $flags --out run --steps 1000000 -n
ok "an evaluation is not refused" fp8-eval run/step-00000020 --data d.h5 --seq-length 32
kill -KILL $pid
wait $pid 2>/dev/null
is "a killed job leaves its name in the lock file" "$(grep -c "process $pid," run/.lock)" 1
next=$(($(fp8-resume run --print | sed 's/.*step-0*//') + 1))
ok "the lock of a killed job is free" fp8-step $flags --out run --steps 1000000 --until-step $next
is "a job that ends leaves an empty lock file" "$(wc -c <run/.lock)" 0
ok "all checkpoints verify" sh -c 'for s in run/step-????????; do fp8-info --verify $s || exit 1; done'

# --- a job started by fp8-resume holds the lock
rm first # of the job before
fp8-resume run -- mpirun -n 2 fp8-step $flags --batch-size 1 --steps 1000000 >first 2>notes </dev/null &
resume=$!
tries=0
until grep -qs '"type":"step"' first || [ $((tries += 1)) = 600 ]; do sleep 0.1; done
pid=$(sed 's/.*process \([0-9]*\),.*/\1/' run/.lock)
is "the lock names a rank" "$(tr '\0' '\n' <"/proc/$pid/environ" | grep OMPI_COMM_WORLD_RANK=)" "OMPI_COMM_WORLD_RANK=0"
second "beside fp8-resume" fp8-step $flags --out run --steps 1000000
kill -TERM $resume
wait $resume
is "the first job is not disturbed" $? 75

# --- two jobs started at the same time: one runs, the other is refused, and all checkpoints verify
bad="" both=0
for try in 1 2 3 4 5 6; do
  rm -rf run
  [ $try -gt 3 ] || mkdir run
  rm -f ./?.err
  for job in a b; do
    fp8-step $flags --out run --steps 1000000 >$job.log 2>$job.err </dev/null &
    echo $! >$job.pid
  done
  tries=0
  until grep -qs 'uses this folder' ./?.err || [ $((tries += 1)) = 600 ]; do sleep 0.1; done
  until_saved run
  grep -q 'uses this folder' a.err && loser=a winner=b || loser=b winner=a
  kill -USR1 "$(cat $winner.pid)"
  wait "$(cat $winner.pid)"
  [ $? = 75 ] || bad="$bad $try:winner"
  wait "$(cat $loser.pid)"
  [ $? = 2 ] || bad="$bad $try:loser"
  [ "$(grep -c "process $(cat $winner.pid), $since" $loser.err)" = 1 ] || bad="$bad $try:name"
  [ ! -s $loser.log ] || both=$((both + 1))
  for s in run/step-????????; do fp8-info --verify "$s" >/dev/null 2>&1 || bad="$bad $try:$s"; done
done
is "in six races one job runs and the other names it" "$bad" ""
is "no refused job made a step" $both 0
done_testing
