#!/bin/sh
# Tools in pipes: records that name checkpoints on the way from one to the next, and readers that go away.
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
few="--data d.h5 --seq-length 16 --batch-size 2 --steps 2 -q"

# shellcheck disable=SC2086 # words on purpose
train() { fp8-step - $few "$@"; }

fp8-init tiny -o i.h5 2>err | fp8-convert - -o c.h5 --json 2>>err | train --out run >log 2>>err
is "init, convert, step" "$?$(cat err)" 0
is "two steps of it" "$(story log)" "run step1 step2 checkpoint2 end2 "
says "the model that came through the pipe" '^path +c.h5' fp8-info c.h5
says "what was done is in the checkpoint" 'made by +fp8-step .*fp8-step - --data d.h5' fp8-info run/step-00000002
says "from the beginning" 'made by +fp8-init .*fp8-init tiny' fp8-info run/step-00000002
# shellcheck disable=SC2086
fp8-step c.h5 $few --out direct >direct.log 2>err
same_bits "the same as without a pipe" log direct.log
ok "a log of records goes on to fp8-eval" sh -c 'fp8-eval - --data d.h5 --seq-length 16 <log'
cp out through
ok "the same as by name" fp8-eval run/step-00000002 --data d.h5 --seq-length 16
is "to the last digit" "$(cat out)" "$(cat through)"
ok "and to fp8-info" sh -c 'fp8-info - --json <log'
is "which sees the newest" "$(grep -c '"path":"run/step-00000002"' out)" 1
fp8-convert - --merge -o merged.h5 <log >out 2>err
result $? "and to fp8-convert"
same_step "which merges it" merged.h5 run/step-00000002
ok "a text in between does no harm to the path" sh -c 'fp8-init tiny -o "with space.h5" | fp8-step - --data d.h5 --seq-length 16 --batch-size 2 --steps 1 --out "a run" -q'
ok "and the next in line finds it" sh -c 'fp8-eval - --data d.h5 --seq-length 16 <"a run/log.jsonl"'
ok "and to fp8-log" fp8-log --json log

rm -rf x
for records in '' '{"type":"eval","loss":1}' '[]'; do
  printf '%s\n' "$records" | train --out x >out 2>err
  is "records that name no checkpoint: '$records'" "$? $(wc -l <err) $(grep -c '^fp8-step: standard input: ' err)" "2 1 1"
done
echo 'path m.h5' | train --out x >out 2>err
is "text on standard input is named" "$? $(grep -c '^fp8-step: standard input: .*--json' err)" "2 1"
echo '{"type":"checkpoint","path":"gone.h5"}' | train --out x >out 2>err
is "a record of a file that is gone" "$? $(cat err)" "2 fp8-step: gone.h5: No such file or directory"
echo '{"type":"checkpoint","path":7}' | train --out x >out 2>err
is "a record that is wrong" "$? $(grep -c '^fp8-step: standard input: ' err)" "2 1"
train --out x <&- >out 2>err
is "no standard input at all" "$? $(wc -l <err)" "2 1"
for command in "fp8-init tiny" "fp8-tokenize text.txt" "fp8-convert m.h5" "fp8-quantize m.h5 --scaling row"; do
  # shellcheck disable=SC2086
  says "no HDF5 file goes to standard output: $command" '^fp8-[a-z]*: -: the output cannot be standard output' $command -o -
done
is "nor to a file of that name" "$(ls ./- 2>/dev/null)" ""
is "none of them left anything" "$(ls x 2>/dev/null)" ""

done_testing
