#!/bin/sh
# fp8-generate: prompts, ends of texts, sampling, records, threads, sources, errors.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
golden=$SRC/tests/golden/models
gen() { fp8-generate "$@"; }
# ids WORDS...: the new tokens, from the last record.
ids() { fp8-generate "$@" --json | tail -n 1 | sed 's/.*"ids"://; s/}$//'; }
# field NAME FILE: the values of a field.
field() { grep -o "\"$1\":[^,}]*" "$2" | cut -d: -f2-; }

for m in llama3 llama-tied qwen2 qwen3; do fp8-convert "$golden/$m/hf" -o $m.h5 >table 2>err; done
fixed="--ids 5,6,7 --greedy --max-tokens 60 --ignore-end --precision fp32"

# --- the surface for scripts
# shellcheck disable=SC2086 # lists of words on purpose
for m in llama3 llama-tied qwen2 qwen3; do
  ok "$m: token ids" gen $m.h5 $fixed --json
  cp out $m.out
  is "$m: a record for each token and one at the end" \
    "$(grep -c '^{"type":"token","prompt":0,"index":[0-9]*,"id":[0-9]*,"logprob":-[0-9.e-]*}$' out) $(wc -l <out)" "60 61"
  is "$m: the last record has the new tokens" "$(tail -n 1 out | sed 's/.*"ids":\[\(.*\)\]}/\1/' | tr ',' '\n')" \
    "$(sed -n 's/.*"id":\([0-9]*\),.*/\1/p' out)"
  says "$m: it has the documented fields" '^\{"type":"generation","prompt":0,"prompt_tokens":3,"tokens":60,"end":"max_tokens","ids":\[[0-9,]*\]\}$' \
    tail -n 1 $m.out
  OMP_NUM_THREADS=2 fp8-generate $m.h5 $fixed --json >two 2>err
  ok "$m: two threads give the same bytes" cmp two $m.out
done
for p in "fp32" "bf16" "fp8" "fp8 --recipe rowwise" "fp8 --recipe blockwise" "fp8 --recipe mxfp8" "fp8 --recipe current" \
  "fp8 --recipe rowwise_with_gw_hp"; do
  # shellcheck disable=SC2086
  OMP_NUM_THREADS=1 fp8-generate llama3.h5 --ids 5,6,7 --seed 3 --max-tokens 40 --precision $p --json >one 2>err
  is "$p: tokens are drawn" "$? $(wc -l <one)" "0 41"
  # shellcheck disable=SC2086
  OMP_NUM_THREADS=3 fp8-generate llama3.h5 --ids 5,6,7 --seed 3 --max-tokens 40 --precision $p --json >three 2>err
  ok "$p: three threads give the same bytes" cmp one three
done
is "another prompt, the same continuation: the cache is equal to a longer prompt" \
  "$(ids llama3.h5 --ids "5,6,7,$(ids llama3.h5 --ids 5,6,7 --greedy --max-tokens 9 --ignore-end --precision fp32 | tr -d '[]')" --greedy \
  --max-tokens 20 --ignore-end --precision fp32 | tr -d '[]')" \
  "$(ids llama3.h5 --ids 5,6,7 --greedy --max-tokens 29 --ignore-end --precision fp32 | tr -d '[]' | cut -d, -f10-)"

# --- sampling
is "--temperature 0 is --greedy" "$(ids llama3.h5 --ids 5,6,7 --temperature 0)" "$(ids llama3.h5 --ids 5,6,7 --greedy)"
is "--top-k 1 is --greedy" "$(ids llama3.h5 --ids 5,6,7 --top-k 1)" "$(ids llama3.h5 --ids 5,6,7 --greedy)"
is "a small --top-p is --greedy" "$(ids llama3.h5 --ids 5,6,7 --top-p 1e-9)" "$(ids llama3.h5 --ids 5,6,7 --greedy)"
is "the same seed gives the same tokens" "$(ids llama3.h5 --ids 5,6,7 --seed 5)" "$(ids llama3.h5 --ids 5,6,7 --seed 5)"
[ "$(ids llama3.h5 --ids 5,6,7 --seed 5)" != "$(ids llama3.h5 --ids 5,6,7 --seed 6)" ]
result $? "another seed gives other tokens"

