#!/bin/bash
# fp8-tokenize --template: the reference values of tests/golden/chat, files, the summary, and what is refused.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

golden=$SRC/tests/golden/chat
llama3=(--tokenizer "$golden/llama3" --template llama3)
cp "$golden"/data/{alpaca.json,sharegpt.jsonl,openai.jsonl} .

mkdir found
for form in llama2 llama3 mistral qwen; do
  for input in alpaca.json sharegpt.jsonl openai.jsonl; do
    for mode in assistant last all; do
      for cutoff in 128 2048; do
        fp8-tokenize $input --tokenizer "$golden/$form/tokenizer.json" --template $form --mask $mode --cutoff $cutoff \
          --json >"found/$form,${input%.*}-$mode-$cutoff.jsonl" 2>err
      done
    done
  done
  fp8-tokenize alpaca.json sharegpt.jsonl openai.jsonl --tokenizer "$golden/$form" --template $form --cutoff 256 --pack 256 \
    --json >"found/$form,packed-256.jsonl" 2>err
done
# Whether the records of each file are those of the reference, `documents` aside.
python3 - "$golden" >compared <<'EOF'
import json, os, sys
for name in sorted(os.listdir("found")):
    found, wanted = ([json.loads(line) for line in open(p)] for p in ("found/" + name, sys.argv[1] + "/" + name.replace(",", "/")))
    for record in wanted:
        record.pop("documents", None)
    print(int(found != wanted or not wanted), name)
EOF
is "all are compared" "$(wc -l <compared)" 76
while read -r differs name; do result "$differs" "${name%.jsonl}"; done <compared
is "the guesses and the counts are on standard error" "$(sed 's/ (.*//' err)" "fp8-tokenize: alpaca.json: read as alpaca, column \"output\"
fp8-tokenize: sharegpt.jsonl: read as sharegpt, column \"conversations\"
fp8-tokenize: openai.jsonl: read as messages, column \"messages\"
fp8-tokenize: 37 documents, 5376 tokens, 1627 targets, 12 cut, 0 left out; packed into 21 sequences with 213 tokens of padding; longest 3274 tokens"
is "through a pipe, in silence" "$(fp8-tokenize - "${llama3[@]}" --json -q <openai.jsonl 2>&1 | wc -l)" 12
is "one processor, the same" "$(taskset -c 0 fp8-tokenize openai.jsonl "${llama3[@]}" --json -q | cksum)" \
  "$(fp8-tokenize openai.jsonl "${llama3[@]}" --json -q | cksum)"

# Files.
says "a token file" '^c.h5: 25 documents, 2100 tokens, 680 targets, 10 cut, 0 left out; longest 3499 tokens \(openai.jsonl: line 9\); beyond the '\
'cutoff: 40 % of the conversations, 87.5 % of their tokens$' fp8-tokenize alpaca.json openai.jsonl "${llama3[@]}" --cutoff 128 -o c.h5
says "has a mask" 'with a mask' fp8-info c.h5
is "a record" "$(fp8-tokenize alpaca.json openai.jsonl "${llama3[@]}" --cutoff 128 -o d.h5 --json -q)" \
  '{"type":"tokens","path":"d.h5","tokens":2100,"documents":25,"vocab_size":2009,"targets":680,"records":25,"cut":10,"dropped":{},"sequences":25,'\
'"padding":0,"longest":3499,"too_long":10,"tokens_lost":14637,"ignored":{}}'
ok "the same bytes" cmp c.h5 d.h5
says "an output that exists" '^fp8-tokenize: c.h5: exists' fp8-tokenize openai.jsonl "${llama3[@]}" -o c.h5
says "a dry run" '^n.h5: would hold 12 documents' fp8-tokenize openai.jsonl "${llama3[@]}" -n -o n.h5
ok "two files" fp8-tokenize openai.jsonl "${llama3[@]}" --eval-share 0.25 -o two.h5
is "with all records" "$(cut -d, -f1 out)" "two.h5: 9 documents
two-eval.h5: 3 documents"
says "for evaluation too" '3 documents' fp8-info two-eval.h5
echo '{"prompt":"a","completion":"b"}' >completion.jsonl
says "columns of no format are named, with the flag that reads them" \
  '^fp8-tokenize: completion.jsonl: line 1: none of the columns of alpaca, sharegpt and messages, but "prompt", "completion" \(use --columns '\
