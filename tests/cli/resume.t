#!/bin/sh
# fp8-resume on the command line: phases, crashes, damaged checkpoints, commands without progress, errors in phases files, signals.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

head -c 20000 "$SRC/share/text/tinyshakespeare.txt" >text.txt
fp8-tokenize text.txt -o data.h5 >out 2>err && fp8-init tiny -o model.h5 >out 2>err
result $? "a model and data are made"

# resume ARGUMENTS... -- FLAGS...: runs fp8-step with FLAGS under fp8-resume with ARGUMENTS.
resume() {
  before=
  while [ "$1" != -- ]; do
    before="$before $1"
    shift
  done
  shift
  # shellcheck disable=SC2086
  fp8-resume $before -- mpirun -n 2 fp8-step model.h5 --data data.h5 --seq-length 64 --batch-size 4 "$@"
}
actions() { sed -n 's/^{"type":"resume","action":"\([a-z-]*\)".*/\1/p' "$1" | tr '\n' ' '; }
steps() { # RUN: prints step and precision of each step record
  python3 -c 'import json, sys
records = [json.loads(line) for line in open(sys.argv[1] + "/log.jsonl")]
print(*(str(r["step"]) + r["precision"] for r in records if r["type"] == "step"))' "$1"
}
json_lines() { python3 -c 'import json, sys; [json.loads(line) for line in open(sys.argv[1])]' "$1"; }
# until_step N FILE: waits at most a minute until the file has the record of step N.
until_step() {
  i=0
  until grep -qs "^{\"type\":\"step\",\"step\":$1," "$2" || [ $i = 600 ]; do
    sleep 0.1
    i=$((i + 1))
  done
}

# Plans.
printf '2 --precision bf16\n4 --precision fp8\n' >two.phases
status "the phases run to the end of the last" 0 resume runp --phases two.phases -- --steps 4
is "each step runs once, in the precision of its phase" "$(steps runp)" "1bf16 2bf16 3fp8 4fp8"
is "standard output has a record for each decision" "$(actions out)" "phase launch phase resume done "
is "standard output has the records of the command" "$(grep -c '"type":"step"' out)" 4
grep -q '^fp8-resume: phase 2 of 2, to step 4: --precision fp8$' err
result $? "standard error has a line for each decision"
ok "standard output is JSON Lines" json_lines out
is "the run has only the log and its checkpoints" "$(ls runp)" "$(printf 'log.jsonl\nstep-00000002\nstep-00000004')"
status "completed phases give status 0" 0 resume runp --phases two.phases -- --steps 4
is "completed phases print one line" "$(cat err)" "fp8-resume: done: runp/step-00000004"
ok "without --steps, the last step of the phases ends the schedule" resume runs --phases two.phases -- -q
is "both runs end with equal checkpoints" \
  "$(fp8-info runp/step-00000004 --diff runs/step-00000004 | tail -1)" "runp/step-00000004 and runs/step-00000004: equal"
fp8-resume runq -q --phases two.phases -- fp8-step model.h5 --data data.h5 --seq-length 64 --batch-size 8 --quiet >out 2>err
is "-q prints nothing; the command may be without mpirun" "$?$(cat err)" 0
ok "--dry-run succeeds" resume dry --phases two.phases --dry-run -- --steps 4
is "--dry-run reports the first phase and starts nothing" "$(actions out)$(test -e dry; echo $?)" "phase launch 1"
status "share/phases/warmup.phases is valid" 0 fp8-resume dry -n --phases "$SRC/share/phases/warmup.phases" -- fp8-step

# The newest valid checkpoint.
is "--print prints the newest checkpoint" "$(fp8-resume runp --print)" runp/step-00000004
is "--print accepts a trailing slash" "$(fp8-resume runp/ --print)" runp/step-00000004
is "--print --json prints a record" "$(fp8-resume runp --print --json)" '{"type":"checkpoint","path":"runp/step-00000004"}'
ok "fp8-info accepts the record" sh -c 'fp8-resume runp --print --json | fp8-info -'
mkdir empty
for run in empty gone; do
  status "--print without a checkpoint gives status 1: $run" 1 fp8-resume "$run" --print
  is "--print without a checkpoint prints one line: $run" "$(cat out)$(cat err)" "fp8-resume: $run: no checkpoint to resume from"
