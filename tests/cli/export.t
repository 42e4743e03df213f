#!/bin/sh
# fp8-export: each format, runs as sources, pipes, errors, peak memory.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
golden=$SRC/tests/golden/models

fp8-convert "$golden/llama3/hf" -o model.h5 >table 2>err
says "bf16 weights are copied" '^ *21 +bfloat16 +copied' fp8-export model.h5 -o hf-out
is "the folder is complete" "$(find hf-out -type f | sort | tr '\n' ' ')" "hf-out/config.json hf-out/generation_config.json hf-out/model.safetensors "
ok "the folder converts back" fp8-convert hf-out -o back.h5
ok "the weights are equal after the round trip" fp8-info model.h5 --diff back.h5
says "a missing tokenizer is noted" '^fp8-export: the checkpoint has no tokenizer.json' fp8-export model.h5 -o t
is "--quiet prints no note" "$(fp8-export model.h5 -o t -f -q 2>&1 | grep -c tokenizer)" 0
says "an existing folder is refused" '^fp8-export: hf-out: exists' fp8-export model.h5 -o hf-out
ok "--force replaces an exported folder" fp8-export model.h5 -o hf-out -f --format compressed-tensors
says "the configuration has the quantization" '"quant_method": "compressed-tensors"' cat hf-out/config.json
touch hf-out/mine.txt
says "--force does not replace a folder with other files" '^fp8-export: hf-out: holds mine.txt' fp8-export model.h5 -o hf-out -f
ok "the other file is still there" test -e hf-out/mine.txt
: >file
says "a file is not replaced" '^fp8-export: file: exists and is not a folder' fp8-export model.h5 -o file -f

fp8-quantize model.h5 -o row.h5 --scaling row >table 2>err
fp8-quantize model.h5 -o tensor.h5 --scaling tensor >table 2>err
fp8-quantize model.h5 -o fp4.h5 --scaling nvfp4 >table 2>err
says "codes per row are kept in compressed-tensors" '^ *14 +float8_e4m3fn +codes kept' fp8-export row.h5 -o r --format compressed-tensors
says "codes per tensor are kept in blocks" '^ *14 +float8_e4m3fn +codes kept' fp8-export tensor.h5 -o b --format fp8 --any-server
says "FP4 codes are kept in nvfp4" '^ *14 +uint8 +codes kept' fp8-export fp4.h5 -o four --format nvfp4
says "FP4 codes do not fit blocks" 'fp8-export: fp4.h5: /weights/.*: FP4 codes \(use --format nvfp4\)$' fp8-export fp4.h5 -o x --format fp8
says "FP8 codes do not fit nvfp4" 'row.h5: /weights/.*: FP8 codes, not those of FP4; dequantize it first: fp8-quantize row.h5 --dequantize' \
  fp8-export row.h5 -o x --format nvfp4
says "linears without codes are quantized" '^ *14 +float8_e4m3fn +quantized' fp8-export model.h5 -o c --format fp8 --any-server
says "codes per row do not fit blocks" 'not per tensor or per block of 128 x 128 \(use --format compressed-tensors\)' fp8-export row.h5 -o x \
  --format fp8
status "a source that does not fit gives status 2" 2 fp8-export row.h5 -o x --format fp8
says "a quantized checkpoint is dequantized to bf16" '^ *14 +bfloat16 +dequantized' fp8-export row.h5 -o d
says "--dry-run says what would be written" 'would be written' fp8-export model.h5 -o x -n
ok "--json succeeds" sh -c 'fp8-export model.h5 -o j --json --format fp8 --any-server >json'
is "--json prints one record" "$(wc -l <json)" 1
says "the record names files and tensors" \
  '^\{"type":"export".*"files":\["model.safetensors","config.json".*"name":"model.layers.0.mlp.gate_proj.weight_scale_inv","shape":\[2,1\],'\
'"dtype":"float32","file":"model.safetensors","origin":"scales"' cat json
ok "a record on standard input names the source" sh -c 'fp8-init tiny -o tiny.h5 | fp8-export - -o p'

fp8-convert "$golden/llama3/hf" -o mixed.h5 --filter '*.0.self_attn.q_proj' >table 2>err
fp8-export mixed.h5 -o mixed --format compressed-tensors --json -q --any-server >json 2>err
is "--quiet prints a warning of projections with two precisions" \
  "$? $(wc -l <err) $(grep -c '^fp8-export: model.layers.0.self_attn.q_proj.weight, .*k_proj.weight and .*v_proj.weight differ in precision; vLLM' \
  err)" "0 1 1"
