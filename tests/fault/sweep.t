#!/bin/sh
# A sweep that is killed repeatedly, alone or with all of its processes, and started again: its checkpoints are those of an undisturbed sweep, byte
# for byte, and runs that were finished are not started again.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
. "$SRC/tests/fault/lib.sh"
[ "$faults" = all ] && wanted=24 || wanted=4
printf 'seed = 1, 2\nside bf16: --precision bf16\nside fp8: --precision fp8 --recipe rowwise\n' >../s.sweep
train="fp8-step ../m.h5 --data ../d.h5 --seq-length 32 --batch-size 4 --steps 40 --save-every 1 --keep 3 -q"
jobs=2
[ "$(env -u OMP_NUM_THREADS nproc)" -gt 1 ] || jobs=1
ok "an undisturbed sweep" fp8-sweep ../s.sweep -o sweep --jobs $jobs -- $train
mv sweep ../full # checkpoints contain the command line, so both sweeps have the same folder
steps() { find sweep -name 'step-*' ! -name '*.tmp' 2>/dev/null | sort | cksum; } # changes with each checkpoint
tree() { # PID: prints the ids of its descendants
  for child in $(pgrep -P "$1"); do
    echo "$child"
    tree "$child"
  done
}
# finished RUN...: prints the runs whose sweep.json has status 0, with the time of its last change
finished() { for run in sweep/*; do grep -qs '"status": 0' "$run/sweep.json" && echo "$run $(stat -c %y "$run/sweep.json")"; done; }

number=0 got=75
while [ $kills -lt $wanted ] && [ $number -lt 200 ]; do
  number=$((number + 1))
  before=$(steps) done_before=$(finished)
  fp8-sweep ../s.sweep -o sweep --jobs $jobs -- $train >../out 2>../err </dev/null &
  sweep=$!
  while kill -0 $sweep 2>/dev/null && [ "$(steps)" = "$before" ]; do sleep 0.02; done
  # Every other time the commands die as well; otherwise they save and stop, and hold the lock until then.
  [ $((number % 2)) = 0 ] && victims=$(tree $sweep) || victims=
  kill -KILL $sweep $victims 2>/dev/null && kills=$((kills + 1))
  { wait $sweep; } 2>/dev/null
  got=$?
  i=0
  while pgrep -f -- "--out sweep/" >/dev/null && [ $i -lt 600 ]; do sleep 0.05 && i=$((i + 1)); done
  [ $i -lt 600 ] || complain "commands of a killed sweep do not stop"
  [ "$(finished | grep -cF "${done_before:-none}")" = "$(printf '%s' "$done_before" | grep -c .)" ] || complain "a finished run was started again"
  for run in sweep/*; do [ -z "$(fp8-resume "$run" --print 2>/dev/null)" ] || whole "$run"; done
  [ $got != 0 ] || break
done
i=0
until fp8-sweep ../s.sweep -o sweep --jobs $jobs -- $train >../out 2>../err </dev/null || [ $i = 100 ]; do sleep 0.1 && i=$((i + 1)); done
is "the sweep is completed" "$(tail -1 ../err)" "fp8-sweep: sweep: 4 runs: 4 finished"
for run in bf16_seed=1 bf16_seed=2 fp8_seed=1 fp8_seed=2; do same sweep/$run/step-00000040 ../full/$run/step-00000040; done
tally "a sweep that is killed"
finish
