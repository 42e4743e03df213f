#!/bin/sh
# fp8-sweep on the command line: runs and their folders, cores of jobs, failures, signals, --print, errors in sweep files.
# shellcheck disable=SC2016,SC2086 # scripts for other shells; lists of words on purpose
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

head -c 20000 "$SRC/share/text/tinyshakespeare.txt" >text.txt
fp8-tokenize text.txt -o data.h5 >out 2>err && fp8-init tiny -o model.h5 >out 2>err
result $? "a model and data are made"
flags="--data data.h5 --seq-length 64 --batch-size 4 --steps 6 --quiet"

# train ARGUMENTS...: runs fp8-step under fp8-sweep with ARGUMENTS.
train() {
  fp8-sweep "$@" -- mpirun -n 1 fp8-step model.h5 $flags
}
states() { sed -n 's/.*"state":"\([a-z]*\)".*/\1/p' "$1" | tr '\n' ' '; } # FILE: prints the states in the output of --json
# until_there FILE...: waits at most a minute until the files exist.
until_there() {
  for file; do
    i=0
    until [ -e "$file" ] || [ $i = 600 ]; do sleep 0.1 && i=$((i + 1)); done
  done
}

# Runs.
printf '# two by two\nseed = 1, 2\nside bf16: --precision bf16\nside fp8:  --precision fp8 --recipe rowwise\n' >two.sweep
ok "--dry-run succeeds" train two.sweep -n
is "--dry-run prints the state of each run and writes nothing" "$(cat out)$(ls -d two 2>/dev/null)" "bf16_seed=1: not started
fp8_seed=1: not started
bf16_seed=2: not started
fp8_seed=2: not started"
ok "a sweep runs" train two.sweep
is "each run has a folder" "$(cd two && echo *)" "bf16_seed=1 bf16_seed=2 fp8_seed=1 fp8_seed=2"
is "each run has its settings" \
  "$(for run in two/*; do sed -n '1s/.*"precision":"\([a-z0-9]*\)".*"seed":\([0-9]*\).*/\1 \2/p' "$run/log.jsonl"; done)" \
  "$(for run in two/*; do fp8-log "$run" --json | sed -n 's/.*"precision":"\([a-z0-9]*\)".*/\1/p' | tr '\n' ' '; echo "$run" | sed 's/.*=//'; done)"
is "each run has its checkpoint" "$(find two -name step-00000006 | wc -l)" 4
is "standard error has a line for each state" "$(sed 's/finished in .*/finished/' err)" "fp8-sweep: two: 4 runs: 4 not started
fp8-sweep: bf16_seed=1: started
fp8-sweep: bf16_seed=1: finished
fp8-sweep: fp8_seed=1: started
fp8-sweep: fp8_seed=1: finished
fp8-sweep: bf16_seed=2: started
fp8-sweep: bf16_seed=2: finished
fp8-sweep: fp8_seed=2: started
fp8-sweep: fp8_seed=2: finished
fp8-sweep: two: 4 runs: 4 finished"
cp out table
fp8-log two/bf16_seed=1 two/fp8_seed=1 two/bf16_seed=2 two/fp8_seed=2 >wanted
ok "the table at the end is that of fp8-log" cmp table wanted
fp8-step model.h5 --data data.h5 --seq-length 64 --batch-size 4 --steps 6 --quiet --precision fp8 --recipe rowwise --seed 2 --out alone >out 2>err
ok "a run is equal to one started by hand" fp8-info alone/step-00000006 --diff two/fp8_seed=2/step-00000006
ok "the same command again succeeds" train two.sweep --json
is "finished runs are skipped" "$(states out) $(cat err)" "finished finished finished finished  fp8-sweep: two: 4 runs: 4 finished"
sed -i 's/^seed.*/seed = 1, 3/' two.sweep
ok "a sweep with a new value runs" train two.sweep
is "only new runs are started" "$(grep -c ': started' err)" 2
is "--json prints an object for each run" "$(train two.sweep --json 2>err | tail -1)" \
  '{"type":"sweep","run":"two/fp8_seed=3","side":"fp8","settings":{"seed":"3"},"state":"finished","status":0,"reason":null,"stderr_line":null}'