done
printf x | dd of=runp/step-00000004/rank-00001-of-00002.h5 bs=1 seek=20000 conv=notrunc 2>err
ok "--print skips a damaged checkpoint" fp8-resume runp --print
is "--print prints the older checkpoint" "$(cat out)" runp/step-00000002
grep -q '^fp8-resume: runp/step-00000004: damaged, trying an older one: .*rank-00001-of-00002.h5: ' err
result $? "a message names the damaged checkpoint"
status "a run resumes from the older checkpoint" 0 resume runp --phases two.phases -- --steps 4
is "a record states the damage" "$(actions out)" "damaged phase resume done "
is "the resumed run ends with an equal checkpoint" \
  "$(fp8-info runp/step-00000004 --diff runs/step-00000004 | tail -1)" "runp/step-00000004 and runs/step-00000004: equal"
for step in 2 4; do rm runp/step-0000000$step/rank-00000-of-00002.h5; done
status "--print with all checkpoints damaged gives status 1" 1 fp8-resume runp --print
is "messages name each damaged checkpoint" "$(grep -c 'damaged, trying' err)" 2
is "the last message states why the newest is damaged" \
  "$(grep -c '^fp8-resume: runp: no checkpoint to resume from; the newest: runp/step-00000004' err)" 1
status "a run with all checkpoints damaged gives status 2" 2 resume runp --phases two.phases -- --steps 4
status "a run with all checkpoints damaged gives status 2 with -q" 2 resume runp --phases two.phases -q -- --steps 4
is "the message has the hint and the cause" "$(sed 's/; the newest: runp.step-00000004.rank-00000-of-00002.h5: .*/; WHY/' err)" \
  "fp8-resume: runp: every checkpoint in it is damaged; move them away to start again; WHY"

# Crashes.
cat >crash.sh <<'END'
#!/bin/sh
# Runs its arguments; the first time, kills the ranks after step 3.
[ -e crashed ] && exec "$@"
touch crashed
"$@" &
i=0
until grep -qs '^{"type":"step","step":3,' runc/log.jsonl || [ $i = 600 ]; do sleep 0.1; i=$((i + 1)); done
kill -KILL $(pgrep -P $!)
wait $!
END
chmod +x crash.sh
printf '2000 --precision bf16\n' >long.phases
fp8-resume runc --attempts 2 -- ./crash.sh mpirun -n 2 fp8-step model.h5 --data data.h5 --seq-length 64 --batch-size 4 \
  --steps 100 --save-every 2 --keep 2 --quiet >out 2>err </dev/null
is "a run whose ranks were killed is completed" $? 0
is "the run is completed by a retry" "$(actions out)" "launch retry resume done "
grep -q '"action":"retry","ended":"status 137",.*"progress":true' out
result $? "the retry record states progress"
ok "standard output of a retried run is JSON Lines" json_lines out
is "no step is missing" "$(python3 -c '
import json
steps = [r["step"] for r in map(json.loads, open("runc/log.jsonl")) if r["type"] == "step"]
print(sorted(set(steps)) == list(range(1, 101)))')" True

printf '#!/bin/sh\necho start >>starts\necho "out of luck" >&2\nexit 9\n' >fails
chmod +x fails
status "a command without progress gives status 2" 2 fp8-resume rung -- ./fails
is "fp8-resume gives up after three attempts" "$(wc -l <starts)" 3
is "the message has the stderr tail" "$(tail -3 err)" "fp8-resume: stderr tail of the last attempt:
fp8-resume:   out of luck
fp8-resume: rung: gave up after 3 attempts without a newer checkpoint, the last with status 9; to try again after fixing the cause, remove \
rung/attempts.json"
is "the last record is of giving up" "$(tail -1 out)" \
  '{"type":"resume","action":"give-up","ended":"status 9","attempts":3,"stderr_tail":["out of luck"]}'
