#!/bin/bash
# fp8-tokenize with a tokenizer.json: files, --encode, --decode, errors.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

golden=$SRC/tests/golden/tokenizers
llama3=$golden/llama3

printf '{"text": "Hello"}\n{"text": ""}\n' >x.jsonl
is "--encode prints ids with special tokens" "$(fp8-tokenize --tokenizer "$llama3" --encode <x.jsonl)" \
  "$(printf '{"ids":[2000,39,415,78]}\n{"ids":[2000]}')"
is "--encode --no-special prints ids without special tokens" "$(fp8-tokenize --tokenizer "$llama3" --encode --no-special <x.jsonl)" \
  "$(printf '{"ids":[39,415,78]}\n{"ids":[]}')"
is "--encode reads a file" "$(fp8-tokenize x.jsonl --tokenizer "$llama3/tokenizer.json" --encode | tail -n 1)" '{"ids":[2000]}'
is "--decode prints text with special tokens" \
  "$(echo '{"ids":[2000,39,415,78]}' | fp8-tokenize --tokenizer "$llama3" --decode)" '{"text":"<|begin_of_text|>Hello"}'
is "--decode --skip-special prints text without special tokens" \
  "$(echo '{"ids":[2000,39,415,78]}' | fp8-tokenize --tokenizer "$llama3" --decode --skip-special)" '{"text":"Hello"}'
for kind in gpt2 llama2 llama2-metaspace llama3 qwen2; do
  fp8-tokenize "$golden/$kind/cases.jsonl" --tokenizer "$golden/$kind" --encode --no-special >ids.jsonl
  python3 - "$golden/$kind/cases.jsonl" ids.jsonl <<'EOF'
import json, sys
cases, found = ([json.loads(x) for x in open(p, encoding="utf-8")] for p in sys.argv[1:])
sys.exit([c["ids_no_special"] for c in cases] != [f["ids"] for f in found])
EOF
  is "$kind: the ids are equal to those of the reference" $? 0
done

# A token file has the ids of --encode, for one and for many documents, with any number of threads.
head -c 700000 "$SRC/share/text/tinyshakespeare.txt" >play.txt
python3 - <<'EOF'
import json
text = open("play.txt", encoding="utf-8").read()
open("whole.jsonl", "w").write(json.dumps({"text": text}) + "\n")
open("play.jsonl", "w").writelines(json.dumps({"text": d}) + "\n" for d in text.split("\n\n") if d)
EOF
for kind in llama3 llama2; do
  fp8-tokenize whole.jsonl --tokenizer "$golden/$kind" --encode >whole.ids
  says "$kind: a text encoded by several threads has the tokens of --encode" "\"tokens\":$(tr -cd , <whole.ids | wc -c |
    awk '{print $1 + 1}'),\"documents\":1" fp8-tokenize play.txt --tokenizer "$golden/$kind" -o "$kind.h5" --json
  ok "$kind: the text is encoded on one processor" taskset -c 0 fp8-tokenize play.txt --tokenizer "$golden/$kind" -o one.h5 -f
  ok "$kind: both files are equal" cmp "$kind.h5" one.h5
  fp8-tokenize play.jsonl --tokenizer "$golden/$kind" --encode >many.ids
  says "$kind: a file of documents has the tokens of --encode" "\"tokens\":$(awk \
    '{n += gsub(/,/, ",") + 1} END {print n}' many.ids),\"documents\":$(wc -l <many.ids)" \
    fp8-tokenize play.jsonl --tokenizer "$golden/$kind" -o many.h5 -f --json
done
is "the token file records the tokenizer" "$(fp8-info llama3.h5 --json | grep -cE '"tokenizer(_id)?":"[0-9a-f]{32}"')" 1
says "the default vocabulary is that of the tokenizer" '"vocab_size":2009' fp8-tokenize x.jsonl --tokenizer "$llama3" -o v.h5 --json
says "a larger --vocab-size is accepted" '"vocab_size":4096' fp8-tokenize x.jsonl --tokenizer "$llama3" --vocab-size 4096 -o v.h5 -f --json
says "a --vocab-size below the largest id is refused" 'not below the vocabulary size 100 \(use --vocab-size\)$' fp8-tokenize x.jsonl \
  --tokenizer "$llama3" --vocab-size 100 -o w.h5
says "--eos appends its id to each document" '"tokens":4,' fp8-tokenize x.jsonl --tokenizer "$llama3" --no-special --eos 2001 -o e.h5 --json
is "a refused command leaves no file" "$(find . -name '*w.h5*')" ""

printf 'caf\351 ' >latin1.txt
echo '{}' >empty.jsonl
echo '{"ids":[-1]}' >negative.jsonl
says "text that is not UTF-8 is refused" '^fp8-tokenize: latin1.txt: byte 3 is not UTF-8 \(iconv' \
  fp8-tokenize latin1.txt --from text --tokenizer "$llama3" -o y.h5
says "a missing tokenizer is refused" '^fp8-tokenize: gone.json: .*No such file' fp8-tokenize x.jsonl --tokenizer gone.json -o y.h5
echo '{"model":{"type":"Unigram"}}' >unigram.json
says "an unsupported tokenizer model is refused" '^fp8-tokenize: unigram.json: model: "Unigram" is not supported$' fp8-tokenize x.jsonl \
  --tokenizer unigram.json --encode
status "an unsupported tokenizer model gives status 2" 2 fp8-tokenize x.jsonl --tokenizer unigram.json -o y.h5
says "--encode without --tokenizer is refused" '^fp8-tokenize: --tokenizer: needed' fp8-tokenize x.jsonl --encode
says "--encode with --decode is refused" '^fp8-tokenize: --encode: not with --decode$' fp8-tokenize x.jsonl --tokenizer "$llama3" --encode --decode
says "--encode with -o is refused" '^fp8-tokenize: --output: not with' fp8-tokenize x.jsonl --tokenizer "$llama3" --encode -o y.h5
says "a record without text is refused" '^fp8-tokenize: empty.jsonl: line 1: "text" is missing$' fp8-tokenize empty.jsonl --tokenizer "$llama3" \
  --encode
{ echo '{"text":"one"}' && echo '{}' && echo '{"text":"three"}'; } >second.jsonl
status "an error in the second record gives status 2" 2 fp8-tokenize second.jsonl --tokenizer "$llama3" --encode
is "the lines before it are printed" "$(grep -c '^{"ids":' out) $(cat err)" '1 fp8-tokenize: second.jsonl: line 2: "text" is missing'
says "a negative id is refused" '^fp8-tokenize: negative.jsonl: line 1: an id is not' fp8-tokenize negative.jsonl --tokenizer "$llama3" --decode

# A randomly damaged tokenizer.json either loads or is refused in one line.
python3 - "$golden/gpt2/tokenizer.json" <<'EOF'
import random, sys
whole, rng = open(sys.argv[1], "rb").read(), random.Random(1)
for i in range(40):
    damaged = bytearray(whole[: rng.randrange(len(whole))] if i % 2 else whole)
    for _ in range(i % 3):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    open(f"damaged-{i}.json", "wb").write(damaged)
EOF
bad=0
for f in damaged-*.json; do
  fp8-tokenize x.jsonl --tokenizer "$f" --encode >out 2>err
  rc=$?
  { [ $rc = 0 ] || { [ $rc = 2 ] && [ "$(wc -l <err)" = 1 ]; }; } || bad=$((bad + 1))
done
is "damaged tokenizer files are refused in one line or load" $bad 0
done_testing
