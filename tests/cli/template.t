#!/bin/bash
# The chat template of a model: recognized, the default of --template of fp8-tokenize, fp8-generate and fp8-export, and compared with another one.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

golden=$SRC/tests/golden/chat
cp "$golden"/data/{alpaca.json,sharegpt.jsonl,openai.jsonl} .
chatml=$SRC/examples/3-fine-tune/tokenizer/chat_template.jinja
folder() { mkdir "$1" && cp "$golden/qwen/tokenizer.json" "$golden/qwen/tokenizer_config.json" "$1" && chmod u+w "$1"/*; }
folder bare
folder own && cp "$chatml" own/chat_template.jinja
folder other && echo '{% for m in messages %}{{ m.content }}{% endfor %}' >other/chat_template.jinja
ids() { fp8-tokenize "$@" --json 2>err; }
notes() { sed -n '/template/p' err; }

# --- fp8-tokenize
ids openai.jsonl --tokenizer bare --template chatml >chatml.ids
ids openai.jsonl --tokenizer bare --template qwen >qwen.ids
for input in openai.jsonl sharegpt.jsonl alpaca.json; do
  is "$input: the template of the folder" "$(ids $input --tokenizer own)" "$(ids $input --tokenizer bare --template chatml)"
done
ids openai.jsonl --tokenizer own >own.ids
is "a note names it" "$(notes)" "fp8-tokenize: template chatml, that of own/chat_template.jinja"
is "--quiet prints none" "$(fp8-tokenize openai.jsonl --tokenizer own --json -q 2>&1 | cksum)" "$(cksum <own.ids)"
is "a tokenizer.json beside it too" "$(ids openai.jsonl --tokenizer own/tokenizer.json)" "$(cat own.ids)"
is "standard input, with a flag of conversations" "$(ids - --tokenizer own --mask assistant <openai.jsonl)" "$(cat own.ids)"
is "standard input, with a format" "$(ids - --tokenizer own --from messages <openai.jsonl)" "$(cat own.ids)"
says "none renders no conversations" '^fp8-tokenize: --template: conversations cannot be rendered with none; ' fp8-tokenize openai.jsonl \
  --tokenizer own --template none --json
ok "a packed file" fp8-tokenize openai.jsonl --tokenizer own --pack 64 -o own.h5
echo '{"text":"a"}' >text.jsonl
is "records of text stay text" "$(fp8-tokenize text.jsonl --tokenizer own -o text.h5 2>&1)" \
  "$(fp8-tokenize text.jsonl --tokenizer bare -f -o text.h5 2>&1)"
folder config
for value in "$(python3 -c 'import json, sys; print(json.dumps(open(sys.argv[1]).read()))' "$chatml")" \
  "$(python3 -c 'import json, sys; print(json.dumps([{"name": "tool_use", "template": "x"}, {"name": "default", "template": '\
'open(sys.argv[1]).read()}]))' "$chatml")"; do
  sed "1s/{/{\"chat_template\": $(printf %s "$value" | sed 's/[&\\/]/\\&/g'),/" "$golden/qwen/tokenizer_config.json" >config/tokenizer_config.json
  is "in tokenizer_config.json" "$(ids openai.jsonl --tokenizer config)" "$(cat own.ids)"
  is "which the note names" "$(notes)" "fp8-tokenize: template chatml, that of config/tokenizer_config.json"
done
echo '{"chat_template": 7}' >config/tokenizer_config.json
says "a number" '^fp8-tokenize: config/tokenizer_config.json: "chat_template": not a string$' fp8-tokenize openai.jsonl --tokenizer config --json

# --- another template than the model's
status "another template gives status 2" 2 fp8-tokenize openai.jsonl --tokenizer own --template qwen --json
is "it is refused in one line" "$(cat err)" \
  "fp8-tokenize: template qwen: the model has another, chatml (own/chat_template.jinja) (use --any-template to use it all the same)"
is "--any-template accepts it" "$(ids openai.jsonl --tokenizer own --template qwen --any-template)" "$(cat qwen.ids)"
is "the same template is accepted" "$(ids openai.jsonl --tokenizer own --template chatml)" "$(cat own.ids)"
is "without a note" "$(notes)" ""
cp "$FP8_SHARE/templates/chatml.json" copy.json
is "and so is a copy of it" "$(ids openai.jsonl --tokenizer own --template copy.json)" "$(cat own.ids)"

# --- Jinja as --template
is "known Jinja is its template" "$(ids openai.jsonl --tokenizer bare --template own/chat_template.jinja)" "$(cat own.ids)"
{ printf ' \r\n' && cat "$chatml" && printf '\n\n'; } >spaces.jinja
is "white space around it does not matter" "$(ids openai.jsonl --tokenizer bare --template spaces.jinja)" "$(cat own.ids)"
unknown='Jinja that is not known \(digest ([0-9a-f]{32})\)'
says "other Jinja is refused with what to do" \
  "^fp8-tokenize: other/chat_template.jinja: $unknown; describe it in a file as fp8-template\(5\) says, .* \(use --template with a name: chatml, \
llama2, llama3, mistral, qwen\)\$" \
  fp8-tokenize openai.jsonl --tokenizer bare --template other/chat_template.jinja --json
is "in one line, with status 2" "$? $(wc -l <err)" "0 1"
digest=$(grep -Eo '[0-9a-f]{32}' err)
says "conversations for a model with other Jinja need a template" \
  "^fp8-tokenize: other/chat_template.jinja: $unknown, so conversations need a template \(use --template " fp8-tokenize openai.jsonl \
  --tokenizer other --json
is "one that is named is taken" "$(ids openai.jsonl --tokenizer other --template chatml)" "$(cat own.ids)"
is "with a note" "$(notes)" "fp8-tokenize: other/chat_template.jinja: Jinja that is not known, so template chatml is not compared with it"
sed "s/\"jinja\": \[/&{\"digest\": \"$digest\"},/" copy.json >listed.json
is "one that lists the digest" "$(ids openai.jsonl --tokenizer other --template listed.json)" "$(cat own.ids)"
is "needs none" "$(notes)" ""
sed 's/"digest": "./&x/' copy.json >wrong.json
says "a digest that is none" '^fp8-tokenize: wrong.json: jinja: digest: .* is not 32 hexadecimal digits$' fp8-tokenize openai.jsonl --tokenizer bare \
  --template wrong.json --json

# --- a checkpoint
vocabulary=$(fp8-tokenize text.jsonl --tokenizer bare -f -o text.h5 --json | sed 's/.*"vocab_size":\([0-9]*\).*/\1/')
model() { fp8-init "$SRC/tests/golden/models/llama3/hf/config.json" -q --set vocab_size="$vocabulary" -o "$@" >out 2>err; }
model own-model.h5 --tokenizer own
model other-model.h5 --tokenizer other
model bare-model.h5 --tokenizer bare
model bytes.h5 --tokenizer bytes
model none.h5
is "--tokenizer takes a checkpoint" "$(ids openai.jsonl --tokenizer own-model.h5)" "$(cat own.ids)"
is "whose file the note names" "$(notes)" "fp8-tokenize: template chatml, that of own-model.h5: /huggingface/chat_template.jinja"
is "with --encode" "$(fp8-tokenize text.jsonl --tokenizer own-model.h5 --encode)" "$(fp8-tokenize text.jsonl --tokenizer bare --encode)"
is "of bytes" "$(fp8-tokenize text.jsonl --tokenizer bytes.h5 -n -o x.h5)" "x.h5: would hold 1 token in 1 document, vocabulary 256"
ok "the file is that of its tokenizer" fp8-tokenize openai.jsonl --tokenizer own-model.h5 --pack 64 -f -o own.h5
ok "so that it can be trained on" fp8-step own-model.h5 --data own.h5 --out run --steps 1 --batch-size 2 -q
is "the checkpoint of a run" "$(ids openai.jsonl --tokenizer run)" "$(cat own.ids)"
says "one without a tokenizer" '^fp8-tokenize: none.h5: has no tokenizer$' fp8-tokenize openai.jsonl --tokenizer none.h5 --json

# --- fp8-generate
new() { fp8-generate "$@" --greedy --max-tokens 4 --ignore-end --json 2>err | tail -n 1; }
named=$(new bare-model.h5 hello --template chatml)
is "fp8-generate uses the template of the checkpoint" "$(new own-model.h5 hello)" "$named"
is "and names it" "$(cat err)" "fp8-generate: template chatml, that of own-model.h5: /huggingface/chat_template.jinja"
echo '{"messages":[{"role":"user","content":"hello"}]}' >hello.jsonl
is "for messages too" "$(new own-model.h5 --input hello.jsonl)" "$named"
is "for a checkpoint of a run too" "$(new run hello | cut -c-45)" "$(printf %s "$named" | cut -c-45)"
is "--tokenizer may name it" "$(new bare-model.h5 hello --tokenizer own)" "$named"
for _ in 1 2; do echo '{"messages":[{"role":"user","content":"hello"}],"tools":[{}]}'; done >tools.jsonl
new own-model.h5 --input tools.jsonl >out
is "what a prompt states besides is named once" "$(sed 1d err)" 'fp8-generate: tools.jsonl: "tools" is not rendered'
new own-model.h5 hello -q >out
is "--quiet prints no note" "$(cat err)" ""
plain=$(new bare-model.h5 hello)
is "without a template, plain text" "$(cat err)" ""
is "--template none is plain text" "$(new own-model.h5 hello --template none)" "$plain"
is "without a note" "$(cat err)" ""
is "a chat model whose template is not known" "$(new other-model.h5 hello)" "$plain"
is "has plain text, which one line says" "$(cat err)" \
  "fp8-generate: other-model.h5: /huggingface/chat_template.jinja: Jinja that is not known (digest $digest), so prompts are plain text without a \
chat template; --template names one"
new own-model.h5 hello --tokenizer bytes >out
is "and so does a tokenizer without special tokens" "$(cat err)" \
  "fp8-generate: prompts are plain text, without the chat template of the model, chatml"
new own-model.h5 --ids 5,6 >out
is "token ids have no note" "$(cat err)" ""
says "another template is refused" '^fp8-generate: template qwen: the model has another, chatml ' fp8-generate own-model.h5 hello --template qwen
ok "unless --any-template" fp8-generate own-model.h5 hello --template qwen --any-template --max-tokens 1

# --- fp8-export
ends() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1] + "/generation_config.json"))["eos_token_id"])' "$1"; }
fp8-export bare-model.h5 -o named --template chatml >out 2>err
fp8-export own-model.h5 -o implied >out 2>err
is "fp8-export adds the end token of the template" "$(ends implied)" "$(ends named)"
is "and names it" "$(notes)" "fp8-export: template chatml, that of own-model.h5: /huggingface/chat_template.jinja"
fp8-export bare-model.h5 -o without >out 2>err
fp8-export own-model.h5 -o declined --template none >out 2>err
is "--template none adds none" "$(ends declined)" "$(ends without)"
[ "$(ends implied)" != "$(ends without)" ]
result $? "it is another list"
says "another template is refused" '^fp8-export: template qwen: the model has another, chatml ' fp8-export own-model.h5 -o x --template qwen
ok "which leaves no folder" test ! -e x
ok "unless --any-template" fp8-export own-model.h5 -o x --template qwen --any-template