# --- text
head -c 4000 "$FP8_SHARE/text/tinyshakespeare.txt" >text.txt
fp8-tokenize text.txt -o d.h5 >table 2>err
fp8-init tiny -o m.h5 >table 2>err
fp8-step m.h5 --data d.h5 --out run --steps 30 --seq-length 32 --batch-size 8 --lr 3e-3 --precision fp32 -q >log 2>err
result $? "a run on bytes"
ok "the newest checkpoint of a run generates text" gen run 'the ' --greedy --max-tokens 20 --precision fp32
is "it has 20 characters and a newline" "$(wc -m <out)" 21
cp out greedy
is "its tokenizer is recorded" "$(fp8-generate run/step-00000030 'the ' --greedy --max-tokens 20 --precision fp32)" "$(cat greedy)"
is "the prompt may be standard input" "$(printf 'the ' | fp8-generate run - --greedy --max-tokens 20 --precision fp32)" "$(cat greedy)"
is "a record may name the checkpoint" \
  "$(echo '{"type":"checkpoint","path":"run/step-00000030"}' | fp8-generate - 'the ' --greedy --max-tokens 20 --precision fp32)" "$(cat greedy)"
fp8-generate run 'the ' --max-tokens 200 --seed 2 --temperature 3 >wild 2>err
ok "text is valid UTF-8" iconv -f UTF-8 -t UTF-8 wild
on_terminal fp8-generate run --ids 116,104,101,32 --max-tokens 200 --seed 2 --temperature 3 >shown
is "a terminal shows control characters as escapes" "$(python3 -c '
import re
wild, shown = open("wild", newline="").read(), open("shown", newline="").read().replace("\r\n", "\n")
control = lambda text: len(re.findall("[\0-\x08\x0b-\x1f\x7f-\x9f]", text))
plain = re.sub(r"\\x([0-9a-f]{2})|\\u\{([0-9a-f]+)\}", lambda m: chr(int(m[1] or m[2], 16)), shown)
print(control(wild) > 0, control(shown), plain == wild)')" "True 0 True"
is "the parts of --json are the text" "$(fp8-generate run 'the ' --max-tokens 200 --seed 2 --temperature 3 --json | python3 -c '
import json, sys
records = [json.loads(line) for line in sys.stdin]
print("".join(r["text"] for r in records[:-1]) == records[-1]["text"], records[-1]["text"] + "\n" == open("wild").read())')" "True True"
stop=$(cut -c 8-10 greedy | head -n 1)
is "--stop ends the text" \
  "$(fp8-generate run 'the ' --greedy --max-tokens 20 --precision fp32 --stop nowhere --stop "$stop" --json | tail -n 1 | grep -c '"end":"stop"')" 1
printf '%s\n' '{"text":"the "}' '{"ids":[116,104,101,32]}' >prompts.jsonl
is "several prompts" "$(fp8-generate run --input prompts.jsonl --greedy --max-tokens 20 --precision fp32)" "$(cat greedy greedy)"
is "several prompts on standard input" "$(fp8-generate run --input - --greedy --max-tokens 20 --precision fp32 <prompts.jsonl)" "$(cat greedy greedy)"
is "they are numbered" \
  "$(fp8-generate run --input prompts.jsonl --max-tokens 2 --json | sed -n 's/.*generation","prompt":\([0-9]*\).*/\1/p' | tr '\n' ' ')" "0 1 "
says "-v prints the speed" '^fp8-generate: prompt of 4 tokens in [0-9.e-]* s, 5 new tokens, [0-9.e+]* tokens/s, [0-9.e-]* GB/s of weights$' gen run \
  'the ' --max-tokens 5 -v

# --- a tokenizer and a template in the checkpoint
cp -r "$golden/llama3/hf" hf && chmod -R u+w hf
cp "$SRC/tests/golden/chat/llama3/tokenizer.json" "$SRC/tests/golden/chat/llama3/tokenizer_config.json" hf
vocabulary=$(fp8-tokenize "$SRC/tests/cli/generate.t" --tokenizer hf -o t.h5 --json 2>err | sed 's/.*"vocab_size":\([0-9]*\).*/\1/')
python3 - "$vocabulary" <<'END' >config.json
import json, sys
config = json.load(open("hf/config.json"))
config["vocab_size"] = int(sys.argv[1])
print(json.dumps(config))
END
fp8-init config.json -o chat.h5 >table 2>err
says "a checkpoint without a tokenizer needs one for text" '^fp8-generate: chat.h5: has no tokenizer \(use --tokenizer FILE, or bytes\)$' gen \
  chat.h5 hello
