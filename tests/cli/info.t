#!/bin/sh
# fp8-info: what it shows, that it finds damage, and how it compares.
. "${SRC:-.}/tests/cli/lib.sh"
golden=$SRC/tests/golden/models

fp8-init tiny -o a.h5 >record 2>err
fp8-convert "$golden/llama3/hf" -o l.h5 >table 2>err
says "the model" '^model +llama: 2 layers, width 64, 4 heads of 16 \(2 key/value\), feed-forward 176, vocabulary 256$' fp8-info a.h5
says "the parameters" '^parameters +125248, 489 KiB in 21 tensors' fp8-info a.h5
says "the precisions" '^fp8 +14 of 21' fp8-info a.h5
says "a tensor" '^weights/model.layers.0.mlp.up_proj.weight +bfloat16 +176x64 +fp8$' fp8-info l.h5
says "a reason" '^weights/lm_head.weight +bfloat16 +256x64 +bf16 +LM head$' fp8-info l.h5
says "statistics" '^weights/model.norm.weight +float32 +64 +bf16 +1 +1 +1 +0 +norm$' fp8-info a.h5 --statistics
ok "a record" sh -c 'fp8-info a.h5 --json >json'
is "is one line" "$(wc -l <json | tr -d ' ')" 1
says "with tensors" '\{"name":"weights/lm_head.weight","dtype":"float32","shape":\[256,64\],"precision":"bf16","reason":"LM head"\}' cat json
says "precisions of an earlier program's checkpoint" '"precision":"bf16"' fp8-info "$SRC/tests/fuzz/corpus/checkpoint/model.h5" --json
says "a record on standard input" '^path +a.h5' sh -c 'fp8-info - <record'
ok "a reader that goes away" sh -c 'fp8-info a.h5 | head -1'

ok "verify" fp8-info a.h5 --verify
for at in 10 300 520 20000 100000 250000 513000; do
  cp a.h5 bad.h5
  old=$(od -An -tu1 -j $at -N 1 a.h5 | tr -d ' ')
  # shellcheck disable=SC2059 # the byte is the format
  printf "\\$(printf %03o $(((old + 1) % 256)))" | dd of=bad.h5 bs=1 seek=$at conv=notrunc 2>/dev/null
  status "a changed byte at $at" 2 fp8-info bad.h5 --verify
done
says "damage is named" '^fp8-info: bad.h5: ' fp8-info bad.h5 --verify
head -c 500000 a.h5 >short.h5
status "a file cut short" 2 fp8-info short.h5 --verify
says "is named" 'short.h5: truncated' fp8-info short.h5
(cat a.h5 && echo more) >long.h5
status "a file appended to" 2 fp8-info long.h5

ok "a checkpoint equals itself" fp8-info a.h5 --diff a.h5
fp8-convert a.h5 --dtype bf16 -o b.h5 >table 2>err
status "rounding is a difference" 1 fp8-info a.h5 --diff b.h5
cp out differences
says "that is measured" '^weights/model.norm.weight +0 +0$' cat differences
says "and counted" '^a.h5 and b.h5: 16 of 21 tensors differ$' cat differences
status "another model" 1 fp8-info a.h5 --diff l.h5
says "is said" 'the configurations differ' fp8-info a.h5 --diff l.h5
fp8-init tiny --set num_hidden_layers=1 -o one.h5 >record 2>err
says "tensors of one only" '^weights/model.layers.1.input_layernorm.weight .*only in A$' fp8-info a.h5 --diff one.h5
says "a record of it" '^\{"type":"diff","a":"a.h5","b":"b.h5","equal":false,' fp8-info a.h5 --diff b.h5 --json
status "a damaged other" 2 fp8-info a.h5 --diff short.h5

printf 'to be or not' >text
fp8-tokenize text -o t.h5 >record 2>err
says "a token file" '^t.h5: a token file, not a checkpoint: 12 tokens, 1 document, vocabulary 256$' fp8-info t.h5 --verify
says "as a record" '^\{"type":"tokens","path":"t.h5","tokens":12,' fp8-info t.h5 --json
status "is not compared" 2 fp8-info t.h5 --diff a.h5
says "a Hugging Face folder" '^fp8-info: [^ ]*: a Hugging Face folder, not a checkpoint' fp8-info "$golden/llama3/hf"
says "text" '^fp8-info: text: ' fp8-info text
status "nothing" 2 fp8-info none.h5
says "a folder of a run" 'its newest is run/step-00000007' sh -c 'mkdir -p run/step-00000007 && fp8-info run'
status "a full disk behind standard output" 2 sh -c 'fp8-info a.h5 >/dev/full'
done_testing