# --- the name of a known model
mkdir llama3 && cp "$golden"/llama3/tokenizer*.json llama3
echo '{"_name_or_path": "meta-llama/Meta-Llama-3-8B-Instruct"}' >llama3/config.json
is "a model is known by its name" "$(ids openai.jsonl --tokenizer llama3)" "$(ids openai.jsonl --tokenizer "$golden/llama3" --template llama3)"
ids openai.jsonl --tokenizer llama3 >out
is "which the note names" "$(notes)" "fp8-tokenize: template llama3, that of Meta-Llama-3-8B-Instruct"
echo '{"_name_or_path": "meta-llama/Meta-Llama-3-8B"}' >llama3/config.json
says "one that is not for chats has no template" '"text" is missing \(use --template for conversations' fp8-tokenize openai.jsonl \
  --tokenizer llama3 -o x.h5

# --- the template of the data
fp8-tokenize openai.jsonl --tokenizer bare --template qwen --eval-share 0.25 -f -o qwen.h5 >out 2>err
fp8-tokenize openai.jsonl --tokenizer bare --template chatml -f -o chatml.h5 >out 2>err
says "a token file stores it" '^qwen.h5: .* template qwen$' fp8-info qwen.h5
is "as a record" "$(fp8-info qwen-eval.h5 --json | grep -o '"template":.*')" '"template":"qwen"}'
sed 's/a/&&&&&&&&&&/; s/a/&&&&&&&&&&&&&&&&&&&&&&&&/g' text.jsonl >long.jsonl
fp8-tokenize long.jsonl --tokenizer bare -f -o text.h5 >out 2>err
is "text has none" "$(fp8-info text.h5 --json | grep -o '"template":.*')" '"template":null}'
train() { fp8-step "$@" --seq-length 64 --batch-size 2 -q; }
template_of() { fp8-info "$1" | sed -n 's/^template *//p'; }
ok "a run of two ranks" fp8-resume kept -- mpirun -n 2 fp8-step bare-model.h5 --data qwen.h5 --eval-data qwen-eval.h5 --seq-length 64 --batch-size 1 \
  --steps 1
