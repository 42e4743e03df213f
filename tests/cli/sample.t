#!/bin/sh
# fp8-step --sample-every: text that a model generates while it is trained, and the tokenizers of models made from scratch.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
fixed="--seq-length 32 --batch-size 4 --lr 3e-3 --precision fp32 -q"
# texts FILE: the texts of the samples; ids FILE: their tokens
texts() { sed -n 's/^{"type":"sample",.*"text":\(".*"\),"ids".*/\1/p' "$1"; }
ids() { sed -n 's/^{"type":"sample",.*"ids":\(\[[0-9,]*\]\).*/\1/p' "$1"; }

# --- bytes
fp8-step m.h5 --data d.h5 --out plain --steps 7 $fixed >plain.log 2>err
fp8-step m.h5 --data d.h5 --out run --steps 7 $fixed --sample-every 3 --sample-prompt 'the ' --sample-tokens 12 >run.log 2>err
is "a run with samples" "$? $(cat err)" "0 "
is "a sample every third step and at the last one" "$(story run.log)" \
  "run step1 step2 step3 sample3 step4 step5 step6 sample6 step7 sample7 checkpoint7 end7 "
cmp run.log run/log.jsonl
result $? "log.jsonl has the samples"
says "a sample has the documented fields" \
  '^\{"type":"sample","step":3,"prompt":"the ","text":".*","ids":\[([0-9]+,){11}[0-9]+\],"seconds":[0-9.e-]+,"time":"[^"]*"\}$' cat run.log
same_bits "the losses are those of a run without" run.log plain.log
same_step "so are weights and moments" run/step-00000007 plain/step-00000007
is "the last sample is what fp8-generate says" "$(ids run.log | tail -n 1)" \
  "$(fp8-generate run 'the ' --greedy --max-tokens 12 --precision fp32 --json | tail -n 1 | sed 's/.*"ids"://; s/}$//')"
ok "fp8-log reads the log" fp8-log run --json
is "a readable line on a terminal" \
  "$(script -qec "fp8-step m.h5 --data d.h5 --out line --steps 1 $fixed --sample-every 1 --sample-prompt 'the ' --sample-tokens 2" /dev/null |
  tr -d '\r' | grep -c '^sample after step 1  "the " goes on "')" 1

# --- settings
is "they are in the configuration" \
  "$(fp8-step m.h5 --data d.h5 --out x --steps 1 --sample-every 3 --sample-prompt 'a "b"' --print-config | grep '"sample-')" '  "sample-every": 3,
  "sample-prompt": "a \"b\"",
  "sample-tokens": 64,'
echo '{"sample-every": 1, "sample-prompt": "x", "sample-tokens": 3}' >c.json
fp8-step m.h5 --data d.h5 --out from --steps 2 --config c.json $fixed >from.log 2>err
is "a configuration asks for samples" "$(ids from.log | tr ',' '\n' | wc -l) $(texts from.log | wc -l)" "6 2"
fp8-step m.h5 --data d.h5 --out off --steps 2 --config c.json --sample-every 0 $fixed >off.log 2>err
is "--sample-every 0 ends them" "$? $(texts off.log | wc -l)" "0 0"
fp8-step m.h5 --data d.h5 --out on --steps 7 --until-step 4 $fixed >on.log 2>err
fp8-step m.h5 --data d.h5 --out on --steps 7 $fixed --sample-every 3 --sample-prompt 'the ' --sample-tokens 12 >on.log 2>err
is "a resumed run may begin with samples, which are the same" "$? $(ids on.log)" "0 $(ids run.log | tail -n 2)"
same_step "it has the same weights" on/step-00000007 plain/step-00000007
refused "no prompt is refused" '--sample-every: needs --sample-prompt$' m.h5 --data d.h5 --out x --steps 1 --sample-every 1
refused "a prompt alone is refused" '--sample-prompt: needs --sample-every$' m.h5 --data d.h5 --out x --steps 1 --sample-prompt a
refused "an empty prompt is refused" '--sample-prompt: no tokens$' m.h5 --data d.h5 --out x --steps 1 --sample-every 1 --sample-prompt ''
long=$(head -c 2000 text.txt)
refused "a prompt as long as the context is refused" "--sample-prompt: 2000 tokens leave no room in the model's context of [0-9]+$" \
  m.h5 --data d.h5 --out x --steps 1 --sample-every 1 --sample-prompt "$long"
refused "a dry run says so too" '--sample-prompt: no tokens$' m.h5 --data d.h5 --out x --steps 1 --sample-every 1 --sample-prompt '' -n

# --- tokenizers of models made from scratch
words=$FP8_SHARE/tokenizers/shakespeare
fp8-tokenize text.txt --tokenizer "$words" -o w.h5 >out 2>err
fp8-init tiny --set vocab_size=1008 -o none.h5 >out 2>err
refused "text needs a tokenizer" \
  '--sample-prompt: none.h5 has no tokenizer.json, and the data is not known to be bytes, .* \(fp8-init --tokenizer stores one\)$' \
  none.h5 --data w.h5 --out x --steps 1 --sample-every 1 --sample-prompt 'the '
ok "fp8-init --tokenizer stores one" fp8-init tiny --set vocab_size=1008 --tokenizer "$words" -o w-model.h5
fp8-step w-model.h5 --data w.h5 --out words --steps 3 $fixed --sample-every 2 --sample-prompt 'the ' --sample-tokens 8 >words.log 2>err
is "samples by its tokenizer" "$? $(cat err) $(texts words.log | wc -l)" "0  2"
is "the checkpoint generates the same text" \
  "$(fp8-generate words 'the ' --greedy --max-tokens 8 --precision fp32 --json | tail -n 1 | sed 's/.*"text":\(".*"\),"ids".*/\1/')" \
  "$(texts words.log | tail -n 1)"
refused "its data is compared with the tokenizer" 'd.h5: made with another tokenizer \(bytes\) than the model.s' w-model.h5 --data d.h5 --out x \
  --steps 1
ok "fp8-export writes the tokenizer" fp8-export words -o folder
cmp folder/tokenizer.json "$words/tokenizer.json"
result $? "it is the same file"

done_testing