status "a further start gives status 2" 2 fp8-resume rung -- ./fails
is "a further start does not run the command" "$(wc -l <starts)" 3
ok "a command with status 0 and without phases is done" fp8-resume rung -- true
ok "the count of attempts is removed" test ! -e rung/attempts.json
status "a command that never reaches its phase gives status 2" 2 fp8-resume runn --phases two.phases --attempts 2 -- true
is "the message names the step that was not reached" \
  "$(tail -1 err | cut -d';' -f1)" "fp8-resume: runn: gave up after 2 attempts without a newer checkpoint, the last with status 0 before step 2"
echo '{' >rung/attempts.json
says "a damaged attempts.json is named" '^fp8-resume: rung/attempts.json: line ' fp8-resume rung -- true

# Exit statuses of the command after which fp8-resume does not retry.
for s in 2 3 4; do
  status "status $s of the command is the status of fp8-resume" $s fp8-resume runf -- sh -c "exit $s"
  is "status $s of the command is not retried" "$(actions out)" "launch failed "
done
status "an error in the flags gives status 2" 2 resume runx -- --steps none
echo '6 --lr 1e-3' >lr.phases
status "an error in the flags of a phase gives status 2" 2 resume runs --phases lr.phases --
status "a missing command gives status 2" 2 fp8-resume runx -- no-such-program
is "the message names the missing command" "$(tail -1 err)" "fp8-resume: no-such-program: no such program"

# Signals.
for signal in TERM INT USR1; do
  run=run$signal
  # A shell starts background jobs with INT ignored; python restores the default action.
  python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])' \
    fp8-resume "$run" -- mpirun -n 2 fp8-step model.h5 --data data.h5 --seq-length 64 --batch-size 4 --steps 1000000 >out 2>err </dev/null &
  pid=$!
  until_step 2 "$run/log.jsonl"
  kill -$signal $pid
  wait $pid
  is "$signal: the status is 75" $? 75
  is "$signal: the records are launch, stop and stopped" "$(actions out)" "launch stop stopped "
  grep -q "\"action\":\"stop\",\"signal\":\"$signal\"" out
  result $? "$signal: a record names the signal"
  is "$signal: the checkpoint is that of the last step" "$(fp8-resume "$run" --print)" \
    "$run/$(grep '"type":"step"' "$run/log.jsonl" | tail -1 | sed 's/.*"step":\([0-9]*\),.*/\1/' | xargs printf 'step-%08d')"
  ok "$signal: no attempt is counted" test ! -e "$run/attempts.json"
  is "$signal: no process of the run is left" "$(pgrep -f -- "--out $run" | wc -l)" 0
done
next=$(($(fp8-resume runTERM --print | sed 's/.*step-0*//') + 2))
status "the same command resumes the stopped run" 0 fp8-resume runTERM -- mpirun -n 2 fp8-step model.h5 --data data.h5 --seq-length 64 \
  --batch-size 4 --steps $next
is "the run resumes from the saved step" "$(fp8-resume runTERM --print)" "$(printf 'runTERM/step-%08d' $next)"

# The lock of a run is held by fp8-resume and its command, also after fp8-resume was killed.
fp8-resume runl -- sh -c 'touch up; while [ ! -e free ]; do sleep 0.1; done' >out 2>err </dev/null &
pid=$!
i=0
until [ -e up ] || [ $i = 600 ]; do sleep 0.1 && i=$((i + 1)); done
status "a second fp8-resume in a run gives status 2" 2 fp8-resume runl -- true
is "the message states that the run is in use" "$(cat err)" "fp8-resume: runl: in use by another fp8-resume or by a command that it started"
kill -KILL $pid
wait $pid 2>/dev/null
status "a run whose command still runs is in use after fp8-resume was killed" 2 fp8-resume runl -- true
touch free
i=0
until fp8-resume runl --attempts 9 -- true >out 2>err || [ $i = 100 ]; do sleep 0.1 && i=$((i + 1)); done
is "a run is free after its command has ended" "$(actions out)" "launch done "

# A full or closed standard output.
fp8-resume runo -- sh -c 'trap "exit 75" USR1; while :; do echo line; sleep 0.05; done' >/dev/full 2>err </dev/null
is "a full standard output gives status 2" $? 2
is "a full standard output is named" "$(tail -1 err)" "fp8-resume: standard output: No space left on device"
{ fp8-resume runo -- sh -c 'trap "touch asked; exit 75" USR1; while :; do echo line; sleep 0.05; done' 2>err </dev/null; echo $? >code; } |
  head -3 >out