ok "--tokenizer names one" gen chat.h5 hello --tokenizer hf --max-tokens 4
ok "--template renders the prompt" gen chat.h5 hello --tokenizer hf --template llama3 --max-tokens 4 --json
echo '{"messages":[{"role":"user","content":"hello"}]}' >chat.jsonl
is "messages are the same prompt" "$(ids chat.h5 --input chat.jsonl --tokenizer hf --template llama3 --max-tokens 4)" \
  "$(tail -n 1 out | sed 's/.*"ids"://; s/}$//')"
echo '{"messages":[{"role":"human","content":"hello"}]}' >role.jsonl
says "an unknown role names those that are known" \
  '^fp8-generate: role.jsonl: line 1: message 1: the role "human" is not known \(user, assistant and system are\)$' gen chat.h5 --input role.jsonl \
  --tokenizer hf --template llama3
fp8-generate chat.h5 --input chat.jsonl --tokenizer hf --template llama3 --max-tokens 4 --json >out 2>err
is "its length is that of the tokenizer" "$(sed -n 's/.*"prompt_tokens":\([0-9]*\).*/\1/p' out)" \
  "$(printf '%s\n' '{"text":"<|start_header_id|>user<|end_header_id|>\n\nhello<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"}' |
  fp8-tokenize --tokenizer hf --encode | tr ',' '\n' | wc -l)"

# --- quantized checkpoints
fp8-quantize llama3.h5 -o row.h5 --scaling row --power-of-2-scales >table 2>err
fp8-quantize llama3.h5 -o row.back.h5 --scaling row >table 2>err
is "codes are those of the recipe" "$(ids row.h5 --ids 5,6,7 --precision fp8 --seed 4)" \
  "$(ids llama3.h5 --ids 5,6,7 --precision fp8 --recipe rowwise --seed 4)"
fp8-quantize row.h5 -o dequantized.h5 --dequantize >table 2>err
is "without FP8 codes are multiplied by their scales" "$(ids row.h5 --ids 5,6,7 --precision fp32 --seed 4)" \
  "$(ids dequantized.h5 --ids 5,6,7 --precision fp32 --seed 4)"
says "another recipe is refused" '^fp8-generate: --recipe: blockwise has other scales than the codes of row.h5, which are those of rowwise$' gen \
  row.h5 --ids 5 --json --precision fp8 --recipe blockwise

# --- log-probabilities against fp8-eval, with and without LoRA adapters
# agree NAME CHECKPOINT: the log-probabilities of 29 greedy tokens after 4 are the losses that fp8-eval gives for them.
agree() {
  fp8-generate "$2" --ids 116,104,101,32 --greedy --max-tokens 29 --ignore-end --precision fp32 --json >tokens 2>err
  { printf '116\n104\n101\n32\n' && sed -n 's/.*"token".*"id":\([0-9]*\),.*/\1/p' tokens; } | python3 -c '
import array, sys
array.array("H", map(int, sys.stdin)).tofile(open("tokens.u16", "wb"))'
  fp8-tokenize tokens.u16 --from u16 --vocab-size 256 -o tokens.h5 -f >table 2>err
  fp8-eval "$2" --data tokens.h5 --seq-length 32 --precision fp32 --per-token >losses 2>err
  is "$1" "$(python3 -c '
import json
given = [-json.loads(line)["logprob"] for line in open("tokens") if "logprob" in line]
losses = json.loads(open("losses").readline())["losses"][3:]
print(len(given), len(losses), max(abs(a - b) for a, b in zip(given, losses)) < 2e-5)')" "29 29 True"
}
agree "log-probabilities are the losses of fp8-eval" run/step-00000030
fp8-step run/step-00000030 --data d.h5 --out lora --steps 10 --seq-length 32 --batch-size 8 --lr 1e-2 --precision fp32 --lora-rank 4 -q >log 2>err
result $? "a run of LoRA adapters"
agree "with adapters too" lora/step-00000010
[ "$(fp8-generate lora 'the ' --greedy --max-tokens 2 --json)" != "$(fp8-generate run 'the ' --greedy --max-tokens 2 --json)" ]
result $? "adapters change the log-probabilities"
ok "adapters beside FP8" gen lora 'the ' --max-tokens 4 --precision fp8