'prompt=prompt,response=completion\)$' fp8-tokenize completion.jsonl "${llama3[@]}" -n -o n.h5
says "which does" '^n.h5: would hold 1 document' fp8-tokenize completion.jsonl "${llama3[@]}" -n -o n.h5 --columns prompt=prompt,response=completion
head -n 1 openai.jsonl >one.jsonl
says "one record for two files" 'no document is left for this file' fp8-tokenize one.jsonl "${llama3[@]}" --eval-share 0.5 -o one.h5
ok "leaves neither" test ! -e one.h5 -a ! -e one-eval.h5
ok "a packed file" fp8-tokenize openai.jsonl "${llama3[@]}" --pack 128 -o p.h5
fp8-init "$SRC/tests/golden/models/llama3/hf/config.json" -o m.h5 --set vocab_size=2009 >out 2>err
says "is read in its sequences" '"type":"eval"' fp8-eval m.h5 --data p.h5 --seq-length 128 --any-tokenizer
is "with documents apart" "$(grep -o '"documents":"[a-z]*"' out)" '"documents":"separate"'
says "or joined" '"documents":"joined"' fp8-eval m.h5 --data p.h5 --seq-length 128 --any-tokenizer --documents joined
says "and in no others" 'sequence length 64, but p.h5 holds packed sequences of 128 tokens \(use --seq-length 128\)' fp8-eval m.h5 --data p.h5 \
  --seq-length 64 --any-tokenizer

# The length of packed sequences.
ok "shorter sequences than the context" fp8-tokenize openai.jsonl "${llama3[@]}" --pack 64 -o p64.h5
ok "fp8-eval takes their length" fp8-eval m.h5 --data p64.h5 --any-tokenizer --per-token -q
is "which a sequence has" "$(head -n 1 out | sed 's/.*"losses":\[//; s/\].*//' | tr , "\n" | wc -l)" 64
ok "fp8-step too" fp8-step m.h5 --data p64.h5 --any-tokenizer --steps 1 --batch-size 2 --out packed -q
is "the run record has it, among settings and flags" "$(head -n 1 out | grep -o '"seq-length":[^,}]*')" '"seq-length":64
"seq-length":64'
ok "the run goes on" fp8-step m.h5 --data p64.h5 --any-tokenizer --steps 2 --batch-size 2 --out packed -q
says "--print-config has it" '^  "seq-length": 64,$' fp8-step m.h5 --data p64.h5 --any-tokenizer --steps 1 --out x --print-config
says "another length is refused" '^fp8-step: sequence length 32, but p64.h5 holds packed sequences of 64 tokens \(use --seq-length 64\)$' \
  fp8-step m.h5 --data p64.h5 --any-tokenizer --steps 1 --out x --seq-length 32
says "by --print-config too" '^fp8-step: sequence length 32, but p64.h5 holds' fp8-step m.h5 --data p64.h5 --any-tokenizer --steps 1 --out x \
  --seq-length 32 --print-config
says "fp8-inspect takes their length" '"seq_length":64,' fp8-inspect m.h5 --data p64.h5 --any-tokenizer --batch-size 1 --json -q

# What a record states besides its conversation.
cat >meaning.jsonl <<'EOT'
{"messages":[{"role":"user","content":"1+1?"},{"role":"assistant","content":"3","loss":false},{"role":"user","content":"Again."},{"role":"assistant","content":"2"}]}
{"messages":[{"role":"user","content":"Rome?"},{"role":"assistant","content":"Rome."}],"label":false,"tools":[{"name":"map"}]}
{"messages":[{"role":"user","content":"Rome?"},{"role":"assistant","content":"Rome."}],"label":false}
EOT
fp8-tokenize meaning.jsonl "${llama3[@]}" --show 1 -o meaning.h5 >out 2>err
is "a message that does not count is no target" "$(grep '^+' out)" '+ "2<|eot_id|>" [17,2007]'
is "other meanings are named once" "$(sed 1d err)" 'fp8-tokenize: 2 of 3 records: "label" is false, but the answer is trained
fp8-tokenize: 1 of 3 records: "tools" is not rendered'
is "and counted" "$(fp8-tokenize meaning.jsonl "${llama3[@]}" -n -o x.h5 --json -q | grep -o '"ignored":{.*},')" \
  '"ignored":{"\"label\" is false, but the answer is trained":2,"\"tools\" is not rendered":1},'
