#!/bin/sh
# The tokenizer that data and models are of: recorded, compared, refused where it differs.
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
is "text is of bytes" "$(tokenizer_of d.h5)" '"bytes"'
is "ids are of an unknown tokenizer" "$(tokenizer_of unknown.h5)" null
says "unless it is declared: its digest is recorded" '^"[0-9a-f]{32}"$' tokenizer_of t.h5
is "however it is written" "$(tokenizer_of same.h5)" "$(tokenizer_of t.h5)"
[ "$(tokenizer_of other.h5)" != "$(tokenizer_of t.h5)" ]
result $? "another one is another digest"
says "and its vocabulary is the default" 'vocabulary 4$' fp8-tokenize ids.u16 --tokenizer t.json -o x.h5 -f
says "ids of bytes" 'vocabulary 256$' fp8-tokenize ids.u16 --tokenizer bytes -o x.h5 -f
printf '{"model": {"vocab": {"a": -1}}}' >bad.json
says "a damaged tokenizer.json" '^fp8-tokenize: bad.json: model.vocab: an id is not' fp8-tokenize ids.u16 --tokenizer bad.json -o y.h5
status "is status 2" 2 fp8-tokenize ids.u16 --tokenizer bad.json -o y.h5
head -c 100 t.json >cut.json
says "one that is cut short" '^fp8-tokenize: cut.json: line 1' fp8-tokenize ids.u16 --tokenizer cut.json -o y.h5

# A model without a tokenizer takes the data's, which it keeps.
fp8-step m.h5 --data d.h5 --out run $step --steps 1 >out 2>err
is "a new model takes any data, in silence" "$? $(cat err)" "0 "
is "and is of its tokenizer then" "$(tokenizer_of run/step-00000001)" '"bytes"'
fp8-convert run/step-00000001 --merge -o merged.h5 >out 2>err
fp8-convert run/step-00000001 -o model.h5 >out 2>err
fp8-quantize model.h5 -o q.h5 --scaling row >out 2>err
fp8-quantize q.h5 --dequantize -o back.h5 >out 2>err
for copy in merged model q back; do is "$copy.h5 is too" "$(tokenizer_of $copy.h5)" '"bytes"'; done
says "fp8-info says so" '^tokenizer +bytes$' fp8-info model.h5
fp8-step m.h5 --data t.h5 --out run.t $step --steps 1 >out 2>err
is "that of a tokenizer.json too" "$? $(tokenizer_of run.t/step-00000001)" "0 $(tokenizer_of t.h5)"

different='made with another tokenizer \([0-9a-f]*\) than the model.s \(bytes\); make it again with the model.s, or give --any-tokenizer'
for model in run/step-00000001 model.h5; do
  refused "data of another tokenizer: $model" "t.h5: $different" $model --data t.h5 --out x $step --steps 1
  refused "to evaluate on: $model" "t.h5: $different" $model --data d.h5 --eval-data t.h5 --eval-every 1 --out x $step --steps 1
  fp8-eval $model --data t.h5 --seq-length 16 >out 2>err
  is "fp8-eval of $model refuses it" "$? $(wc -l <out) $(grep -cE "^fp8-eval: t.h5: $different\$" err) $(wc -l <err)" "2 0 1 1"
  ok "--any-tokenizer takes it: $model" fp8-eval $model --data t.h5 --seq-length 16 --any-tokenizer
done
ok "fp8-step too" fp8-step model.h5 --data t.h5 --out any $step --steps 1 --any-tokenizer
is "and the model keeps its own" "$(tokenizer_of any/step-00000001)" '"bytes"'
ok "data of the same tokenizer, made from another spelling" fp8-eval run.t/step-00000001 --data same.h5 --seq-length 16

says "data of an unknown one is taken, with a line" '^fp8-step: unknown.h5: which tokenizer made it is not known' \
  fp8-step model.h5 --data unknown.h5 --out unknown --seq-length 16 --batch-size 2 --steps 1
says "by fp8-eval too" '^fp8-eval: unknown.h5: which tokenizer made it is not known' fp8-eval model.h5 --data unknown.h5 --seq-length 16
fp8-eval model.h5 --data unknown.h5 --seq-length 16 -q >out 2>err
is "but for -q" "$? $(cat err)" "0 "

# A model with a tokenizer.json of its own.
cp -r "$SRC/tests/golden/models/llama3/hf" hf && cp t.json hf/tokenizer.json && fp8-convert hf -o own.h5 >out 2>err
refused "a model with a tokenizer.json" "d.h5: made with another tokenizer \(bytes\) than the model's \([0-9a-f]{32}\)" own.h5 --data d.h5 --out x $step --steps 1
ok "takes data of it" fp8-step own.h5 --data same.h5 --out own $step --steps 1
is "and keeps it" "$(fp8-info own/step-00000001 --json | grep -o '"tokenizer":[a-z]*')" '"tokenizer":true'
cp bad.json hf/tokenizer.json && fp8-convert hf -o broken.h5 >out 2>err
refused "one that cannot be read" "broken.h5: /tokenizer: model.vocab: .*--any-tokenizer goes on without it" broken.h5 --data same.h5 --out x $step --steps 1
ok "is passed over by --any-tokenizer" fp8-step broken.h5 --data same.h5 --out broken $step --steps 1 --any-tokenizer
rm hf/tokenizer.json && fp8-convert hf -o none.h5 >out 2>err
says "a converted model without one is told of" '^fp8-eval: none.h5: has no tokenizer to compare with that of same.h5' fp8-eval none.h5 --data same.h5 --seq-length 16
done_testing