is "a closed standard output stops the command, without a message" "$(cat code) $(ls asked) $(grep -vc '^fp8-resume: starting' err)" "0 asked 0"

# Errors in phases files.
bad() { # TEXT MESSAGE
  printf '%b' "$1" >bad.phases
  status "an invalid phases file gives status 2: $2" 2 fp8-resume runx --phases bad.phases -- touch started
  is "an invalid phases file is refused in one line: $2" "$(cat err)" "fp8-resume: bad.phases$2"
}
bad '' ': has no phase'
bad '# nothing\n\n' ': has no phase'
bad '2 --a\nten --b\n' ':2: expected the step at which the phase ends, found "ten"'
bad '0\n' ':1: expected the step at which the phase ends, found "0"'
bad '4\n\n# 5\n4\n' ':4: step 4 is not above 4, the end of the previous phase'
bad '4 fp8\n' ':1: expected a flag after the step, found "fp8"'
bad "4 --filter 'a\n" ':1: unterminated quote'
bad '4 --a \\\n' ':1: backslash: not an escape character here; put the word in quotes'
bad '4 --a\r\n' ':1: a carriage return; lines end in a newline alone'
bad '4 --a \0033[31m\n' ':1: a control character'
bad '4 --a \0377\n' ':1: not UTF-8'
for flag in out until-step steps epochs; do bad "4 --$flag 3\n" ":1: --$flag is not allowed in a phase"; done
is "invalid phases files start nothing" "$(test -e started; echo $?)" 1
printf '2 --precision bf16\n4 --precison fp8\n' >late.phases
for way in "" -n; do
  says "a flag of a late phase is refused before the first starts${way:+, with $way}" \
    '^fp8-resume: late.phases:2: --precison: unknown flag \(did you mean --precision\?\)$' resume late --phases late.phases $way -- --steps 4
done
is "and nothing is started or written" "$(ls -d late 2>/dev/null)" ""
printf '2 --precision bf16\n4 --min-lr 1\n' >late.phases
says "and so is a flag that contradicts the command" '^fp8-resume: late.phases:2: --min-lr: above --lr$' resume late --phases late.phases -- --steps 4
says "a missing phases file is refused" '^fp8-resume: gone.phases: No such file' fp8-resume runx --phases gone.phases -- true
says "a last phase after --steps is refused" '^fp8-resume: two.phases:2: step 4 is after the end of the run, --steps 3$' \
  fp8-resume runx --phases two.phases -- fp8-step --steps 3

# The command line.
refused() { # NAME MESSAGE ARGUMENTS...
  name=$1 message=$2
  shift 2
  status "$name: status 2" 2 fp8-resume "$@"
  is "$name: message" "$(cat err)" "fp8-resume: $message"
}
refused "no command" "COMMAND: needed after -- (or --print)" run
refused "no run" "RUN: needed (see --help)" --print
refused "a command with --print" "--print: not together with a command" run --print -- true
refused "phases with --print" "--phases: not together with --print" run --print --phases two.phases
refused "--json without --print" "--json: only with --print; a run prints JSON Lines anyway" run --json -- true
status "--attempts 0 gives status 2" 2 fp8-resume run --attempts 0 -- true
: >file
refused "a run that is a file" "file: exists and is not a folder" file -- true
# Phases in a pipe.
mkfifo phases.pipe
: >err
fp8-resume piped --phases phases.pipe --dry-run -- fp8-step i.h5 >out 2>err &
job=$!
tries=0
until [ -s err ] || [ $((tries = tries + 1)) = 200 ]; do sleep 0.05; done
is "a pipe without phases is named in a message" "$(cat err)" \
  "fp8-resume: phases.pipe: is a pipe to which nothing has been written yet; waiting"
echo '2 --precision bf16' >phases.pipe
wait $job
is "the phases are read when they arrive" "$? $(grep -c -- '--until-step 2' err)" "0 1"

done_testing