echo '{"instruction":"Rome?","chosen":"Rome.","rejected":"Pisa."}' >pairs.jsonl
says "preferences without an answer" \
  '^fp8-tokenize: pairs.jsonl: line 1: "output" is missing \(use --columns response=chosen to train on the chosen answers\)$' \
  fp8-tokenize pairs.jsonl "${llama3[@]}" -o pairs.h5
says "as it says, with a note" '^fp8-tokenize: 1 of 1 record: "rejected" is not used: preferences are not learned$' fp8-tokenize pairs.jsonl \
  "${llama3[@]}" -o pairs.h5 --columns response=chosen
echo '{"chosen":[{"role":"user","content":"Rome?"},{"role":"assistant","content":"Rome."}],"rejected":[]}' >pairs.jsonl
says "preferences as messages" ' \(use --columns messages=chosen to train on the chosen answers\)$' fp8-tokenize pairs.jsonl \
  "${llama3[@]}" -n -o other.h5
sed -i '3s/"label":false/"images":["1.jpg"]/' meaning.jsonl
says "pictures are refused" '^fp8-tokenize: meaning.jsonl: line 3: the record has "images", but only text is read$' fp8-tokenize meaning.jsonl \
  "${llama3[@]}" -o x.h5
ok "or left out" fp8-tokenize meaning.jsonl "${llama3[@]}" -o meaning.h5 -f --skip-bad 0.5
echo '{"text":"<image>","images":["1.jpg"]}' >picture.jsonl
says "beside texts too" '^fp8-tokenize: picture.jsonl: line 1: the record has "images", but only text is read$' fp8-tokenize picture.jsonl -o x.h5

