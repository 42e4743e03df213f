#!/bin/sh
# fp8-init: presets and configuration files, seeds, errors.
. "${SRC:-.}/tests/cli/lib.sh"
golden=$SRC/tests/golden/models

ok "a preset makes a model" fp8-init tiny -o m.h5
is "standard output is the record of the model" "$(cat out)" '{"type":"checkpoint","path":"m.h5"}'
ok "the model verifies" fp8-info m.h5 --verify
says "the same seed makes a model" 'm2.h5' fp8-init tiny -o m2.h5 --seed 0
cp m.h5 s0.h5
ok "the same seed gives equal weights" fp8-info m.h5 --diff m2.h5
ok "another seed makes a model" fp8-init tiny -o s.h5 --seed 1
status "another seed gives other weights" 1 fp8-info m.h5 --diff s.h5
ok "the same command runs in two folders" sh -c 'mkdir a b && (cd a && fp8-init tiny -o x.h5) && (cd b && fp8-init tiny -o x.h5)'
ok "the same command gives equal files" cmp a/x.h5 b/x.h5
ok "one thread gives the same file" sh -c 'mkdir c && cd c && OMP_NUM_THREADS=1 fp8-init tiny -o x.h5 && cmp x.h5 ../a/x.h5'
ok "a configuration file makes a model" fp8-init "$golden/qwen3/hf/config.json" -o q.h5 --dtype bf16
says "the shapes are those of the configuration file" 'q_norm.weight +bfloat16 +32 ' fp8-info q.h5
ok "a configuration of transformers 4 is read" fp8-init "$golden/llama3/hf/config.v4.json" -o old.h5
ok "a configuration of transformers 5 is read" fp8-init "$golden/llama3/hf/config.json" -o new.h5
ok "both configurations give equal models" fp8-info old.h5 --diff new.h5
ok "--set changes keys" fp8-init tiny --set num_hidden_layers=3 --set tie_word_embeddings=true -o set.h5
says "the changed keys are in the model" '3 layers.*tied' fp8-info set.h5
ok "--set changes a key inside an object" fp8-init tiny --set rope_parameters.rope_theta=5e5 -o rope.h5
says "the key inside the object is stored" '"rope_theta":5e\+05' fp8-info --json rope.h5
# A dry run needs the space of the model: two layers of those with more than 100 GB.
layers() { case $1 in mixtral-8x7b | qwen3-30b-a3b) echo "--set num_hidden_layers=2" ;; esac; }
for preset in "$SRC"/share/presets/*.json; do
  name=$(basename "$preset" .json)
  # shellcheck disable=SC2046 # no word or two
  says "preset $name is valid" 'would hold' fp8-init "$name" $(layers "$name") --dry-run -o "$name.h5"
done
ok "a dry run writes no file" test ! -e demo.h5

echo '{"model_type":"llama"}' >bare.json
ok "a configuration without sizes is accepted" fp8-init bare.json --dry-run -o x.h5
is "a message names the default values and the number of parameters" "$(cat err)" \
  "fp8-init: bare.json: lacks keys, defaults of llama are used: vocab_size 32000, \
hidden_size 4096, intermediate_size 11008, num_hidden_layers 32, num_attention_heads 32, hidden_act silu, rms_norm_eps 1e-06, rope_theta 10000, \
max_position_embeddings 2048, \
tie_word_embeddings false, initializer_range 0.02, attention_bias false, mlp_bias false; the model has 6.74 G parameters"
ok "a configuration without sizes is accepted with --quiet" fp8-init bare.json --dry-run -q -o x.h5
is "--quiet prints no message" "$(cat err)" ""
# shellcheck disable=SC2046
is "presets give no message" "$(for p in "$SRC"/share/presets/*.json; do
  name=$(basename "$p" .json)
  fp8-init "$name" $(layers "$name") --dry-run -o x.h5 2>&1 >/dev/null
done)" ""
python3 -c 'print("{\"model_type\":\"" + "m" * 1000000 + "\"}")' >long.json
status "an unsupported model_type of 1 MB gives status 2" 2 fp8-init long.json -o x.h5
is "the long name is shortened in the message" "$(cut -c 1-40 err) $(wc -l <err) $(($(wc -c <err) < 300))" \
  'fp8-init: long.json: model_type "mmmmmmm 1 1'

# --- --tokenizer
words=$FP8_SHARE/tokenizers/shakespeare
ok "--tokenizer bytes" fp8-init tiny --tokenizer bytes -o bytes.h5
says "bytes are recorded" '^tokenizer +bytes$' fp8-info bytes.h5
ok "a tokenizer does not change the weights" fp8-info bytes.h5 --diff s0.h5
mkdir tokenizer && cp "$words/tokenizer.json" tokenizer && echo '{"eos_token":"<|endoftext|>"}' >tokenizer/tokenizer_config.json &&
  echo '{}' >tokenizer/generation_config.json
for from in tokenizer tokenizer/tokenizer.json; do
  ok "--tokenizer $from" fp8-init tiny --set vocab_size=1008 --tokenizer $from -o words.h5 -f
  says "$from: the tokenizer is stored" '^tokenizer +tokenizer.json' fp8-info words.h5
  is "$from: the files that describe its use too, but none of a model" "$(fp8-info words.h5 --json | grep -o '"huggingface":\[[^]]*\]')" \
    '"huggingface":["tokenizer_config.json"]'
done
huge="--set num_hidden_layers=1000 --set intermediate_size=1048576 --set hidden_size=65536 --set num_attention_heads=64 --set \
num_key_value_heads=64 --set head_dim=1024"
# shellcheck disable=SC2086 # a list of words on purpose
says "a dry run needs no space for the weights" '^x.h5: would hold 223 T parameters in 9003 tensors, 813 TiB$' fp8-init tiny $huge -o x.h5 -n
# shellcheck disable=SC2086 # a list of words on purpose
status "but writing them does" 2 fp8-init tiny $huge -o x.h5
says "a vocabulary that is too small is refused" \
  "^fp8-init: --tokenizer: tokenizer/tokenizer.json: has 1000 tokens, the model's vocabulary 256 \\(use --set vocab_size=1000\\)\$" fp8-init tiny \
  --tokenizer tokenizer -o x.h5
status "its status is 2" 2 fp8-init tiny --tokenizer tokenizer -o x.h5 -n
says "bytes need 256 ids" "^fp8-init: --tokenizer: bytes: has 256 tokens, the model's vocabulary 100 " \
  fp8-init tiny --set vocab_size=100 --tokenizer bytes -o x.h5
echo '{"model":1}' >not.json
says "a file that is no tokenizer is refused" '^fp8-init: not.json: ' fp8-init tiny --tokenizer not.json -o x.h5
says "a missing tokenizer is refused" '^fp8-init: none: ' fp8-init tiny --tokenizer none -o x.h5
ok "no refused output exists" test ! -e x.h5

says "an unknown preset is refused; the message lists the presets" 'fp8-init: tinny: neither a file nor a preset \(demo, ' fp8-init tinny -o x.h5
says "a missing file is refused" 'fp8-init: no/config.json: ' fp8-init no/config.json -o x.h5
says "no output is refused" '^fp8-init: --output: needed' fp8-init tiny
says "--set of an unknown key is refused" 'fp8-init: --set hidden=1: no such key' fp8-init tiny --set hidden=1 -o x.h5
says "a value out of range is refused" 'hidden_size' fp8-init tiny --set hidden_size=0 -o x.h5
says "a value of the wrong type is refused" 'hidden_size' fp8-init tiny --set hidden_size=big -o x.h5
says "numbers of heads that do not divide are refused" 'does not divide' fp8-init tiny --set num_key_value_heads=3 -o x.h5
says "a negative seed is refused" '^fp8-init: --seed: ' fp8-init tiny --seed=-1 -o x.h5
says "a seed that is not a number is refused" '^fp8-init: --seed: ' fp8-init tiny --seed 1e3x -o x.h5
says "an existing output is refused" '^fp8-init: m.h5: exists' fp8-init tiny -o m.h5
status "an existing output gives status 2" 2 fp8-init tiny -o m.h5
ok "--force replaces an existing output" fp8-init tiny -o m.h5 -f --seed 3
says "a device as output is refused" '^fp8-init: /dev/null: ' fp8-init tiny -f -o /dev/null
says "an output in a missing folder is refused" '^fp8-init: no/x.h5: ' fp8-init tiny -o no/x.h5
status "an output in a missing folder gives status 2" 2 fp8-init tiny -o no/x.h5
says "invalid JSON is refused" '^fp8-init: bad.json: line ' sh -c 'echo "{" > bad.json; fp8-init bad.json -o x.h5'
says "a missing folder of presets is named" 'no: |FP8_SHARE|/no/presets' env FP8_SHARE=/no fp8-init tiny -o x.h5
status "a full standard output gives status 2" 2 sh -c 'fp8-init tiny -o full.h5 >/dev/full'
fp8-init tiny --set hidden_size=512 --set intermediate_size=2048 --set num_hidden_layers=8 -o big.h5 >out 2>err
mkfifo endless && yes >endless 2>/dev/null &
writer=$!
# ended SIGNAL COMMAND...: prints the status of a command that gets the signal while it writes, and what it left.
# A write to the output does not return.
ended() {
  signal=$1
  shift
  env FAULT_UNDER="$(pwd -P)" FAULT_DO=hang FAULT_CALLS=write FAULT_PATH="$file" FAULT_AT=1 LD_PRELOAD="$O/test/fault.so" "$@" >out 2>err </dev/null &
  tool=$!
  while [ -z "$(find . -maxdepth 1 -name '.ended.*.tmp')" ] && kill -0 $tool 2>/dev/null; do sleep 0.01; done
  kill -"$signal" $tool 2>/dev/null
  wait $tool
  echo "$? $(find . -maxdepth 1 -name '*ended*')$(cat err)"
}
big="--set hidden_size=512 --set intermediate_size=2048 --set num_hidden_layers=8"
# shellcheck disable=SC2086 # lists of words on purpose
for words in "fp8-init tiny $big" "fp8-convert big.h5 --dtype bf16" "fp8-quantize big.h5 --scaling row" \
  "fp8-export big.h5 -q" "fp8-tokenize endless"; do
  [ "${words%% *}" = fp8-export ] && file=.safetensors || file=.tmp
  is "${words%% *} leaves nothing when TERM ends it" "$(ended TERM $words -o ended)" "143 "
  is "${words%% *} leaves nothing when HUP ends it" "$(ended HUP $words -o ended)" "129 "
done
kill $writer 2>/dev/null
is "no temporary file is left" "$(ls x.h5* ./*.tmp* .[a-z]* 2>/dev/null)" ""
done_testing
