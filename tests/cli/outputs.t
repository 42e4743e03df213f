#!/bin/sh
# Every tool with a standard output that is full, which is an error, or a closed pipe, which is not.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
text_size=3000
. "$SRC/tests/cli/train.sh"
fp8-step m.h5 --data d.h5 --out before --steps 2 --seq-length 16 --batch-size 2 -q >log 2>err
result $? "a run of two steps"
echo 'seed = 1' >s.sweep
echo '{"ids":[5,6,7],"logprobs":[null,-5.5,-5.6]}' >rolls.jsonl
printf '%s\n' 'stage: sft' 'finetuning_type: full' 'dataset: alpaca' 'template: llama3' 'cutoff_len: 64' >lf.yaml

# words_of TOOL N: prints arguments with which the tool writes to standard output; N makes the names of outputs unique.
words_of() {
  case $1 in
    fp8-bench) echo "--model tiny --tokens 64 --seconds 0.01 --steps 0 -q" ;;
    fp8-doctor) echo "--json" ;;
    fp8-convert) echo "m.h5 -o c$2.h5 --json" ;;
    fp8-eval) echo "m.h5 --data d.h5 --seq-length 512 -q" ;;
    fp8-export) echo "m.h5 -o e$2 -q" ;;
    fp8-generate) echo "m.h5 --ids 5,6,7 --max-tokens 4 --json" ;;
    fp8-import) echo "lf.yaml --dataset-dir $SRC/tests/golden/chat/data --model $SRC/tests/golden/models/llama3/hf --json -q" ;;
    fp8-info) echo "m.h5" ;;
    fp8-init) echo "tiny -o i$2.h5" ;;
    fp8-inspect) echo "m.h5 --data d.h5 --seq-length 64 -q" ;;
    fp8-judge) echo "m.h5 rolls.jsonl --recipe rowwise -q" ;;
    fp8-log) echo "before" ;;
    fp8-plan) echo "tiny --json -q" ;;
    fp8-quantize) echo "m.h5 --scaling tensor -o q$2.h5 --json" ;;
    fp8-resume) echo "before --print" ;;
    fp8-sweep) echo "s.sweep --print -- fp8-step m.h5" ;;
    fp8-step) echo "m.h5 --data d.h5 --out run$2 --steps 3 --seq-length 16 --batch-size 2 -q" ;;
    fp8-tokenize) echo "text.txt -o t$2.h5" ;;
  esac
}

n=0
for tool in $(cd "$BIN" && ls fp8-*); do
  n=$((n + 1))
  words=$(words_of "$tool" $n)
  [ -n "$words" ]
  result $? "words_of has arguments for $tool"
  $tool $words >/dev/full 2>err </dev/null
  is "$tool: a full standard output gives status 2 and one line" \
    "$? $(wc -l <err) $(grep -c "^$tool: standard output: No space left on device" err)" "2 1 1"
  n=$((n + 1))
  mkfifo pipe
  : <pipe &
  exec 9>pipe
  wait $!
  words=$(words_of "$tool" $n)
  $tool $words >&9 2>err </dev/null
  is "$tool: a closed standard output gives status 0 and no message" "$? $(cat err)" "0 "
  exec 9>&-
  rm pipe
done
for run in run*; do
  step=$(find "$run" -name 'step-*')
  ok "$run: the last step is saved and verifies" fp8-info --verify "$step"
  is "$run: the log names the checkpoint" "$(field path "$run/log.jsonl")" "\"$step\""
done

done_testing