is "a note names it" "$(notes | sort -u)" "fp8-step: checkpoints keep the template of qwen.h5, qwen"
is "its checkpoints have it" "$(template_of kept)" qwen
ok "the run goes on" train bare-model.h5 --data qwen.h5 --out kept --steps 2
ok "merged" fp8-convert kept --merge -o merged.h5
ok "and quantized" fp8-quantize merged.h5 --scaling row -o codes.h5
is "it stays" "$(template_of codes.h5)" qwen
ok "adapters beside it" train codes.h5 --data qwen.h5 --out adapters --lora-rank 2 --steps 1
end='print(sys.argv[1], __import__("json").load(open(sys.argv[1] + "/tokenizer_config.json"))["eos_token"])'
for format in bf16 fp8 peft; do
  source=kept && [ $format != peft ] || source=adapters
  fp8-export $source --format $format --any-server -o tuned-$format >out 2>err
  is "$format: the folder ends texts as a named template does" "$(ends tuned-$format)" \
    "$(fp8-export bare-model.h5 -o named -f --template qwen >out 2>err && ends named)"
  is "$format: and so does its tokenizer" "$(python3 -c "import sys; $end" tuned-$format)" "tuned-$format <|im_end|>"
  is "$format: its conversations are those of the data" "$(ids openai.jsonl --tokenizer tuned-$format)" "$(cat qwen.ids)"
  is "$format: which a note says" "$(notes)" "fp8-tokenize: template qwen, that of tuned-$format/chat_template.jinja"