ok "-q prints nothing on standard error" train two.sweep -o quiet -q
is "-q still prints the table" "$(cat err)$(grep -c seed= out)" 4
sed -i 's/rowwise/tensorwise/' two.sweep
status "a side with other flags gives status 2" 2 train two.sweep
is "the message names the run and the flags" "$(cat err)" \
  "fp8-sweep: two/fp8_seed=1: was made with other flags: --precision fp8 --recipe rowwise --seed 1; now --precision fp8 --recipe tensorwise --seed \
1: give the side another name, or move the folder away"
sed -i 's/^side fp8:/side fp8t:/' two.sweep
ok "a side with another name gets folders of its own" train two.sweep
is "runs of the old side are kept" "$(cd two && echo fp8*)" "fp8_seed=1 fp8_seed=2 fp8_seed=3 fp8t_seed=1 fp8t_seed=3"
flags="--data data.h5 --seq-length 64 --batch-size 4 --steps 8 --quiet"
ok "a longer command continues finished runs" train two.sweep
is "they resume from their checkpoints" "$(grep -c ': resumed from step 6$' err) $(find two -name step-00000008 | wc -l)" "4 4"

# --print.
fp8-sweep two.sweep -o by-hand --print -- fp8-step model.h5 $flags --filter '*.o_proj' >commands 2>err
is "--print prints a command for each run" "$(wc -l <commands) $(sed -n 2p commands)" \
  "4 fp8-step model.h5 $flags --filter '*.o_proj' --precision fp8 --recipe tensorwise --seed 1 --out by-hand/fp8t_seed=1"
is "--print runs nothing" "$(ls -d by-hand 2>/dev/null)" ""
ok "xargs runs the commands" sh -c 'OMP_NUM_THREADS=1 xargs -d "\n" -P 2 -I "{}" sh -c "{}" <commands'
is "all runs are done" "$(find by-hand -name step-00000008 | wc -l)" 4

# Checkpoints of two files are verified by several threads, those of the job.
printf 'seed = 1, 2\n' >ranks.sweep
OMP_NUM_THREADS=2 timeout -k 1 120 fp8-sweep ranks.sweep --quiet -- mpirun -n 2 env OMP_NUM_THREADS=1 fp8-step model.h5 $flags >out 2>err
is "runs of two ranks end where programs have two threads" "$? $(find ranks -name step-00000008 | wc -l)" "0 2"

# Jobs on cores of their own, as mpirun places ranks by default.
printf 'i = 1, 2\n' >two-jobs.sweep
cores() { # ARGUMENTS...: prints the cores of a rank of each of two jobs that run at the same time
  rm -rf two-jobs up1 up2
  env -u OMPI_MCA_hwloc_base_binding_policy fp8-sweep two-jobs.sweep "$@" -- mpirun -n 1 sh -c '
    touch up$2; i=0; until [ -e up1 ] && [ -e up2 ] || [ $i = 300 ]; do sleep 0.1; i=$((i + 1)); done
    grep Cpus_allowed_list /proc/self/status >&2' rank >out 2>err
  cat two-jobs/*/sweep.log | sed -n 's/^Cpus_allowed_list:\t//p'
}
if [ "$(env -u OMP_NUM_THREADS nproc)" -gt 1 ]; then
  both=$(cores --jobs 2)
  is "two jobs run on different cores" "$(echo "$both" | sort -u | wc -l) $(echo "$both" | tr -s ',-' '\n' | sort | uniq -d)" "2 "
  is "lines on standard error name the cores" "$(sed -n 's/.*: started on core //p' err | sort)" "$(echo "$both" | sort)"
fi
status "more jobs than cores give status 2" 2 fp8-sweep two-jobs.sweep --jobs 4096 -- true
is "the message names the flag" "$(tail -1 err | sed 's/ [0-9][0-9]*/ N/g')" \
  "fp8-sweep: N jobs need cores of their own, and there are N (use --jobs N or fewer)"

# Failures.
printf 'i = 1, 2, 3, 4\n' >fail.sweep
cat >fails <<'END'
#!/bin/sh
# Fails in different ways, by the value of i in the second argument.
case $2 in
  1) mpirun -n 1 fp8-step model.h5 --data data.h5 --steps none --out "$4" ;;
  2) exit 4 ;;
  3) echo "out of luck" >&2 && exit 9 ;;
  *) echo start >>starts ;;