# --- mixtures of experts
for preset in mixtral-tiny qwen3-moe-tiny; do
  fp8-init $preset -o $preset.h5 >table 2>err && fp8-step $preset.h5 --data d.h5 --out run-$preset --steps 10 --seq-length 32 --batch-size 8 \
    --lr 3e-3 --precision fp32 -q >log 2>err
  result $? "$preset: a run"
  agree "$preset: log-probabilities with the cache are the losses of fp8-eval" run-$preset
  fp8-step run-$preset/step-00000010 --data d.h5 --out lora-$preset --steps 5 --seq-length 32 --batch-size 8 --lr 1e-2 --precision fp32 \
    --lora-rank 4 -q >log 2>err
  agree "$preset: with adapters on experts too" lora-$preset
  for p in "fp32" "bf16" "fp8" "fp8 --recipe rowwise" "fp8 --recipe blockwise" "fp8 --recipe mxfp8" "fp8 --recipe current"; do
    # shellcheck disable=SC2086
    OMP_NUM_THREADS=1 fp8-generate $preset.h5 --ids 5,6,7 --seed 3 --max-tokens 20 --precision $p --json >one 2>err
    is "$preset, $p: tokens are drawn" "$? $(wc -l <one)" "0 21"
    # shellcheck disable=SC2086
    OMP_NUM_THREADS=3 fp8-generate $preset.h5 --ids 5,6,7 --seed 3 --max-tokens 20 --precision $p --json >three 2>err
    ok "$preset, $p: three threads give the same bytes" cmp one three
  done
  fp8-convert run-$preset/step-00000010 --dtype bf16 -o rounded.h5 -f -q >table 2>err
  loss=$(fp8-eval rounded.h5 --data d.h5 --seq-length 32 --precision bf16 -q | field loss /dev/stdin)
  for scaling in tensor:tensorwise "row --power-of-2-scales:rowwise" "block --power-of-2-scales:blockwise" nvfp4:nvfp4 mx:mxfp8; do
    # shellcheck disable=SC2086
    fp8-quantize rounded.h5 -o codes.h5 --scaling ${scaling%:*} -f >table 2>err
    is "$preset: codes of experts, --scaling ${scaling%:*}" "$? $(ids codes.h5 --ids 5,6,7 --precision fp8 --seed 4 --max-tokens 12)" \
      "0 $(ids rounded.h5 --ids 5,6,7 --precision fp8 --recipe "${scaling#*:}" --seed 4 --max-tokens 12)"
    if [ "$scaling" = mx:mxfp8 ]; then # which fp8-eval does not take
      fp8-quantize codes.h5 --dequantize -o evaluated.h5 -f >table 2>err && set -- evaluated.h5 bf16
    else
      set -- codes.h5 fp8
    fi
    is "$preset: whose loss is near that of bf16, --scaling ${scaling%:*}" \
      "$(fp8-eval "$1" --data d.h5 --seq-length 32 --precision "$2" -q | field loss /dev/stdin |
      awk -v l="$loss" -v bound="$([ "$scaling" = nvfp4:nvfp4 ] && echo 0.1 || echo 0.02)" \
        '{ d = $1 - l; print (d != 0 && d < bound && d > -bound) }')" 1
  done
  for format in fp8 compressed-tensors nvfp4; do
    fp8-export run-$preset/step-00000010 -o $preset-$format --format $format --any-server -q >table 2>err &&
      fp8-convert $preset-$format -o codes.h5 -f -q >table 2>err &&
      fp8-quantize codes.h5 --dequantize -o values.h5 -f >table 2>err
    result $? "$preset: a folder that fp8-export wrote as $format"
    is "$preset, $format: without FP8 its codes are multiplied by their scales" \
      "$(ids codes.h5 --ids 5,6,7 --precision fp32 --seed 4 --max-tokens 12)" "$(ids values.h5 --ids 5,6,7 --precision fp32 --seed 4 --max-tokens 12)"
    recipe=rowwise
    [ $format = fp8 ] && recipe=blockwise
    [ $format = nvfp4 ] && recipe=nvfp4
    fp8-generate codes.h5 --ids 5,6,7 --precision fp8 --seed 4 --max-tokens 12 --json >out 2>err
    is "$preset, $format: with FP8 it generates in the recipe of its codes" \
      "$? $(wc -l <out) $(ids codes.h5 --ids 5,6,7 --precision fp8 --recipe $recipe --seed 4 --max-tokens 12)" \
      "0 13 $(tail -n 1 out | sed 's/.*"ids"://; s/}$//')"
  done