says "the record has it" '"warnings":\["model.layers.0.self_attn.[^"]* refuse that"\],"notes":\["the checkpoint has no tokenizer' cat json

# --- what servers refuse
# shellcheck disable=SC2086 # lists of words on purpose
for words in "mixed.h5 --format compressed-tensors" "model.h5 --format fp8" "tensor.h5 --format fp8 -n"; do
  status "$words: what servers refuse gives status 1" 1 fp8-export $words -q -o refused
  is "in one line, without an output" \
    "$(wc -l <err) $(grep -c '(use --any-server to write it all the same)$' err) $(cat out) $(find . -name '*refused*')" "1 1  "
done
mkdir -p refused && echo mine >refused/config.json
status "-f is no consent" 1 fp8-export model.h5 --format fp8 -q -f -o refused
is "the folder that -f may replace is unchanged" "$(cat refused/config.json)" mine
ok "--any-server is" fp8-export model.h5 --format fp8 -q -f --any-server -o refused
is "every weight is named" "$(grep -o 'model.layers.{0-1}[a-z_.]*' err | sed 's/.*\.\([a-z]*\)_proj.weight/\1/' | tr '\n' ' ')" \
  "q k v o gate up down "
fp8-init tiny --set hidden_size=128 --set intermediate_size=256 --set head_dim=32 --set num_attention_heads=4 \
  --set num_key_value_heads=4 -o whole.h5 >table 2>err
for format in bf16 fp8 compressed-tensors nvfp4; do
  ok "whole blocks: $format needs no consent" fp8-export whole.h5 --format $format -o whole-$format
done

cp -r "$golden/llama3/hf" hf && chmod -R u+w hf
echo '{"model":{"vocab":{"a":0},"merges":[]},"added_tokens":[{"id":2,"content":"<|eot_id|>"}]}' >hf/tokenizer.json
fp8-convert hf -o tok.h5 >table 2>err
ok "--template adds its end token" fp8-export tok.h5 -o withtok --template llama3
says "generation_config.json ends at it" '^ *2$|"eos_token_id": 2' cat withtok/generation_config.json
ok "tokenizer.json is the one of the source" cmp hf/tokenizer.json withtok/tokenizer.json
says "a template whose token is missing is refused" '^fp8-export: tok.h5: /tokenizer: has no token <.im_end.>' fp8-export tok.h5 -o x --template qwen

fp8-tokenize "$SRC/tests/golden/models/README.md" -o data.h5 >table 2>err
fp8-init tiny -o fresh.h5 >table 2>err
fp8-step fresh.h5 --data data.h5 --out run --steps 2 --batch-size 2 --seq-length 16 --save-every 1 >table 2>err
ok "a run is exported" fp8-export run -o of-run
ok "it is the newest checkpoint" sh -c 'fp8-export run/step-00000002 -o of-step && cmp of-run/model.safetensors of-step/model.safetensors'
printf x | dd of=run/step-00000002/rank-00000-of-00001.h5 bs=1 seek=3000 conv=notrunc 2>err
ok "of a run with a damaged checkpoint the one before is exported" \
  sh -c 'fp8-export run -o before && fp8-export run/step-00000001 -o first && cmp before/model.safetensors first/model.safetensors'
says "a damaged checkpoint is refused" '^fp8-export: run/step-00000002' fp8-export run/step-00000002 -o x
says "a token file is refused" 'a token file, not a checkpoint' fp8-export data.h5 -o x
says "a missing source is refused" '^fp8-export: none: ' fp8-export none -o x
is "no temporary folder is left" "$(find . -name '.*.tmp')" ""

lora=$SRC/tests/golden/lora/llama3
head -c 513 "$SRC/share/text/tinyshakespeare.txt" >batch.txt
fp8-tokenize batch.txt -o batch.h5 >table 2>err
ok "a run with adapters and rate 0 keeps them" fp8-step model.h5 --data batch.h5 --out adapted --steps 1 --batch-size 8 --seq-length 64 \
  --lora "$lora/final" --lr 0 --precision fp32 -q
says "its adapters are exported" '^ *28 +float32 +copied' fp8-export adapted --format peft -o adapter
is "the folder is that of PEFT" "$(find adapter -type f | sort | tr '\n' ' ')" \
  "adapter/adapter_config.json adapter/adapter_model.safetensors adapter/generation_config.json "