esac
END
chmod +x fails
status "a sweep with failed runs gives status 2" 2 fp8-sweep fail.sweep --attempts 2 --json -- ./fails
is "the other runs go on" "$(states out)" "failed diverged failed finished "
is "a failed run is reported with its status and the error of its command" "$(grep -c '^fp8-sweep: i=1: failed: status 2: fp8-step: --steps: ' err)" 1
is "a run without progress is given up" "$(grep '^fp8-sweep: i=3: failed' err)" \
  "fp8-sweep: i=3: failed: fail/i=3: gave up after 2 attempts without a newer checkpoint, the last with status 9; to try again after fixing the \
cause, remove fail/i=3/attempts.json: out of luck"
is "the last line counts the states" "$(tail -1 err)" "fp8-sweep: fail: 4 runs: 1 finished, 1 diverged, 2 failed"
rm -rf fail/i=3/attempts.json
printf '#!/bin/sh\n[ $2 != 2 ] || exit 4\n' >fails
status "failed runs are repeated, and a diverged run decides the status" 4 fp8-sweep fail.sweep --attempts 2 --json -- ./fails
is "diverged and finished runs are not repeated" "$(states out)$(wc -l <starts)" "finished diverged finished finished 1"
status "status 3 of a run is that of the sweep" 3 fp8-sweep two-jobs.sweep -o three --json -- sh -c 'exit 3'

# Signals.
printf 'seed = 1, 2, 3\n' >long.sweep
for signal in TERM INT USR1; do
  dir=long$signal
  # A shell starts background jobs with INT ignored; python restores the default action.
  python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])' \
    fp8-sweep long.sweep -o $dir -- mpirun -n 2 fp8-step model.h5 --data data.h5 --seq-length 64 --batch-size 2 --steps 100000 >out 2>err </dev/null &
  pid=$!
  i=0
  until grep -qs '^{"type":"step","step":2,' $dir/seed=1/log.jsonl || [ $i = 600 ]; do sleep 0.1 && i=$((i + 1)); done
  kill -$signal $pid
  wait $pid
  is "$signal: the status is 75" $? 75
  is "$signal: the running job saves and no other is started" "$(ls $dir) $(fp8-resume $dir/seed=1 --print)" \
    "seed=1 $dir/seed=1/$(grep '"type":"step"' $dir/seed=1/log.jsonl | tail -1 | sed 's/.*"step":\([0-9]*\),.*/\1/' | xargs printf 'step-%08d')"
  is "$signal: no process of the sweep is left" "$(pgrep -f -- "--out $dir" | wc -l)" 0
  is "$signal: the last lines state it" "$(sed 's/, step.*//' err | tail -3)" "fp8-sweep: $signal: asking 1 job to save and stop
fp8-sweep: seed=1: stopped
fp8-sweep: $dir: 3 runs: 1 stopped, 2 not started; the same command continues the sweep"
done
next=$(($(fp8-resume longTERM/seed=1 --print | sed 's/.*step-0*//') + 2))
status "the same command continues a stopped sweep" 0 fp8-sweep long.sweep -o longTERM -- mpirun -n 2 fp8-step model.h5 --data data.h5 \
  --seq-length 64 --batch-size 2 --steps $next -q
is "the stopped run resumes and the others start" "$(sed -n 's/^fp8-sweep: \(seed=[0-9]\): \(started\|resumed\).*/\1 \2/p' err | tr '\n' ' ')" \
  "seed=1 resumed seed=2 started seed=3 started "
fp8-sweep two-jobs.sweep -o locked -- sh -c 'touch in$2; while [ ! -e free ]; do sleep 0.1; done' sh >out 2>err </dev/null &
pid=$!
until_there in1
status "a second fp8-sweep in a folder gives status 2" 2 fp8-sweep two-jobs.sweep -o locked -- true
is "the message states that the folder is in use" "$(tail -1 err)" "fp8-sweep: locked: in use by another fp8-sweep or by a command that it started"
touch free
wait $pid
is "the first fp8-sweep ends" $? 0

# A terminal.
printf 'i = 1\n' >one.sweep
on_terminal "fp8-sweep one.sweep -o tty -- sh -c 'for s in 1 2; do echo \"{\\\"type\\\":\\\"step\\\",\\\"step\\\":\$s,\\\"loss\\\":2.5}\"; sleep \
0.3; done'" >screen
ok "on a terminal the newest step of a running job is redrawn" grep -q 'i=1: .*, step 2, loss 2.5' screen
is "and erased at the end" "$(tr '\r' '\n' <screen | tail -2 | head -1 | grep -c 'step 2')" 0