done

# --- --lora: the adapter of a PEFT folder beside a checkpoint's weights
adapter=$SRC/tests/golden/lora/llama3/final
keep="--seq-length 64 --batch-size 8 --steps 1 --lr 0 --weight-decay 0 --precision fp32 -q"
# shellcheck disable=SC2086
fp8-step llama3.h5 --data d.h5 --out beside --lora "$adapter" $keep >log 2>err
result $? "a LoRA checkpoint with the adapter"
fp8-convert beside/step-00000001 --merge-lora --dtype f32 -o merged.h5 >table 2>err
result $? "a merged checkpoint"
probable() { sed -n 's/.*"id":\([0-9]*\),.*"logprob":\([^}]*\)}/\1 \2/p'; }
for precision in fp32 bf16 fp8 "fp8 --recipe rowwise"; do
  # shellcheck disable=SC2086
  fp8-generate llama3.h5 --tokenizer bytes --lora "$adapter" --ids 5,6,7 --greedy --max-tokens 60 --ignore-end --json --precision $precision \
    >folder.out 2>err
  # shellcheck disable=SC2086
  fp8-generate beside --ids 5,6,7 --greedy --max-tokens 60 --ignore-end --json --precision $precision >stored.out 2>err
  is "--lora in $precision: the bytes of the LoRA checkpoint" "$(wc -l <folder.out) $(cmp folder.out stored.out && echo equal)" "61 equal"
done
# shellcheck disable=SC2086
fp8-generate llama3.h5 --lora "$adapter" $fixed --json | probable >folder.p
# shellcheck disable=SC2086
fp8-generate merged.h5 $fixed --json | probable >merged.p
is "--lora: the ids of the merged checkpoint" "$(cut -d' ' -f1 folder.p)" "$(cut -d' ' -f1 merged.p)"
is "--lora: its log-probabilities within 1e-5" \
  "$(paste -d' ' folder.p merged.p | awk '{ d = $2 - $4; if (d < 0) d = -d; if (!(d <= 1e-5)) bad = 1 } END { print NR, bad + 0 }')" "60 0"
[ "$(ids llama3.h5 --ids 5,6,7 --greedy --max-tokens 60 --precision fp32)" != "$(tail -n 1 folder.out | sed 's/.*"ids"://; s/}$//')" ]
result $? "--lora changes the tokens"
# shellcheck disable=SC2086
OMP_NUM_THREADS=2 fp8-generate llama3.h5 --lora "$adapter" $fixed --json | probable >two.p
ok "--lora: two threads give the same bytes" cmp two.p folder.p
ok "--lora beside FP8 codes" gen row.h5 --lora "$adapter" --ids 5,6,7 --max-tokens 4 --json --precision fp8
fp8-export beside --format peft -q -o exported >table 2>err
is "--lora: a folder that fp8-export wrote" \
  "$(fp8-generate llama3.h5 --tokenizer bytes --lora exported --ids 5,6,7 --greedy --max-tokens 60 --ignore-end --json --precision fp8 \
  --recipe rowwise | cmp - stored.out && echo equal)" equal

# --- ends and errors
is "a text ends where the context is full" \
  "$(fp8-generate llama3.h5 --ids 5,6,7 --ignore-end --max-tokens 1000 --json | tail -n 1 | sed 's/,"ids.*//')" \
  '{"type":"generation","prompt":0,"prompt_tokens":3,"tokens":125,"end":"context"'
first=$(ids llama3.h5 --ids 5,6,7 --greedy --max-tokens 1 | tr -d '[]')
sed "s/\"eos_token_id\": *2/\"eos_token_id\": $first/" "$golden/llama3/hf/generation_config.json" >hf/generation_config.json
cp "$golden/llama3/hf/config.json" hf/config.json && rm hf/tokenizer.json hf/tokenizer_config.json
fp8-convert hf -o ends.h5 >table 2>err
is "generation_config.json has the end token" "$(fp8-generate ends.h5 --ids 5,6,7 --greedy --json | tail -n 1)" \
  "{\"type\":\"generation\",\"prompt\":0,\"prompt_tokens\":3,\"tokens\":1,\"end\":\"end_token\",\"ids\":[$first]}"
