#!/bin/bash
# Malicious files: each is refused with its name, the reason and status 2, and no other file is opened.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

refuses() { # FILE REGEX
  ln -sf "$corpus/$1.h5" x.h5
  says "$1 is refused with its reason" "^fp8-info: x.h5: $2" fp8-info x.h5
  status "$1 gives status 2" 2 fp8-info x.h5
}

corpus=$SRC/tests/fuzz/corpus/checkpoint
refuses external-link '/weights: soft and external links are not allowed'
refuses soft-link '/weights: soft and external links are not allowed'
refuses hard-link '/config: linked more than once'
refuses cycle 'linked more than once'
refuses external-data '/weights/w: external storage is not allowed'
refuses deflate-bomb '/weights/w: only contiguous layout is allowed'
refuses virtual '/weights/w: only contiguous layout is allowed'
refuses huge-late '/weights/w: declares more bytes than it stores'
refuses huge-rank '/weights/w: shape: too large'
refuses vlen-strings '/weights/w: its type is not allowed'
refuses vlen-attribute 'attribute note: its type is not allowed'
refuses region-reference '/weights/w: its type is not allowed'
refuses reference-attribute 'attribute ref: its type is not allowed'
refuses committed-type '/t: neither a group nor a dataset'
refuses dtype-lie '/weights/w: attribute dtype does not fit'
refuses deep '/g.*: groups nest deeper than 16'
refuses user-block-length 'damaged: [0-9]* bytes after its end'
refuses user-block-long 'truncated: '
refuses no-attribute-tree 'damaged: '
status "a wrong digest gives status 2" 2 fp8-info "$corpus/user-block-digest.h5" --verify

# Files that the malicious file refers to are not opened.
if command -v strace >/dev/null; then
  for name in external-link external-data virtual; do
    strace -f -e trace=open,openat -o trace fp8-info "$corpus/$name.h5" >/dev/null 2>&1
    status "$name: the referenced file is not opened" 1 grep -E '/etc/(passwd|other)' trace
  done
fi

# Tokenizers, templates and conversations: each is refused in one line, in bounded time and memory.
python3 - "$SRC/tests/golden" <<'EOF'
import json, sys
base = open(sys.argv[1] + "/chat/llama3/tokenizer.json").read()

def tokenizer(name, **parts):
    open(name + ".json", "w").write(json.dumps(json.loads(base) | parts))

def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}

tokenizer("backtracks", pre_tokenizer=split("(a+)+$"))
tokenizer("recursive", pre_tokenizer=split("(?R)?a"))
tokenizer("calls", pre_tokenizer=split("a(?C1)b"))
tokenizer("parentheses", pre_tokenizer=split("(" * 5000 + ")" * 5000))
replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
tokenizer("grows", normalizer={"type": "Sequence", "normalizers": [replace] * 6})
model = json.loads(base)["model"]
for name, number in (("huge-id", 2**40), ("far-id", 2**31 - 2)):
    tokenizer(name, model=model | {"vocab": model["vocab"] | {"zzzz": number}})
open("nested.json", "w").write('{"normalizer":' + '{"type":"Sequence","normalizers":[' * 50000)
open("text.txt", "w").write("a" * 5000 + "! the end")
open("template.json", "w").write("[" * 100000)
open("nested.jsonl", "w").write('{"messages":' + "[" * 100000 + "\n")
open("surrogate.jsonl", "w").write('{"messages":[{"role":"user","content":"\\ud800"}]}\n')
open("object.jsonl", "w").write('{"messages":{"role":1}}\n')
EOF
addresses=4000000
if sanitized; then addresses=unlimited; fi
limited() { (ulimit -v "$addresses" && timeout 30 fp8-tokenize "$@" -o t.h5 -f -q); }
refused() { # NAME REGEX ARGUMENTS...
  name=$1 regex=$2
  shift 2
  limited "$@" >out 2>err
  is "$name: $regex" "$? $(wc -l <err | tr -d ' ') $(grep -cE "^fp8-tokenize: $regex" err)" "2 1 1"
}
refused "an expression that backtracks" 'text.txt: backtracks.json: pre_tokenizer: .* match limit exceeded' text.txt --tokenizer backtracks.json
refused "a recursive expression" 'recursive.json: pre_tokenizer: .*not supported' text.txt --tokenizer recursive.json
refused "an expression that calls out" 'calls.json: pre_tokenizer: .*not supported' text.txt --tokenizer calls.json
refused "an expression of parentheses" 'parentheses.json: pre_tokenizer: .*too deeply nested' text.txt --tokenizer parentheses.json
refused "a normalizer that multiplies" '.*Replace makes a text more than 256 times as long' text.txt --tokenizer grows.json
refused "a huge id" 'huge-id.json: model.vocab: ' text.txt --tokenizer huge-id.json
refused "a distant id" 'far-id.json: model: ' text.txt --tokenizer far-id.json
refused "a nested tokenizer" 'nested.json: .*nested deeper than 64' text.txt --tokenizer nested.json
refused "an endless tokenizer" '/dev/zero: larger than' text.txt --tokenizer /dev/zero
llama3=$SRC/tests/golden/chat/llama3
refused "a nested template" 'template.json: .*nested deeper than 8' surrogate.jsonl --tokenizer "$llama3" --template template.json
refused "an endless template" '/dev/zero: larger than' surrogate.jsonl --tokenizer "$llama3" --template /dev/zero
refused "nested conversations" 'nested.jsonl: .*nested deeper than 64' nested.jsonl --from messages --tokenizer "$llama3" --template llama3
refused "half a character" 'surrogate.jsonl: .*surrogate' surrogate.jsonl --from messages --tokenizer "$llama3" --template llama3
refused "messages that are no list" 'object.jsonl: line 1: "messages" is not a list' object.jsonl --from messages --tokenizer "$llama3" \
  --template llama3
done_testing