done
new bare-model.h5 hello --lora tuned-peft >out
is "fp8-generate --lora has the template of the adapter" "$(cat err)" "fp8-generate: template qwen, that of tuned-peft/chat_template.jinja"
is "and the text of a checkpoint with this adapter" "$(cat out)" "$(new bare-model.h5 hello --lora tuned-peft --template qwen)"
new own-model.h5 hello --lora tuned-peft >out
is "which takes the place of the model's" "$(cat err)" "fp8-generate: template qwen, that of tuned-peft/chat_template.jinja"
says "another template than the adapter's is refused" \
  '^fp8-generate: template chatml: the model has another, qwen \(tuned-peft/chat_template.jinja\)' fp8-generate own-model.h5 hello --lora tuned-peft \
  --template chatml
ok "a run of other data keeps it" train bare-model.h5 --data text.h5 --lora tuned-peft --out from-adapter --steps 1
is "in its checkpoint" "$(template_of from-adapter)" qwen
is "with its end token" "$(fp8-export from-adapter --format peft -o adapter-again >out 2>err; python3 -c "import sys; $end" adapter-again)" \
  "adapter-again <|im_end|>"
ok "the folder is converted" fp8-convert tuned-bf16 -o again.h5
is "with its template" "$(template_of again.h5)" qwen
ok "exported again" fp8-export again.h5 -o again
is "the folder is the same" "$(cat again/*.json* again/*.jinja | cksum)" "$(cat tuned-bf16/*.json* tuned-bf16/*.jinja | cksum)"
new kept hello >out
is "fp8-generate uses it" "$(cat err)" "fp8-generate: template qwen, that of kept/step-00000002: /huggingface/chat_template.jinja"
is "as a named one" "$(cat out)" "$(new kept hello --template qwen)"
says "a model with the same keeps its Jinja" '' train own-model.h5 --data chatml.h5 --out same --steps 1
fp8-export same -o same-folder >out 2>err
ok "unchanged" cmp same-folder/chat_template.jinja "$chatml"
ok "Jinja that is not known" train other-model.h5 --data chatml.h5 --out other-run --steps 1
is "is replaced" "$(template_of other-run)" chatml
fp8-step other-model.h5 --data chatml.h5 --out x -n --seq-length 64 --batch-size 1 --steps 1 >out 2>err
is "with a note" "$(notes)" \
  "fp8-step: checkpoints keep the template of chatml.h5, chatml, in place of that in other-model.h5: /huggingface/chat_template.jinja"