# Errors in sweeps; tests of the parser have all messages.
bad() { # TEXT MESSAGE
  printf '%b' "$1" >bad.sweep
  status "an invalid sweep gives status 2: $2" 2 fp8-sweep bad.sweep -- touch started
  is "an invalid sweep is refused in one line: $2" "$(cat err)" "fp8-sweep: bad.sweep$2"
}
bad '' ': has no line with values or a side'
bad 'lr 1e-3\n' ':1: expected `name = value, value` or `side NAME: FLAGS`, found "lr 1e-3"'
bad '# a\nlr =\n' ':2: lr: has no values'
bad 'lr = 1 2\n' ':1: expected a comma after "1", or quotes around a value with blanks'
bad 'lr = 1\nlr = 2\n' ':2: lr: has its values on line 1 already'
bad 'lr = 1, 1\n' ':1: lr: the value "1" is repeated'
bad 'lr = a/b, a_b\n' ':1: lr: "a/b" and "a_b" have the same folder name'
bad 'out = a\n' ':1: out: each run has a folder of its own'
bad 'side a:\n' ':1: side a: has no flags'
bad 'side a: --x\nside a: --y\n' ':2: side a: is on line 1 already'
bad 'side a: --x \0377\n' ':1: not UTF-8'
python3 -c 'for name in "abcd": print(name, "=", ", ".join(map(str, range(11))))' >bad.sweep
says "a sweep with too many runs is refused" '^fp8-sweep: bad.sweep: has more than 10000 combinations$' fp8-sweep bad.sweep -- touch started
is "invalid sweeps start nothing and write nothing" "$(ls -d started bad 2>/dev/null)" ""
status "a program that does not exist gives status 2" 2 fp8-sweep two-jobs.sweep -o gone --jobs 2 -- ./gone-program --flag
is "the only line says so, and nothing is started or written" "$(cat err)$(cat out)$(ls -d gone 2>/dev/null)" \
  "fp8-sweep: ./gone-program: no such program"
is "also one that PATH does not have" "$(fp8-sweep two-jobs.sweep -o gone -- gone-program 2>&1)$(ls -d gone 2>/dev/null)" \
  "fp8-sweep: gone-program: no such program"
is "and the dry run says so" \
  "$(fp8-sweep two-jobs.sweep -o gone -n -- ./gone-program 2>&1) $(fp8-sweep two-jobs.sweep -o gone -n -- ./gone-program >out 2>err || echo $?)" \
  "fp8-sweep: ./gone-program: no such program 2"
ok "--print does not, since the commands may run elsewhere" fp8-sweep two-jobs.sweep -o gone --print -- ./gone-program
says "a missing sweep is refused" '^fp8-sweep: gone.sweep: No such file' fp8-sweep gone.sweep -- true
for damage in '{' ''; do
  printf '%s' "$damage" >two/bf16_seed=1/sweep.json
  says "a damaged sweep.json is named, with what to do: '$damage'" \
    '^fp8-sweep: two/bf16_seed=1/sweep.json: line .*; remove this file and run the command again$' fp8-sweep two.sweep -- true
done

# Flags of all runs are checked before the first is started.
checked() { # SWEEP MESSAGE COMMAND...
  printf '%b' "$1" >late.sweep
  message=$2
  shift 2
  for way in "" -n --print; do
    # shellcheck disable=SC2248 # no word without a flag
    status "$message: status 2${way:+ with $way}" 2 fp8-sweep late.sweep $way -- "$@"
    is "$message: the message${way:+ with $way}" "$(cat err)$(cat out)$(ls -d late 2>/dev/null)" "fp8-sweep: $message"
  done
}
train="mpirun -n 2 fp8-step model.h5 $flags"
checked 'seed = 1, 2\nside good: --precision bf16\nside bad: --precison fp8\n' \
  'late.sweep:3: side bad: run bad_seed=1: --precison: unknown flag (did you mean --precision?)' $train
checked 'lr = 1e-3, 1e-4x\nside a: --precision bf16\n' "late.sweep:1: run a_lr=1e-4x: --lr: '1e-4x' is not a number" $train
checked 'side a: --lora-rank 2\nside b: --lora-alpha 2\n' 'late.sweep:2: side b: run b: --lora-alpha: needs --lora-rank or --lora' $train
checked 'seq-length = 64, 128\nside a: --precision fp8\nside b: --tp 3\n' \
  'late.sweep:3: side b: run b_seq-length=64: --tp 3: the model has 4 heads, which it does not divide; --tp 1 fits' $train
