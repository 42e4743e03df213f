#!/bin/bash
# Few addresses (ulimit -v): every tool succeeds, or ends with one line that names memory, never by a signal. Below some limit the dynamic linker
# cannot map the libraries, and says so itself with status 127.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
if sanitized; then
  result 0 "few addresses # SKIP programs with AddressSanitizer"
  done_testing
  exit
fi
ulimit -c 0
train="m.h5 --data d.h5 --steps 1 --seq-length 16 --batch-size 1 -q"
fp8-step $train --out run >log 2>err
result $? "a run of one step"
fp8-export m.h5 -o hf -q >out 2>err
result $? "a Hugging Face folder"
printf 'seed = 1, 2\n' >s.sweep
echo '{"ids":[5,6,7],"logprobs":[null,-5.5,-5.6]}' >rolls.jsonl
printf '%s\n' 'stage: sft' 'finetuning_type: full' 'dataset: alpaca' 'template: llama3' 'cutoff_len: 64' >lf.yaml

# words_of TOOL: the command lines that are tried, one per line
words_of() {
  case $1 in
    fp8-bench) echo "--model tiny --tokens 16 --seconds 0.001 --steps 0 -q" ;;
    fp8-doctor) echo "-q" ;;
    fp8-convert) printf '%s\n' "m.h5 -o x.h5 -f" "hf -o x.h5 -f" ;;
    fp8-eval) echo "m.h5 --data d.h5 --seq-length 512 -q" ;;
    fp8-export) echo "m.h5 -o ex -f -q" ;;
    fp8-generate) echo "m.h5 --ids 5,6,7 --max-tokens 4 --json" ;;
    fp8-import) echo "lf.yaml --dataset-dir $SRC/tests/golden/chat/data --model hf --json" ;;
    fp8-info) echo "m.h5 --verify" ;;
    fp8-init) echo "tiny -o x.h5 -f" ;;
    fp8-inspect) echo "m.h5 --data d.h5 --seq-length 64 -q" ;;
    fp8-judge) echo "m.h5 rolls.jsonl --recipe rowwise -q" ;;
    fp8-log) echo "log" ;;
    fp8-plan) echo "tiny --json" ;;
    fp8-quantize) echo "m.h5 --scaling tensor -o x.h5 -f" ;;
    fp8-resume) echo "run --print" ;;
    fp8-step) printf '%s\n' "$train --out new" "$train --out new --precision fp8" ;;
    fp8-sweep) echo "s.sweep --print -- fp8-step m.h5" ;;
    fp8-tokenize) echo "text.txt -o x.h5 -f" ;;
  esac
}

limits="60000 90000 100000 105000 110000 115000 120000 130000 150000 180000 250000 400000"
for tool in $(cd "$BIN" && ls fp8-*); do
  words_of "$tool" >lines
  [ -s lines ]
  result $? "words_of has arguments for $tool"
  unclear=
  while read -r words; do
    for limit in $limits; do
      rm -rf new
      (ulimit -v "$limit" && exec $tool $words) >out 2>err </dev/null
      got=$?
      case $got in
        0) ;;
        1) [ "$tool" = fp8-doctor ] && [ ! -s err ] || unclear="$unclear $limit: $got $(cat err);" ;;
        2) [ "$(grep -c -E "^$tool: .*(out of memory|annot allocate memory|COMMAND: error while loading shared libraries)" err) $(wc -l <err)" = \
          "1 1" ] || unclear="$unclear $limit: $got $(cat err);" ;;
        127) grep -q "^$tool: error while loading shared libraries" err || unclear="$unclear $limit: $got $(cat err);" ;;
        *) unclear="$unclear $limit: $got $(cat err);" ;;
      esac
    done
  done <lines
  is "$tool succeeds or names memory at each limit" "$unclear" ""
done
done_testing
