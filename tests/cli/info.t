#!/bin/sh
# fp8-info: contents of a checkpoint, --verify and --diff.
. "${SRC:-.}/tests/cli/lib.sh"
golden=$SRC/tests/golden/models

fp8-init tiny -o a.h5 >record 2>err
fp8-convert "$golden/llama3/hf" -o l.h5 >table 2>err
says "the model is described" '^model +llama: 2 layers, width 64, 4 heads of 16 \(2 key/value\), feed-forward 176, vocabulary 256$' fp8-info a.h5
says "the parameters are counted" '^parameters +125248, 489 KiB in 21 tensors' fp8-info a.h5
says "the precisions are counted" '^fp8 +14 of 21' fp8-info a.h5
says "a tensor has a line" '^weights/model.layers.0.mlp.up_proj.weight +bfloat16 +176x64 +fp8$' fp8-info l.h5
says "a bf16 tensor has a reason" '^weights/lm_head.weight +bfloat16 +256x64 +bf16 +LM head$' fp8-info l.h5
says "--statistics prints statistics" '^weights/model.norm.weight +float32 +64 +bf16 +1 +1 +1 +0 +norm$' fp8-info a.h5 --statistics
ok "--json succeeds" sh -c 'fp8-info a.h5 --json >json'
is "--json prints one line" "$(wc -l <json | tr -d ' ')" 1
says "the record lists the tensors" '\{"name":"weights/lm_head.weight","dtype":"float32","shape":\[256,64\],"precision":"bf16","reason":"LM head"\}' cat json
says "precisions of a checkpoint of an earlier version are translated" '"precision":"bf16"' fp8-info "$SRC/tests/fuzz/corpus/checkpoint/model.h5" --json
says "a record on standard input names the checkpoint" '^path +a.h5' sh -c 'fp8-info - <record'
ok "a reader that closes the pipe is no error" sh -c 'fp8-info a.h5 | head -1'

ok "--verify succeeds" fp8-info a.h5 --verify
for at in 10 300 520 20000 100000 250000 513000; do
  cp a.h5 bad.h5
  old=$(od -An -tu1 -j $at -N 1 a.h5 | tr -d ' ')
  # shellcheck disable=SC2059 # the byte is the format
  printf "\\$(printf %03o $(((old + 1) % 256)))" | dd of=bad.h5 bs=1 seek=$at conv=notrunc 2>/dev/null
  status "--verify finds a changed byte at $at" 2 fp8-info bad.h5 --verify
done
says "a damaged file is named" '^fp8-info: bad.h5: ' fp8-info bad.h5 --verify
head -c 500000 a.h5 >short.h5
status "a truncated file gives status 2" 2 fp8-info short.h5 --verify
says "a truncated file is named" 'short.h5: truncated' fp8-info short.h5
(cat a.h5 && echo more) >long.h5
status "a file with bytes appended gives status 2" 2 fp8-info long.h5

ok "--diff of a checkpoint with itself gives status 0" fp8-info a.h5 --diff a.h5
fp8-convert a.h5 --dtype bf16 -o b.h5 >table 2>err
status "--diff of rounded weights gives status 1" 1 fp8-info a.h5 --diff b.h5
cp out differences
says "--diff prints the difference of each tensor" '^weights/model.norm.weight +0 +0$' cat differences
says "--diff counts the tensors that differ" '^a.h5 and b.h5: 16 of 21 tensors differ$' cat differences
status "--diff of another model gives status 1" 1 fp8-info a.h5 --diff l.h5
says "--diff states that the configurations differ" 'the configurations differ' fp8-info a.h5 --diff l.h5
fp8-init tiny --set num_hidden_layers=1 -o one.h5 >record 2>err
says "--diff names tensors that one checkpoint lacks" '^weights/model.layers.1.input_layernorm.weight .*only in A$' fp8-info a.h5 --diff one.h5
says "--diff --json prints a record" '^\{"type":"diff","a":"a.h5","b":"b.h5","equal":false,' fp8-info a.h5 --diff b.h5 --json
status "--diff with a damaged checkpoint gives status 2" 2 fp8-info a.h5 --diff short.h5

printf 'to be or not' >text
fp8-tokenize text -o t.h5 >record 2>err
says "a token file is described" '^t.h5: a token file, not a checkpoint: 12 tokens, 1 document, vocabulary 256$' fp8-info t.h5 --verify
says "a token file has a record" '^\{"type":"tokens","path":"t.h5","tokens":12,' fp8-info t.h5 --json
status "--diff of a token file gives status 2" 2 fp8-info t.h5 --diff a.h5
says "a Hugging Face folder is refused" '^fp8-info: [^ ]*: a Hugging Face folder, not a checkpoint' fp8-info "$golden/llama3/hf"
says "a text is refused" '^fp8-info: text: ' fp8-info text
status "a missing file gives status 2" 2 fp8-info none.h5
says "a run whose only checkpoint is damaged" '^fp8-info: run: every checkpoint in it is damaged; .*step-00000007: not a checkpoint' sh -c 'mkdir -p run/step-00000007 && fp8-info run'
status "a full standard output gives status 2" 2 sh -c 'fp8-info a.h5 >/dev/full'
done_testing
