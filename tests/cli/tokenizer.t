#!/bin/sh
# The tokenizer of data and models is recorded and compared; data of another tokenizer is refused.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
step="--seq-length 16 --batch-size 2 -q"
tokenizer_of() { fp8-info "$1" --json | grep -o '"tokenizer\(_id\)*":[^,}]*' | tail -1 | cut -d: -f2; }

cat >t.json <<END
{"added_tokens": [{"id": 3, "content": "<s>", "special": true}], "model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}}
END
cat >same.json <<END
{"model":{"merges":[["a","b"]],"vocab":{"ab":2,"b":1,"a":0}},"normalizer":null,
 "added_tokens":[{"special":true,"content":"<s>","id":3}]}
END
sed 's/"a b"/"b a"/' t.json >other.json
head -c 4000 /dev/zero >ids.u16
for name in t same other; do fp8-tokenize ids.u16 --tokenizer $name.json -o $name.h5 >out 2>err || cat err >&2; done
fp8-tokenize ids.u16 --vocab-size 4 -o unknown.h5 >out 2>err
is "text has the tokenizer bytes" "$(tokenizer_of d.h5)" '"bytes"'
is "ids have no tokenizer" "$(tokenizer_of unknown.h5)" null
says "ids with --tokenizer record its digest" '^"[0-9a-f]{32}"$' tokenizer_of t.h5
is "an equivalent tokenizer.json has the same digest" "$(tokenizer_of same.h5)" "$(tokenizer_of t.h5)"
[ "$(tokenizer_of other.h5)" != "$(tokenizer_of t.h5)" ]
result $? "another tokenizer.json has another digest"
sed 's/^{/{"truncation": {"max_length": 8}, "padding": {"pad_id": 0},/' t.json >cut.json
says "truncation and padding are ignored with a note" '^fp8-tokenize: truncation and padding of tokenizer.json: ignored' fp8-tokenize ids.u16 \
  --tokenizer cut.json -o cut.h5
is "they do not change the tokenizer" "$(tokenizer_of cut.h5)" "$(tokenizer_of t.h5)"
says "the default vocabulary of ids is that of --tokenizer" 'vocabulary 4$' fp8-tokenize ids.u16 --tokenizer t.json -o x.h5 -f
says "the default vocabulary of --tokenizer bytes is 256" 'vocabulary 256$' fp8-tokenize ids.u16 --tokenizer bytes -o x.h5 -f
printf '{"model": {"vocab": {"a": -1}}}' >bad.json
says "an invalid tokenizer.json is refused" '^fp8-tokenize: bad.json: model.vocab: an id is not' fp8-tokenize ids.u16 --tokenizer bad.json -o y.h5
status "an invalid tokenizer.json gives status 2" 2 fp8-tokenize ids.u16 --tokenizer bad.json -o y.h5
head -c 100 t.json >cut.json
says "a truncated tokenizer.json is refused" '^fp8-tokenize: cut.json: line 1' fp8-tokenize ids.u16 --tokenizer cut.json -o y.h5

# A model without a tokenizer gets that of the data.
fp8-step m.h5 --data d.h5 --out run $step --steps 1 >out 2>err
is "a new model accepts any data without a message" "$? $(cat err)" "0 "
is "the checkpoint records the tokenizer of the data" "$(tokenizer_of run/step-00000001)" '"bytes"'
fp8-convert run/step-00000001 --merge -o merged.h5 >out 2>err
fp8-convert run/step-00000001 -o model.h5 >out 2>err
fp8-quantize model.h5 -o q.h5 --scaling row >out 2>err
fp8-quantize q.h5 --dequantize -o back.h5 >out 2>err
for copy in merged model q back; do is "$copy.h5 has the same tokenizer" "$(tokenizer_of $copy.h5)" '"bytes"'; done
says "fp8-info shows the tokenizer" '^tokenizer +bytes$' fp8-info model.h5
fp8-step m.h5 --data t.h5 --out run.t $step --steps 1 >out 2>err
is "the checkpoint records the digest of a tokenizer.json" "$? $(tokenizer_of run.t/step-00000001)" "0 $(tokenizer_of t.h5)"

different='made with another tokenizer \([0-9a-f]*\) than the model.s \(bytes\); make it again with the model.s, or give --any-tokenizer'
for model in run/step-00000001 model.h5; do
  refused "$model: --data of another tokenizer is refused" "t.h5: $different" $model --data t.h5 --out x $step --steps 1
  refused "$model: --eval-data of another tokenizer is refused" "t.h5: $different" $model --data d.h5 --eval-data t.h5 --eval-every 1 --out x $step \
    --steps 1
  fp8-eval $model --data t.h5 --seq-length 16 >out 2>err
  is "$model: fp8-eval refuses data of another tokenizer" "$? $(wc -l <out) $(grep -cE "^fp8-eval: t.h5: $different\$" err) $(wc -l <err)" "2 0 1 1"
  ok "$model: fp8-eval --any-tokenizer accepts data of another tokenizer" fp8-eval $model --data t.h5 --seq-length 16 --any-tokenizer
done
ok "fp8-step --any-tokenizer accepts data of another tokenizer" fp8-step model.h5 --data t.h5 --out any $step --steps 1 --any-tokenizer
is "--any-tokenizer keeps the tokenizer of the model" "$(tokenizer_of any/step-00000001)" '"bytes"'
ok "data of an equivalent tokenizer.json is accepted" fp8-eval run.t/step-00000001 --data same.h5 --seq-length 16

says "fp8-step accepts data of an unknown tokenizer, with a message" '^fp8-step: unknown.h5: which tokenizer made it is not known' \
  fp8-step model.h5 --data unknown.h5 --out unknown --seq-length 16 --batch-size 2 --steps 1
says "fp8-eval accepts data of an unknown tokenizer, with a message" '^fp8-eval: unknown.h5: which tokenizer made it is not known' \
  fp8-eval model.h5 --data unknown.h5 --seq-length 16
fp8-eval model.h5 --data unknown.h5 --seq-length 16 -q >out 2>err
is "-q suppresses the message" "$? $(cat err)" "0 "

# A model with a tokenizer.json.
cp -r "$SRC/tests/golden/models/llama3/hf" hf && cp t.json hf/tokenizer.json && fp8-convert hf -o own.h5 >out 2>err
refused "a model with a tokenizer.json refuses data of bytes" "d.h5: made with another tokenizer \(bytes\) than the model's \([0-9a-f]{32}\)" own.h5 \
  --data d.h5 --out x $step --steps 1
ok "a model with a tokenizer.json accepts data of the same tokenizer" fp8-step own.h5 --data same.h5 --out own $step --steps 1
is "the checkpoint keeps the tokenizer.json" "$(fp8-info own/step-00000001 --json | grep -o '"tokenizer":[a-z]*')" '"tokenizer":true'
cp bad.json hf/tokenizer.json
says "an invalid tokenizer.json is refused at conversion" \
  '^fp8-convert: hf/tokenizer.json: model.vocab: .*; without this file the folder is converted' fp8-convert hf -o x.h5
rm hf/tokenizer.json
says "a missing one is noted" '^fp8-convert: hf: has no tokenizer.json, so the checkpoint has no tokenizer' fp8-convert hf -o none.h5
says "a message names a converted model without a tokenizer" '^fp8-eval: none.h5: has no tokenizer to compare with that of same.h5' \
  fp8-eval none.h5 --data same.h5 --seq-length 16
fp8-init tiny -o fresh.h5 >out 2>err && fp8-convert fresh.h5 -o fresh2.h5 >out 2>err
ok "a new model" fp8-step fresh2.h5 --data d.h5 --out fresh $step --steps 1
is "has no tokenizer to compare with, also after fp8-convert, which is not said" "$(grep -c tokenizer err)" 0
done_testing