checked 'seq-length = 64, 30000\n' \
  'late.sweep:1: run seq-length=30000: data.h5: 20000 tokens are too few for sequences of 30000 tokens, which need at least 30001' $train
checked 'seed = 1\n' 'COMMAND: --stepz: unknown flag (did you mean --steps?)' $train --stepz 3
why="a run with it trains nothing; to check the runs, give fp8-sweep --dry-run"
for flag in -n -qn --dry-run --print-config --check-variants; do
  checked 'seed = 1\n' "COMMAND: $flag: $why" $train $flag
done
for flag in -n --help -h --version; do
  checked "seed = 1\nside a: --precision bf16 $flag\n" "late.sweep:2: side a: $flag: $why" $train
done
shared="--gradients g.safetensors: runs seed=1 and seed=2 would write this file; each needs one of its own, as a setting gradients = A, B or a side \
gives it"
echo '{"gradients": "g.safetensors"}' >gradients.json
for words in "--gradients g.safetensors" "--config gradients.json"; do
  checked 'seed = 1, 2\n' "$shared" $train $words
done
printf 'side a: --gradients a.safetensors\nside b: --gradients=b.safetensors\n' >late.sweep
ok "files of gradients that differ are no error" fp8-sweep late.sweep -n -- $train
printf 'side a: --precision bf16\nside b: --data gone.h5\n' >late.sweep
says "data that do not exist stop runs" '^fp8-sweep: late.sweep:2: side b: run b: gone.h5: No such file or directory$' fp8-sweep late.sweep -- $train
ok "but not --print, whose commands may run elsewhere" fp8-sweep late.sweep --print -- $train
printf 'side a: --tp 2\nside b: --dp-replicate 2 --pp 2\n' >late.sweep
ok "meshes of several ranks are no error" fp8-sweep late.sweep -n -- $train
ok "nor is one rank in the check of a run that two have begun" fp8-sweep ranks.sweep -n -- mpirun -n 2 env OMP_NUM_THREADS=1 fp8-step model.h5 $flags
ok "flags of a script are not checked" fp8-sweep late.sweep -n -- ./fails
is "which is said once" "$(cat err)" "fp8-sweep: COMMAND: no word of it is fp8-step, so the flags of runs are not checked before they start"
is "but not with --quiet" "$(fp8-sweep late.sweep -n -q -- ./fails 2>&1 >/dev/null)" ""
ok "a word before the program may have its name" fp8-sweep late.sweep -n -q -- env -u fp8-step fp8-step model.h5 $flags
ok "the last word may, as $0 of a script" fp8-sweep late.sweep -n -q -- sh -c 'fp8-step model.h5 "$@"' fp8-step
mkdir wrapper && printf '#!/bin/sh\necho begins\nexec fp8-step "$@"\n' >wrapper/fp8-step && chmod +x wrapper/fp8-step
ok "a wrapper that prints something is not checked" fp8-sweep late.sweep -n -q -- wrapper/fp8-step model.h5 $flags
seq -s ', ' 400 | sed 's/^/warmup-steps = /' >late.sweep
printf 'seed = 1, 2, 3\nside a: --precision fp8\nside b: --steps 500\n' >>late.sweep
ok "thousands of runs are checked in seconds" timeout 30 fp8-sweep late.sweep --print -- $train

# The command line.
refused() { # NAME MESSAGE ARGUMENTS...
  name=$1 message=$2
  shift 2
  status "$name: status 2" 2 fp8-sweep "$@"
  is "$name: message" "$(cat err)" "fp8-sweep: $message"
}
refused "no command" "COMMAND: needed after --" two.sweep
refused "no sweep" "SWEEP: needed (see --help)" -- true
refused "--jobs with --print" "--jobs: not together with --print" two.sweep --print --jobs 2 -- true
cp two.sweep plain
refused "a sweep file without extension" "--output: needed, since the name of plain has no extension to leave out" plain -- true
: >file
refused "a folder that is a file" "file: exists and is not a folder" two-jobs.sweep -o file -q -- true
status "--jobs 0 gives status 2" 2 fp8-sweep two.sweep --jobs 0 -- true
ok "a full standard output is noticed" sh -c 'fp8-sweep one.sweep -o tty -- sh >/dev/full; [ $? = 2 ]'
done_testing
