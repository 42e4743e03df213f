#!/bin/sh
# fp8-init: presets and configuration files, what is keyed by the seed, and what it refuses.
. "${SRC:-.}/tests/cli/lib.sh"
golden=$SRC/tests/golden/models

ok "a preset" fp8-init tiny -o m.h5
is "prints the record that names it" "$(cat out)" '{"type":"checkpoint","path":"m.h5"}'
ok "it verifies" fp8-info m.h5 --verify
says "the same seed once more" 'm2.h5' fp8-init tiny -o m2.h5 --seed 0
ok "gives equal weights" fp8-info m.h5 --diff m2.h5
ok "another seed" fp8-init tiny -o s.h5 --seed 1
status "gives others" 1 fp8-info m.h5 --diff s.h5
ok "the same command" sh -c 'mkdir a b && (cd a && fp8-init tiny -o x.h5) && (cd b && fp8-init tiny -o x.h5)'
ok "gives the same bytes" cmp a/x.h5 b/x.h5
ok "on one thread too" sh -c 'mkdir c && cd c && OMP_NUM_THREADS=1 fp8-init tiny -o x.h5 && cmp x.h5 ../a/x.h5'
ok "a configuration file" fp8-init "$golden/qwen3/hf/config.json" -o q.h5 --dtype bf16
says "keeps its shapes" 'q_norm.weight +bfloat16 +32 ' fp8-info q.h5
ok "the old spelling" fp8-init "$golden/llama3/hf/config.v4.json" -o old.h5
ok "the new spelling" fp8-init "$golden/llama3/hf/config.json" -o new.h5
ok "agree" fp8-info old.h5 --diff new.h5
ok "keys can be set" fp8-init tiny --set num_hidden_layers=3 --set tie_word_embeddings=true -o set.h5
says "and are seen" '3 layers.*tied' fp8-info set.h5
ok "keys inside an object too" fp8-init tiny --set rope_parameters.rope_theta=5e5 -o rope.h5
says "and are stored" '"rope_theta":5e\+05' fp8-info --json rope.h5
for preset in "$SRC"/share/presets/*.json; do
  name=$(basename "$preset" .json)
  says "preset $name" 'would hold' fp8-init "$name" --dry-run -o "$name.h5"
done
ok "a dry run leaves nothing" test ! -e demo.h5

echo '{"model_type":"llama"}' >bare.json
ok "sizes that are missing" fp8-init bare.json --dry-run -o x.h5
is "are named, with what comes of them" "$(cat err)" "fp8-init: bare.json: lacks sizes, defaults of llama are used: vocab_size 32000, \
hidden_size 4096, intermediate_size 11008, num_hidden_layers 32, num_attention_heads 32; the model has 6.74 G parameters"
ok "but with --quiet" fp8-init bare.json --dry-run -q -o x.h5
is "nothing is said" "$(cat err)" ""
is "nor of a preset" "$(for p in "$SRC"/share/presets/*.json; do fp8-init "$(basename "$p" .json)" --dry-run -o x.h5 2>&1 >/dev/null; done)" ""
python3 -c 'print("{\"model_type\":\"" + "m" * 1000000 + "\"}")' >long.json
status "a long name" 2 fp8-init long.json -o x.h5
is "is cut in the message" "$(cut -c 1-40 err) $(wc -l <err) $(($(wc -c <err) < 300))" 'fp8-init: long.json: model_type "mmmmmmm 1 1'

says "an unknown preset lists those there are" 'fp8-init: tinny: neither a file nor a preset \(demo, ' fp8-init tinny -o x.h5
says "a missing file" 'fp8-init: no/config.json: ' fp8-init no/config.json -o x.h5
says "no output" '^fp8-init: --output: needed' fp8-init tiny
says "an unknown key" 'fp8-init: --set hidden=1: no such key' fp8-init tiny --set hidden=1 -o x.h5
says "a value out of range" 'hidden_size' fp8-init tiny --set hidden_size=0 -o x.h5
says "a value of another type" 'hidden_size' fp8-init tiny --set hidden_size=big -o x.h5
says "heads that do not divide" 'does not divide' fp8-init tiny --set num_key_value_heads=3 -o x.h5
says "a mixture of experts gets one line" '^fp8-init: [^ ]*: mixture-of-experts models .* not supported yet' fp8-init "$golden/mixtral/hf/config.json" -o x.h5
says "a seed below 0" '^fp8-init: --seed: ' fp8-init tiny --seed=-1 -o x.h5
says "a seed that is no number" '^fp8-init: --seed: ' fp8-init tiny --seed 1e3x -o x.h5
says "an output that exists" '^fp8-init: m.h5: exists' fp8-init tiny -o m.h5
status "with its status" 2 fp8-init tiny -o m.h5
ok "is replaced by force" fp8-init tiny -o m.h5 -f --seed 3
says "an output that is no file" '^fp8-init: /dev/null: ' fp8-init tiny -f -o /dev/null
says "an output in no folder" '^fp8-init: no/x.h5: ' fp8-init tiny -o no/x.h5
status "with status 2" 2 fp8-init tiny -o no/x.h5
says "JSON that is none" '^fp8-init: bad.json: line ' sh -c 'echo "{" > bad.json; fp8-init bad.json -o x.h5'
says "no presets" 'no: |FP8_SHARE|/no/presets' env FP8_SHARE=/no fp8-init tiny -o x.h5
status "a full disk behind standard output" 2 sh -c 'fp8-init tiny -o full.h5 >/dev/full'
is "nothing half-written stays" "$(ls x.h5* ./*.tmp* .[a-z]* 2>/dev/null)" ""
done_testing
