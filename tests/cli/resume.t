#!/bin/sh
# fp8-resume on the command line: a run by its plan, crashes, damaged checkpoints, commands that get nowhere, plans with mistakes, signals.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

head -c 20000 "$SRC/share/text/tinyshakespeare.txt" >text.txt
fp8-tokenize text.txt -o data.h5 >out 2>err && fp8-init tiny -o model.h5 >out 2>err
result $? "a model and data"

# resume ARGUMENTS... -- FLAGS...: the run of these flags under fp8-resume.
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
steps() { # RUN: step and precision of each step record
  python3 -c 'import json, sys
records = [json.loads(line) for line in open(sys.argv[1] + "/log.jsonl")]
print(*(str(r["step"]) + r["precision"] for r in records if r["type"] == "step"))' "$1"
}
json_lines() { python3 -c 'import json, sys; [json.loads(line) for line in open(sys.argv[1])]' "$1"; }
# until_step N FILE: waits, a minute at most, until the file has the record of that step.
until_step() {
  i=0
  until grep -qs "^{\"type\":\"step\",\"step\":$1," "$2" || [ $i = 600 ]; do
    sleep 0.1
    i=$((i + 1))
  done
}

# A run by its plan.
printf '2 --precision bf16\n4 --precision fp8\n' >two.plan
status "a plan runs to its end" 0 resume runp --plan two.plan -- --steps 4
is "each step once, in its phase" "$(steps runp)" "1bf16 2bf16 3fp8 4fp8"
is "with a record for each decision" "$(actions out)" "phase launch phase resume done "
is "and the command's own between them" "$(grep -c '"type":"step"' out)" 4
grep -q '^fp8-resume: phase 2 of 2, to step 4: --precision fp8$' err
result $? "and a line for each decision"
ok "standard output is JSON Lines" json_lines out
is "no attempt is left over" "$(ls runp)" "$(printf 'log.jsonl\nstep-00000002\nstep-00000004')"
status "the same again has nothing to do" 0 resume runp --plan two.plan -- --steps 4
is "and says so" "$(cat err)" "fp8-resume: done: runp/step-00000004"
ok "without --steps the plan's end is the schedule's" resume runs --plan two.plan -- -q
is "which is the same run" "$(fp8-info runp/step-00000004 --diff runs/step-00000004 | tail -1)" "runp/step-00000004 and runs/step-00000004: equal"
fp8-resume runq -q --plan two.plan -- fp8-step model.h5 --data data.h5 --seq-length 64 --batch-size 8 --quiet >out 2>err
is "quietly, and without mpirun" "$?$(cat err)" 0
ok "what would run first" resume dry --plan two.plan --dry-run -- --steps 4
is "is reported, and nothing is started" "$(actions out)$(test -e dry; echo $?)" "phase launch 1"
status "a plan of this source" 0 fp8-resume dry -n --plan "$SRC/share/plans/warmup.plan" -- fp8-step

# The newest valid checkpoint.
is "the newest checkpoint" "$(fp8-resume runp --print)" runp/step-00000004
is "with a trailing slash" "$(fp8-resume runp/ --print)" runp/step-00000004
is "as a record" "$(fp8-resume runp --print --json)" '{"type":"checkpoint","path":"runp/step-00000004"}'
ok "that other tools accept" sh -c 'fp8-resume runp --print --json | fp8-info -'
mkdir empty
for run in empty gone; do
  status "none: $run" 1 fp8-resume "$run" --print
  is "says so" "$(cat out)$(cat err)" "fp8-resume: $run: no checkpoint to resume from"
done
printf x | dd of=runp/step-00000004/rank-00001-of-00002.h5 bs=1 seek=20000 conv=notrunc 2>err
ok "a damaged checkpoint is skipped" fp8-resume runp --print
is "for an older one" "$(cat out)" runp/step-00000002
grep -q '^fp8-resume: runp/step-00000004: damaged, trying an older one: .*rank-00001-of-00002.h5: ' err
result $? "and named"
status "a run goes on from the older one" 0 resume runp --plan two.plan -- --steps 4
is "with a record of it" "$(actions out)" "damaged phase resume done "
is "to the same bits" "$(fp8-info runp/step-00000004 --diff runs/step-00000004 | tail -1)" "runp/step-00000004 and runs/step-00000004: equal"
for step in 2 4; do rm runp/step-0000000$step/rank-00000-of-00002.h5; done
status "all of them damaged: none to print" 1 fp8-resume runp --print
is "each is named" "$(grep -c 'damaged, trying' err)" 2
is "and why there is none" "$(grep -c '^fp8-resume: runp: no checkpoint to resume from; the newest: runp/step-00000004' err)" 1
status "nor to go on from" 2 resume runp --plan two.plan -- --steps 4
status "nor without notes" 2 resume runp --plan two.plan -q -- --steps 4
is "the message names the hint and the cause" "$(sed 's/; the newest: runp.step-00000004.rank-00000-of-00002.h5: .*/; WHY/' err)" \
  "fp8-resume: runp: every checkpoint in it is damaged; move them away to start again; WHY"