chat=$SRC/examples/3-fine-tune
fp8-init tiny --tokenizer "$chat/tokenizer" -o talk.h5 >table 2>err &&
  fp8-tokenize "$chat/conversations.jsonl" --tokenizer "$chat/tokenizer" --template chatml -o talk-data.h5 >table 2>err
fp8-step talk.h5 --data talk-data.h5 --out talk --lora-rank 2 --steps 1 --batch-size 1 -q >table 2>err
ok "adapters of a chat model are exported" fp8-export talk --format peft --template chatml -o talker
is "with the texts of its tokenizer" "$(find talker -type f | sed 's|talker/||' | sort | tr '\n' ' ')" \
  "adapter_config.json adapter_model.safetensors chat_template.jinja generation_config.json tokenizer.json tokenizer_config.json "
is "whose end token is that of the template, in both files" "$(python3 -c '
import json
def read(name): return json.load(open("talker/" + name))
ids = {t["content"]: t["id"] for t in read("tokenizer.json")["added_tokens"]}
end = read("generation_config.json")["eos_token_id"]
print(read("tokenizer_config.json")["eos_token"], ids["<|im_end|>"] in (end if isinstance(end, list) else [end]))')" "<|im_end|> True"
ok "the folder can be trained further" fp8-step talk.h5 --data talk-data.h5 --out talk-on --lora talker --steps 1 --batch-size 1 -q
# shellcheck disable=SC2016 # the inner shell expands the argument
says "a model without an end token has a note" '^fp8-export: no token ends a text: ' \
  sh -c 'fp8-init tiny --tokenizer "$1" --set vocab_size=1000 -o bare.h5 >table && fp8-tokenize batch.txt --tokenizer "$1" -o bare-data.h5 >table &&
  fp8-step bare.h5 --data bare-data.h5 --out bare --lora-rank 2 --steps 1 --seq-length 16 --batch-size 1 -q >table &&
  fp8-export bare --format peft -o endless' sh "$SRC/share/tokenizers/shakespeare"
ok "the adapter can be trained further" fp8-step model.h5 --data batch.h5 --out further --steps 1 --batch-size 8 --seq-length 64 --lora adapter \
  --lr 0 --precision fp32 -q
says "other formats name the command that merges" \
  '^fp8-export: adapted/step-00000001: holds LoRA adapters; merge them first: fp8-convert adapted/step-00000001 --merge-lora -o merged.h5 \(use '\
'--format peft for the adapters alone\)$' fp8-export adapted -o x
status "with status 2" 2 fp8-export adapted -o x --format fp8
says "peft needs adapters" '^fp8-export: model.h5: has no LoRA adapters to export' fp8-export model.h5 -o x --format peft
ok "the command merges" fp8-convert adapted/step-00000001 --merge-lora --dtype f32 -o merged.h5
ok "the merged model is exported" fp8-export merged.h5 -o tuned
fp8-eval merged.h5 --data batch.h5 --seq-length 64 --precision fp32 -q >scored
ok "its loss is that of PEFT's merged model" python3 -c '
import json, sys
loss, wanted = json.load(open("scored"))["loss"], json.load(open(sys.argv[1]))["llama3"]["loss_merged"]
print(loss, wanted, loss - wanted)
sys.exit(abs(loss - wanted) > 1e-5)' "$lora/../summary.json"
says "a model without adapters has nothing to merge" '^fp8-convert: merged.h5: has no LoRA adapters, so there is nothing to merge' \
  fp8-convert merged.h5 --merge-lora -o x.h5

mkdir .killed.0123abcd.tmp && : >.killed.0123abcd.tmp/.lock
says "the folder of a killed export is removed" '^fp8-export: ./.killed.0123abcd.tmp: left over from an interrupted save, removed$' \
  fp8-export model.h5 -o killed
is "and no other" "$(find . -name '.*.tmp') $(find killed -name '*lock*' | wc -l)" " 0"

fp8-init tiny -o big.h5 --set hidden_size=1024 --set intermediate_size=4096 --set num_hidden_layers=4 >table 2>err
for format in bf16 fp8 compressed-tensors nvfp4; do
  OMP_NUM_THREADS=1 python3 -c '
import resource, subprocess, sys
status = subprocess.call(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)' peak fp8-export big.h5 -o big-$format --format $format --any-server
  result $? "a larger model is exported as $format"
  ok "$format: peak memory is under the largest tensor and 100 MB" test "$(cat peak)" -lt 116384
done
done_testing
