#!/bin/sh
# Tools in pipes: each tool prints a record that names its checkpoint, and the next tool reads the record.
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
few="--data d.h5 --seq-length 16 --batch-size 2 --steps 2 -q"

# shellcheck disable=SC2086 # words on purpose
train() { fp8-step - $few "$@"; }

fp8-init tiny -o i.h5 2>err | fp8-convert - -o c.h5 --json 2>>err | train --out run >log 2>>err
is "fp8-init, fp8-convert and fp8-step run in a pipe without messages" "$?$(cat err)" 0
is "the run has two steps" "$(story log)" "run step1 step2 checkpoint2 end2 "
says "fp8-convert of the pipe writes its output" '^path +c.h5' fp8-info c.h5
says "the provenance names fp8-step" 'made by +fp8-step .*fp8-step - --data d.h5' fp8-info run/step-00000002
says "the provenance names fp8-init" 'made by +fp8-init .*fp8-init tiny' fp8-info run/step-00000002
# shellcheck disable=SC2086
fp8-step c.h5 $few --out direct >direct.log 2>err
same_bits "the losses are equal to those of a run without a pipe" log direct.log
ok "fp8-eval reads the checkpoint from a log" sh -c 'fp8-eval - --data d.h5 --seq-length 16 <log'
cp out through
ok "fp8-eval reads the checkpoint by name" fp8-eval run/step-00000002 --data d.h5 --seq-length 16
is "both evaluations print the same record" "$(sed "s|,.time.:.*||" out)" "$(sed "s|,.time.:.*||" through)"
ok "fp8-info reads the checkpoint from a log" sh -c 'fp8-info - --json <log'
is "fp8-info shows the newest checkpoint of the log" "$(grep -c '"path":"run/step-00000002"' out)" 1
fp8-convert - --merge -o merged.h5 <log >out 2>err
result $? "fp8-convert reads the checkpoint from a log"
same_step "the merged checkpoint has equal weights and moments" merged.h5 run/step-00000002
ok "a path with a space passes through a pipe" \
  sh -c 'fp8-init tiny -o "with space.h5" | fp8-step - --data d.h5 --seq-length 16 --batch-size 2 --steps 1 --out "a run" -q'
ok "fp8-eval reads a path with a space from a log" sh -c 'fp8-eval - --data d.h5 --seq-length 16 <"a run/log.jsonl"'
ok "fp8-log reads the log" fp8-log --json log

rm -rf x
for records in '' '{"type":"eval","loss":1}' '[]'; do
  printf '%s\n' "$records" | train --out x >out 2>err
  is "records without a checkpoint are refused: '$records'" "$? $(wc -l <err) $(grep -c '^fp8-step: standard input: ' err)" "2 1 1"
done
echo 'path m.h5' | train --out x >out 2>err
is "text on standard input is refused; the message suggests --json" "$? $(grep -c '^fp8-step: standard input: .*--json' err)" "2 1"
echo '{"type":"checkpoint","path":"gone.h5"}' | train --out x >out 2>err
is "a record of a missing file is refused" "$? $(cat err)" "2 fp8-step: gone.h5: No such file or directory"
echo '{"type":"checkpoint","path":7}' | train --out x >out 2>err
is "a record with a path of the wrong type is refused" "$? $(grep -c '^fp8-step: standard input: ' err)" "2 1"
train --out x <&- >out 2>err
is "a closed standard input is refused" "$? $(wc -l <err)" "2 1"
for command in "fp8-init tiny" "fp8-tokenize text.txt" "fp8-convert m.h5" "fp8-quantize m.h5 --scaling row"; do
  # shellcheck disable=SC2086
  says "-o - is refused: $command" '^fp8-[a-z]*: -: the output cannot be standard output' $command -o -
done
is "no file named - is created" "$(ls ./- 2>/dev/null)" ""
is "the refused commands create no run" "$(ls x 2>/dev/null)" ""

done_testing