# Crashes.
cat >crash.sh <<'END'
#!/bin/sh
# Runs its arguments; the first time, kills the ranks once step 3 is done.
[ -e crashed ] && exec "$@"
touch crashed
"$@" &
i=0
until grep -qs '^{"type":"step","step":3,' runc/log.jsonl || [ $i = 600 ]; do sleep 0.1; i=$((i + 1)); done
kill -KILL $(pgrep -P $!)
wait $!
END
chmod +x crash.sh
printf '2000 --precision bf16\n' >long.plan
fp8-resume runc --attempts 2 -- ./crash.sh mpirun -n 2 fp8-step model.h5 --data data.h5 --seq-length 64 --batch-size 4 \
  --steps 100 --save-every 2 --keep 2 --quiet >out 2>err </dev/null
is "a run whose ranks were killed is completed" $? 0
is "by a retry" "$(actions out)" "launch retry resume done "
grep -q '"action":"retry","ended":"status 137",.*"progress":true' out
result $? "after progress"
ok "stdout is still JSON Lines" json_lines out
is "no step is missing" "$(python3 -c '
import json
steps = [r["step"] for r in map(json.loads, open("runc/log.jsonl")) if r["type"] == "step"]
print(sorted(set(steps)) == list(range(1, 101)))')" True

printf '#!/bin/sh\necho start >>starts\necho "out of luck" >&2\nexit 9\n' >fails
chmod +x fails
status "a command without progress is given up" 2 fp8-resume rung -- ./fails
is "after three attempts" "$(wc -l <starts)" 3
is "with its stderr tail" "$(tail -3 err)" "fp8-resume: stderr tail of the last attempt:
fp8-resume:   out of luck
fp8-resume: rung: gave up after 3 attempts without a newer checkpoint, the last with status 9; to try again after fixing the cause, remove rung/attempts.json"
is "and a record" "$(tail -1 out)" '{"type":"resume","action":"give-up","ended":"status 9","attempts":3,"stderr_tail":["out of luck"]}'
status "and stays given up" 2 fp8-resume rung -- ./fails
is "without another start" "$(wc -l <starts)" 3
ok "one that ends well without a plan is done" fp8-resume rung -- true
ok "the count is gone" test ! -e rung/attempts.json
status "one that never reaches its phase" 2 fp8-resume runn --plan two.plan --attempts 2 -- true
is "says that" "$(tail -1 err | cut -d';' -f1)" "fp8-resume: runn: gave up after 2 attempts without a newer checkpoint, the last with status 0 before step 2"
echo '{' >rung/attempts.json
says "a damaged count is named" '^fp8-resume: rung/attempts.json: line ' fp8-resume rung -- true

# Statuses of the command that are final.
for s in 2 3 4; do
  status "status $s ends it" $s fp8-resume runf -- sh -c "exit $s"
  is "at once" "$(actions out)" "launch failed "
done
status "so does an error in the flags" 2 resume runx -- --steps none
echo '6 --lr 1e-3' >lr.plan
status "and one in a phase" 2 resume runs --plan lr.plan --
status "no such command" 2 fp8-resume runx -- no-such-program
is "it says" "$(tail -1 err)" "fp8-resume: no-such-program: no such program"

# Signals.
for signal in TERM INT USR1; do
  run=run$signal
  # A shell starts background jobs with INT ignored; python gives it back.
  python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])' \
    fp8-resume "$run" -- mpirun -n 2 fp8-step model.h5 --data data.h5 --seq-length 64 --batch-size 4 --steps 1000000 >out 2>err </dev/null &
  pid=$!
  until_step 2 "$run/log.jsonl"
  kill -$signal $pid
  wait $pid
  is "$signal: stopped on request" $? 75
  is "$signal: with records" "$(actions out)" "launch stop stopped "
  grep -q "\"action\":\"stop\",\"signal\":\"$signal\"" out
  result $? "$signal: that name it"
  is "$signal: a checkpoint is saved, the last step's" "$(fp8-resume "$run" --print)" \
    "$run/$(grep '"type":"step"' "$run/log.jsonl" | tail -1 | sed 's/.*"step":\([0-9]*\),.*/\1/' | xargs printf 'step-%08d')"
  ok "$signal: no attempt is counted" test ! -e "$run/attempts.json"
  is "$signal: nothing goes on" "$(pgrep -f -- "--out $run" | wc -l)" 0