is "--ignore-end goes on" "$(fp8-generate ends.h5 --ids 5,6,7 --greedy --json --ignore-end --max-tokens 5 | wc -l)" 6
refused() { # NAME PATTERN WORDS...
  name=$1 pattern=$2
  shift 2
  fp8-generate "$@" >out 2>err </dev/null
  got=$?
  [ $got = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -Eq -e "^fp8-generate: $pattern" err && [ ! -s out ]
  result $? "$name"
}
refused "no prompt" 'PROMPT: needed, or --ids or --input' llama3.h5
refused "two prompts" 'PROMPT, --ids and --input: only one' llama3.h5 a --ids 5
refused "an id outside of the vocabulary" "--ids: token 256 is not in the model's vocabulary of 256" llama3.h5 --ids 5,256 --json
is "rollouts that end there are noted" "$(fp8-generate llama3.h5 --ids 5,6,7 --max-tokens 1000 --ignore-end --logprobs 2>&1 >out </dev/null)" \
  "fp8-generate: prompt 0: ends after 125 tokens, where the model's context is full"
refused "a prompt as long as the context" "--ids: 128 tokens leave no room in the model's context of 128" llama3.h5 --ids "$(seq -s, 0 127)" --json
refused "no number" "--ids: 'x' is not a token id" llama3.h5 --ids 5,x --json
refused "an empty prompt" 'PROMPT: no tokens' run ''
refused "an empty file" 'standard input: no prompts' run --input -
refused "--greedy with --top-k" '--greedy: contradicts --top-k' run a --greedy --top-k 3
refused "--recipe without FP8" '--recipe: needs --precision fp8' run a --recipe rowwise
refused "delayed" "--recipe: 'delayed' is not one of" run a --precision fp8 --recipe delayed
refused "a template for bytes" 'the template chatml needs a tokenizer.json' run a --template chatml
refused "a template for ids" '--template: not with --ids' run --ids 5 --template chatml
refused "a token file" 'd.h5: a token file, not a checkpoint' d.h5 a
refused "a missing checkpoint" 'none: ' none a
refused "standard input twice" '-: standard input is already' - -
echo '{"messages":[{"role":"user","content":"a"}]}' >bad.jsonl
refused "messages without a template" 'bad.jsonl: line 1: the record is a conversation \(use --template' run --input bad.jsonl
for pair in '"text":"a","ids":[97]' '"messages":[],"text":"a"' '"messages":[],"ids":[97]'; do
  echo "{$pair}" >bad.jsonl
  refused "a record with two prompts: $pair" 'bad.jsonl: line 1: the record has both "[a-z]*" and "[a-z]*", of which one is a prompt$' run \
    --input bad.jsonl
done
echo '{"text":' >bad.jsonl
refused "a record that is not JSON" 'bad.jsonl: line 1' run --input bad.jsonl
cp llama3.h5 flipped.h5 && printf '\001' | dd of=flipped.h5 bs=1 seek=100000 conv=notrunc 2>/dev/null
refused "a damaged checkpoint" 'flipped.h5: ' flipped.h5 --ids 5 --json
refused "adapters beside adapters" 'lora/step-00000010: has adapters of rank 4 already, beside which no others are applied' lora --lora "$adapter" a
refused "an adapter of another model" \
  '.*adapter_model.safetensors: tensor "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight" is \[64, 8\], expected \[128, 8\]$' qwen3.h5 \
  --lora "$adapter" --ids 5 --json
refused "a folder without an adapter" 'hf/adapter_config.json: missing; not the folder of a PEFT adapter' llama3.h5 --lora hf --ids 5 --json
refused "a missing adapter" 'none: not a folder' llama3.h5 --lora none --ids 5 --json
fp8-init tiny --set hidden_size=72 --set head_dim=18 -o odd.h5 >table 2>err
status "FP8 without an eligible linear gives status 3" 3 gen odd.h5 --ids 5 --json --precision fp8

done_testing