fp8-tokenize own.jsonl --tokenizer bare --template own.json -f -o form.h5 >out 2>err
echo '{"begin": [], "prompt": ["Q: {user} A:"], "answer": ["{answer}<|im_end|>"], "eos": "<|im_end|>"}' >plain.json
fp8-tokenize openai.jsonl --tokenizer bare --template plain.json --skip-bad 1 -f -o plain.h5 >out 2>err
ok "a template of a file" train bare-model.h5 --data plain.h5 --out plain --steps 1
ok "is exported" fp8-export plain -o plain-folder
is "and read back" "$(ids openai.jsonl --tokenizer plain-folder --skip-bad 1)" \
  "$(ids openai.jsonl --tokenizer bare --template plain.json --skip-bad 1)"

# --- two templates
refuses() { # NAME MESSAGE ARGUMENTS...
  says "$1" "^fp8-step: $2; make one again with the other's template, or give --any-template\$" train "${@:3}" --out two --steps 1
  ok "$1: --any-template accepts it" train "${@:3}" --out two --steps 1 --any-template
  rm -rf two
}
refuses "another template than the model's" \
  'qwen.h5: made with the template qwen, but that of the model is chatml \(own-model.h5: /huggingface/chat_template.jinja\)' own-model.h5 \
  --data qwen.h5
refuses "another template than the adapter's" \
  'chatml.h5: made with the template chatml, but that of the model is qwen \(tuned-peft/chat_template.jinja\)' own-model.h5 --data chatml.h5 \
  --lora tuned-peft
refuses "evaluation data of another template" 'qwen-eval.h5: made with the template qwen, but chatml.h5 with chatml' bare-model.h5 --data chatml.h5 \
  --eval-data qwen-eval.h5
refuses "evaluation data alone" 'qwen-eval.h5: made with the template qwen, but that of the model is chatml .*' own-model.h5 --data text.h5 \
  --eval-data qwen-eval.h5
says "fp8-eval says so" '^fp8-eval: qwen.h5: made with the template qwen, but that of the model is chatml ' fp8-eval own-model.h5 --data qwen.h5 \
  --seq-length 64
says "a run with other data" 'started with another --data; .* --change data,template to go on' train bare-model.h5 --data chatml.h5 --out kept \
  --steps 3
says "a new file of the run that changes it alone" 'another chat template \("qwen", now "chatml"\); .* --change template to go on' train \
  bare-model.h5 --data chatml.h5 --out kept --steps 3 --change data
ok "--change template accepts it" train bare-model.h5 --data chatml.h5 --out kept --steps 3 --change data,template
is "and the checkpoint has the new one" "$(template_of kept)" chatml
ok "and so does --any-template" train bare-model.h5 --data qwen.h5 --out kept --steps 4 --change data --any-template
is "with the new one" "$(template_of kept)" qwen
done_testing