done
next=$(($(fp8-resume runTERM --print | sed 's/.*step-0*//') + 2))
status "the same goes on" 0 fp8-resume runTERM -- mpirun -n 2 fp8-step model.h5 --data data.h5 --seq-length 64 --batch-size 4 --steps $next
is "from there" "$(fp8-resume runTERM --print)" "$(printf 'runTERM/step-%08d' $next)"

# One at a time, even when fp8-resume is killed and its command is not.
fp8-resume runl -- sh -c 'touch up; while [ ! -e free ]; do sleep 0.1; done' >out 2>err </dev/null &
pid=$!
i=0
until [ -e up ] || [ $i = 600 ]; do sleep 0.1 && i=$((i + 1)); done
status "two in one run are refused" 2 fp8-resume runl -- true
is "it says" "$(cat err)" "fp8-resume: runl: in use by another fp8-resume or by a command that it started"
kill -KILL $pid
wait $pid 2>/dev/null
status "as long as the command goes on" 2 fp8-resume runl -- true
touch free
i=0
until fp8-resume runl --attempts 9 -- true >out 2>err || [ $i = 100 ]; do sleep 0.1 && i=$((i + 1)); done
is "and no longer" "$(actions out)" "launch done "

# Output that goes nowhere.
fp8-resume runo -- sh -c 'trap "exit 75" USR1; while :; do echo line; sleep 0.05; done' >/dev/full 2>err </dev/null
is "a full standard output is status 2" $? 2
is "and named" "$(tail -1 err)" "fp8-resume: standard output: No space left on device"
{ fp8-resume runo -- sh -c 'trap "touch asked; exit 75" USR1; while :; do echo line; sleep 0.05; done' 2>err </dev/null; echo $? >code; } | head -3 >out
is "a closed one stops the command, quietly" "$(cat code) $(ls asked) $(grep -vc '^fp8-resume: starting' err)" "0 asked 0"

# Plans with mistakes.
bad() { # TEXT MESSAGE
  printf '%b' "$1" >bad.plan
  status "a plan with: $2" 2 fp8-resume runx --plan bad.plan -- touch started
  is "is refused" "$(cat err)" "fp8-resume: bad.plan$2"
}
bad '' ': has no phase'
bad '# nothing\n\n' ': has no phase'
bad '2 --a\nten --b\n' ':2: expected the step at which the phase ends, found "ten"'
bad '0\n' ':1: expected the step at which the phase ends, found "0"'
bad '4\n\n# 5\n4\n' ':4: step 4 is not above 4, the end of the previous phase'
bad '4 fp8\n' ':1: expected a flag after the step, found "fp8"'
bad "4 --filter 'a\n" ':1: unterminated quote'
bad '4 --a \\\n' ':1: backslash: not an escape character in a plan; put the word in quotes'
bad '4 --a\r\n' ':1: a carriage return; lines end in a newline alone'
bad '4 --a \0033[31m\n' ':1: a control character'
bad '4 --a \0377\n' ':1: not UTF-8'
for flag in out until-step steps epochs; do bad "4 --$flag 3\n" ":1: --$flag is not allowed in a phase"; done
is "nothing was started" "$(test -e started; echo $?)" 1
says "a plan that is not there" '^fp8-resume: gone.plan: No such file' fp8-resume runx --plan gone.plan -- true
says "a plan that goes on after the run" '^fp8-resume: two.plan:2: step 4 is after the end of the run, --steps 3$' \
  fp8-resume runx --plan two.plan -- fp8-step --steps 3

# The command line.
refused() { # NAME MESSAGE ARGUMENTS...
  name=$1 message=$2
  shift 2
  status "$name" 2 fp8-resume "$@"
  is "$name: it says" "$(cat err)" "fp8-resume: $message"
}
refused "no command" "COMMAND: needed after -- (or --print)" run
refused "no run" "RUN: needed (see --help)" --print
refused "a command with --print" "--print: not together with a command" run --print -- true
refused "a plan with --print" "--plan: not together with --print" run --print --plan two.plan
refused "--json without it" "--json: only with --print; a run prints JSON Lines anyway" run --json -- true
status "no attempts at all" 2 fp8-resume run --attempts 0 -- true
: >file
refused "a run that is a file" "file: exists and is not a folder" file -- true
# A plan in a pipe.
mkfifo plan.pipe
: >err
fp8-resume piped --plan plan.pipe --dry-run -- fp8-step i.h5 >out 2>err &
job=$!
tries=0
until [ -s err ] || [ $((tries = tries + 1)) = 200 ]; do sleep 0.05; done
is "a pipe to which no plan is written is named" "$(cat err)" \
  "fp8-resume: plan.pipe: is a pipe to which nothing has been written yet; waiting"
echo '2 --precision bf16' >plan.pipe
wait $job
is "and read when it comes" "$? $(grep -c -- '--until-step 2' err)" "0 1"

done_testing