# Examples.
fp8-tokenize openai.jsonl "${llama3[@]}" --show 1 >out 2>err
is "an example" "$(cut -c1-60 out)" 'openai.jsonl: line 1: 42 tokens, 8 of them targets (+)
- "<|begin_of_text|><|start_header_id|>system<|end_header_id
+ "Hi! What'"'"'s up?<|eot_id|>" [39,72,0,1195,324,451,30,2007]'
is "as a record" "$(fp8-tokenize openai.jsonl "${llama3[@]}" --show 2 -o s.h5 --json -q | cut -c1-36)" '{"type":"example","line":1,"text":"<
{"type":"example","line":2,"text":"<
{"type":"tokens","path":"s.h5","toke'

# Columns and templates of the user's own.
echo '{"q":"a","a":"b"}' >own.jsonl
is "columns" "$(fp8-tokenize own.jsonl "${llama3[@]}" --columns prompt=q,response=a --json -q | wc -l)" 1
echo '{"begin":[],"prompt":["{user}"],"answer":["{answer}"]}' >own.json
is "a template" "$(fp8-tokenize own.jsonl --tokenizer "$golden/llama3" --template own.json --columns prompt=q,response=a --json -q)" \
  '{"ids":[64,65],"trained":[[1,2]]}'
says "text under another key" '^t.h5: 1 token ' fp8-tokenize own.jsonl --columns text=q -o t.h5
says "an unknown template" '^fp8-tokenize: gemma: neither a file nor a template \(chatml, llama2, llama3, mistral, qwen\)$' fp8-tokenize own.jsonl \
  --tokenizer "$golden/llama3" --template gemma --json
says "a tokenizer without the markers" 'tokenizer.json: <\|im_start\|> is not a token of it, but the template needs it' fp8-tokenize openai.jsonl \
  --tokenizer "$golden/llama3" --template qwen --json
mkdir bare && cp "$golden/llama2/tokenizer.json" bare
says "a tokenizer without bos" '^fp8-tokenize: bare/tokenizer_config.json: no bos_token, but the template needs it' fp8-tokenize openai.jsonl \
  --tokenizer bare --template mistral --json
says "plain text may stand for other marks" '^{"ids":\[1,' fp8-tokenize openai.jsonl --tokenizer "$golden/llama2" --template mistral --json

# Bad records.
python3 - "$golden/data" "$golden/llama3" <<'EOF'
import json, subprocess, sys
data, tokenizer = sys.argv[1:]
wrong = 0
for line in open(f"{data}/bad.jsonl"):
    bad = json.loads(line)
    command = ["fp8-tokenize", f"{data}/bad/{bad['file']}", "--tokenizer", tokenizer, "--template", "llama3", "--json", "-q"]
    one = subprocess.run(command, capture_output=True, text=True)
    rest = subprocess.run([*command, "--skip-bad", "0.5"], capture_output=True, text=True)
    place = f"{bad['file']}: " + (f"line {bad['line']}" if bad["line"] else "")
    good = one.returncode == 2 and place in one.stderr and one.stderr.count("\n") == 1
    good &= (rest.returncode, rest.stdout.count("\n")) == ((0, 2) if bad["line"] else (2, 0))
    if not good:
        wrong += 1
        print("#", bad, one, rest)
sys.exit(wrong)
EOF
is "the bad records of the reference" $? 0
bad=$golden/data/bad/openai-cut-off.jsonl
says "are counted" '2 documents.* 1 left out \(not valid JSON: 1\); longest' fp8-tokenize "$bad" "${llama3[@]}" --skip-bad 0.4 -o b.h5
says "and named" 'openai-cut-off.jsonl: line 2 column .*; left out$' fp8-tokenize "$bad" "${llama3[@]}" --skip-bad 0.4 -o b.h5 -f
says "up to a share" '^fp8-tokenize: 1 of 3 records are bad, .* \(use --skip-bad with a larger share\)' fp8-tokenize "$bad" "${llama3[@]}" \
  --skip-bad 0.3 -o x.h5
{ printf '{"messages":[{"role":"user"}]}\n{"messages":[1]}\n{"messages":7}\n{"other":1}\n{bad\n'; cat openai.jsonl; } >many.jsonl
says "at most three reasons" ' 5 left out \((.{1,90}: 1, ){2}.{1,90}: 1, other reasons: 2\); longest' fp8-tokenize many.jsonl "${llama3[@]}" \
  --skip-bad 0.9 -o b.h5 -f
says "conversations without --template" \
  '^fp8-tokenize: openai.jsonl: line 1: "text" is missing \(use --template for conversations, which have "messages"\)$' \
  fp8-tokenize openai.jsonl -o x.h5
says "text with --template" '^fp8-tokenize: plain.txt: text, which holds no conversations for --template' fp8-tokenize plain.txt \
  "${llama3[@]}" -o x.h5
printf 'PAR1' >x.parquet
says "Parquet" '^fp8-tokenize: x.parquet: a Parquet file; make JSON Lines of it: python3 -c "import pandas; ' fp8-tokenize x.parquet \
  "${llama3[@]}" -o x.h5
says "too long" '^fp8-tokenize: openai.jsonl: line 3: 77 tokens, more than 50 ' fp8-tokenize openai.jsonl "${llama3[@]}" --cutoff 50 \
  --too-long error -o x.h5
says "nothing left" '^fp8-tokenize: openai.jsonl: no conversation is left' fp8-tokenize openai.jsonl "${llama3[@]}" --cutoff 5 --too-long drop -o x.h5
is "no file is left by a refusal" "$(find . -name '*x.h5*')" ""

# Flags that do not go together.
refused() { # NAME MESSAGE ARGUMENTS...
  says "$1" "^fp8-tokenize: $2" fp8-tokenize "${@:3}"
}
refused "no tokenizer" "--tokenizer: needed for --template" openai.jsonl --template llama3 --json
refused "bytes" "--tokenizer: needed for --template" openai.jsonl --template llama3 --tokenizer bytes --json
refused "no output" "--output: needed, or --json" openai.jsonl "${llama3[@]}"
refused "examples among ids" "--show: needs --output" openai.jsonl "${llama3[@]}" --json --show 1
refused "two files of none" "--eval-share: needs --output" openai.jsonl "${llama3[@]}" --json --eval-share 0.5
refused "ids" "--from: u16 holds no conversations" openai.jsonl "${llama3[@]}" --json --from u16
refused "--eos" "--eos: not with --template" openai.jsonl "${llama3[@]}" --json --eos 1
refused "a mask of text" "--mask: needs --template" openai.jsonl --mask all -o x.h5
refused "a format of conversations" "--template: needed for --from alpaca" alpaca.json --from alpaca -o x.h5
refused "a column" 'columns: "promt" is not a name' openai.jsonl "${llama3[@]}" --columns promt=x --json
refused "a share" "--skip-bad: " openai.jsonl "${llama3[@]}" --skip-bad 1.5 --json
refused "a pack" "--pack: " openai.jsonl "${llama3[@]}" --pack 1 --json
refused "no files" "FILE: needed" "${llama3[@]}" --json
done_testing
