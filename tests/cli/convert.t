#!/bin/sh
# fp8-convert: Hugging Face folders and checkpoints, precisions, pipes, errors.
. "${SRC:-.}/tests/cli/lib.sh"
golden=$SRC/tests/golden/models

for model in llama3 llama-tied qwen2 qwen3; do
  ok "$model is converted" fp8-convert "$golden/$model/hf" -o $model.h5
  is "$model has 14 FP8 linears and a head" "$(grep -c ' fp8 ' out) $(grep -c ' bf16 ' out)" "14 1"
  ok "$model verifies" fp8-info $model.h5 --verify
done
cp -r "$golden/llama3/hf" hf && chmod -R u+w hf
loss() { fp8-eval "$1" --data bytes.h5 --seq-length 32 --precision fp32 -q | sed 's/.*"loss":\([^,]*\),.*/\1/'; }
near() { python3 -c 'import sys; a, b, most = map(float, sys.argv[1:]); sys.exit(abs(a - b) > most)' "$@"; }
fp8-tokenize "$golden/README.md" -o bytes.h5 --vocab-size 250 >table 2>err
fp8-init tiny --set intermediate_size=170 --set vocab_size=250 --set initializer_range=0.2 -o uneven.h5 >table 2>err
says "--pad makes linears FP8 and shows what was padded" '^model.layers.1.mlp.down_proj.weight +64x176 +64x170 +fp8 +yes$' fp8-convert uneven.h5 \
  --pad -o padded.h5
is "all linears but the head are FP8" "$(grep -c ' fp8 ' out) $(grep -c ' bf16 ' out)" "14 1"
is "the configuration has the padded size" \
  "$(fp8-export padded.h5 -q -o folder >table && grep -E 'intermediate|vocab' folder/config.json | tr -d ' \n')" \
  '"vocab_size":250,"intermediate_size":176,'
before=$(loss uneven.h5)
ok "the loss of the padded model is equal" near "$before" "$(loss padded.h5)" 1e-6
says "--fp8-lm-head pads the vocabulary and says what changes" \
  '^fp8-convert: vocab_size 250 becomes 256: the 6 tokens added have logit 0, so the loss grows by ln' \
  fp8-convert uneven.h5 --pad --fp8-lm-head -o head.h5
says "the head is FP8" '^lm_head.weight +256x64 +250x64 +fp8' fp8-convert uneven.h5 --pad --fp8-lm-head -n -o x.h5
ok "the old data is evaluated, its loss is larger" sh -c "fp8-eval head.h5 --data bytes.h5 --seq-length 32 --precision fp8 -q"
ok "by what the note says" python3 -c 'import sys; d = float(sys.argv[2]) - float(sys.argv[1]); sys.exit(not 0 < d <= 0.0238)' "$before" \
  "$(loss head.h5)"
ok "--json lists padded sizes" \
  sh -c 'fp8-convert uneven.h5 --pad -n -o x.h5 --json | grep -F "\"padded\":[{\"key\":\"intermediate_size\",\"from\":170,\"to\":176}]" | grep -F '\
'"\"padded_from\":[64,170]"'
says "what cannot be padded has a reason" '72 columns are not a multiple of 16, and the hidden size cannot be padded$' \
  sh -c 'fp8-init tiny --set hidden_size=72 -o hidden.h5 >table && fp8-convert hidden.h5 --pad -o x.h5 -n'
fp8-step uneven.h5 --data bytes.h5 --out uneven --steps 1 --seq-length 16 -q >table 2>err
says "moments are not padded" \
  '^fp8-convert: uneven/step-00000001: a training checkpoint; its moments are not padded \(use --weights-only to pad its weights\)$' \
  fp8-convert uneven/step-00000001 --merge --pad -o x.h5
ok "the weights of a training checkpoint are" fp8-convert uneven/step-00000001 --weights-only --pad -o x.h5
rm x.h5

for format in fp8 compressed-tensors nvfp4; do
  fp8-export llama3.h5 -q --any-server --format $format -o $format >table
  says "codes of $format are kept" '^model.layers.0.self_attn.q_proj.weight +64x64 +(block|row|nvfp4) +fp8 +yes$' fp8-convert $format -o $format.h5
  is "the checkpoint is quantized" "$(fp8-info $format.h5 --json | grep -o '"kind":"[a-z]*"')" '"kind":"quantized"'
  ok "it verifies" fp8-info --verify $format.h5
  ok "another export has the same files" \
    sh -c "fp8-export $format.h5 -q --any-server --format $format -o $format-again && diff -r $format $format-again"
  ok "codes are dequantized" fp8-convert $format --dequantize -o $format-bf16.h5
  ok "as fp8-quantize does" \
    sh -c "fp8-quantize $format.h5 --dequantize -o d.h5 && fp8-convert d.h5 --dtype bf16 -o d16.h5 && fp8-info $format-bf16.h5 --diff d16.h5 && rm \
d.h5 d16.h5"
done
says "full training of codes is refused with what to do" 'dequantize' fp8-step fp8.h5 --data bytes.h5 --out x --steps 1
ok "a dequantized folder can be trained" fp8-step fp8-bf16.h5 --data bytes.h5 --out trained --steps 1 --seq-length 16 -q
says "--filter needs values" '^fp8-convert: fp8: holds codes, which are kept; .* \(use --dequantize\)$' fp8-convert fp8 --filter '*' -o x.h5
says "--dequantize needs codes" '^fp8-convert: hf: has no codes, so there is nothing to dequantize' fp8-convert hf --dequantize -o x.h5
sed -i 's/"lm_head"/"lm_head", "model.layers.1.mlp.up_proj"/' fp8/config.json
says "a list that the tensors do not follow is refused" \
  '^fp8-convert: fp8: model.layers.1.mlp.up_proj.weight: stored as codes, but config.json excludes it in "modules_to_not_convert"' \
  fp8-convert fp8 -o x.h5
sed -i 's/"e4m3"/"e5m2"/' fp8/config.json
says "E5M2 is refused" '^fp8-convert: fp8/config.json: quantization_config: "fmt": "e5m2" is not supported' fp8-convert fp8 -o x.h5
sed -i 's/"quant_method": "fp8"/"quant_method": "gptq"/' fp8/config.json
says "an unknown method is refused" '^fp8-convert: fp8/config.json: quantization_config: "quant_method": "gptq" is not supported' \
  fp8-convert fp8 -o x.h5
status "with status 2" 2 fp8-convert fp8 -o x.h5

says "a tied head is listed" '^lm_head.weight .*LM head, tied' fp8-convert llama-tied.h5 -n -o x.h5
ok "a checkpoint is converted" fp8-convert llama3.h5 -o again.h5
ok "the weights of the copy are equal" fp8-info llama3.h5 --diff again.h5
ok "bf16 is converted to f32" fp8-convert llama3.h5 --dtype f32 -o f32.h5
ok "the f32 weights are equal to the bf16 weights" fp8-info llama3.h5 --diff f32.h5
ok "f32 converts back to equal bf16 weights" sh -c 'fp8-convert f32.h5 --dtype bf16 -o back.h5 && fp8-info llama3.h5 --diff back.h5'
says "the format is stored in the checkpoint" 'model.norm.weight +float32' fp8-info f32.h5

says "the filter is the reason of a filtered weight" 'down_proj.* bf16 .* filter \*down\*' fp8-convert hf -o f.h5 --filter '*down*'
is "--filter excludes two linears" "$(grep -c ' filter ' out)" 2
says "a filter may name the module" 'lm_head.weight .* filter lm_head' fp8-convert hf -n -o x.h5 --fp8-lm-head --filter lm_head
says "--fp8-lm-head makes the head FP8" 'lm_head.weight +256x64 +fp8' fp8-convert hf -n -o x.h5 --fp8-lm-head
says "converting a checkpoint again keeps its precisions" '14 of 21|12 of 21' sh -c 'fp8-convert f.h5 -o g.h5 && fp8-info g.h5'
is "the number of FP8 weights is unchanged" "$(fp8-info g.h5 | sed -n 's/^fp8 *//p')" "12 of 21 weights eligible"
says "--auto-filter excludes small layers" 'too small to gain' fp8-convert hf -n -o x.h5 --auto-filter --recipe rowwise
says "a filter that matches no tensor is refused" '^fp8-convert: filter \*.w1: matches no tensor' fp8-convert hf -o x.h5 --filter '*.w1'
says "--recipe without --auto-filter is refused" '^fp8-convert: --recipe: ' fp8-convert hf -o x.h5 --recipe rowwise
says "a shape that is not a multiple of 16 is listed as a reason" \
  '170 rows are not a multiple of 16' sh -c 'fp8-init tiny --set intermediate_size=170 -o odd.h5 >/dev/null && fp8-convert odd.h5 -o x.h5 -n'

says "a filter that would match as the end of a name is completed" \
  "^fp8-convert: filter q_proj: matches no tensor of the model \(use --filter '\*.q_proj'\)$" fp8-convert hf -o x.h5 --filter q_proj
says "the completed filter matches" '[*].q_proj' fp8-convert hf -n -o x.h5 --filter '*.q_proj'
says "a safetensors file alone is refused with what to do" \
  '^fp8-convert: hf/model.safetensors: a safetensors file, not a checkpoint: give its folder, ' fp8-convert hf/model.safetensors -o x.h5
says "fp8-info refuses it too" '^fp8-info: hf/model.safetensors: a safetensors file' fp8-info hf/model.safetensors
fp8-tokenize "$SRC/README.md" -o d.h5 >out 2>err
fp8-step llama3.h5 --data d.h5 --out run --steps 1 --seq-length 16 -q >out 2>err
ok "--weights-only of a training checkpoint succeeds" fp8-convert run/step-00000001 --weights-only --merge -o weights.h5
is "the output is a model of weights alone" "$(fp8-info weights.h5 --json | grep -o '"kind":"[a-z]*"\|optimizer' | sort -u)" '"kind":"model"'
is "its weights are those of the checkpoint" "$(fp8-info run/step-00000001 --diff weights.h5 | grep -Ec '^weights/[a-z0-9_.]+ +0 +0$')" 21
says "the name of a preset is refused with what to do" '^fp8-step: tiny: no such file; it is the name of a preset, .*: fp8-init tiny -o tiny.h5$' \
  fp8-step tiny --data d.h5 --out x --steps 1

fp8-init tiny -o tiny.h5 >record 2>err
ok "the source can be a record on standard input" sh -c 'fp8-convert - -o p.h5 <record'
ok "fp8-init, fp8-convert and fp8-info work in a pipe" \
  sh -c 'fp8-init tiny -f -o tiny.h5 | fp8-convert - -o q.h5 --json | fp8-info - >out2 && grep -q "^path *q.h5" out2'
ok "--json succeeds" sh -c 'fp8-convert hf -o j.h5 --json >json'
is "--json prints two records" "$(cut -c 1-20 json | tr '\n' '|')" '{"type":"convert","s|{"type":"checkpoint"|'
says "the record lists precisions and reasons" '"name":"lm_head.weight","shape":\[256,64\],"precision":"bf16","reason":"LM head","aligned":true' \
  cat json
says "standard input without a record is refused" '^fp8-convert: standard input: no record' fp8-convert - -o x.h5
says "the provenance names fp8-init" 'made by +fp8-init .*fp8-init tiny' fp8-info q.h5
says "the provenance names fp8-convert" 'made by +fp8-convert .*fp8-convert - -o q.h5 --json' fp8-info q.h5

ok "a folder with a tokenizer is converted" sh -c 'echo "{\"model\":{\"vocab\":{\"a\":0}}}" >hf/tokenizer.json && fp8-convert hf -o tok.h5'
says "fp8-info shows the tokenizer" 'tokenizer +tokenizer.json' fp8-info tok.h5
says "fp8-info lists the other files" '^files +generation_config.json$' fp8-info tok.h5
printf '{{ x }}' >hf/chat_template.jinja && ln -s /etc hf/special_tokens_map.json
says "a folder among the files is refused" '^fp8-convert: hf/special_tokens_map.json: not a regular file' fp8-convert hf -o x.h5
rm hf/special_tokens_map.json
ok "a chat template is kept" fp8-convert hf -f -o tok.h5
says "in the file" '^files +chat_template.jinja, generation_config.json$' fp8-info tok.h5
ok "a step keeps the files" \
  sh -c 'fp8-tokenize hf/config.json --from text -o some.h5 && fp8-step tok.h5 --data some.h5 --any-tokenizer --seq-length 8 --batch-size 1 '\
'--steps 1 --out kept'
says "in its checkpoint" '^files +chat_template.jinja, generation_config.json$' fp8-info kept/step-00000001
ok "a merge keeps them" fp8-convert kept/step-00000001 --merge -o merged.h5
says "in its output" '^files +chat_template.jinja, generation_config.json$' fp8-info merged.h5
ok "quantization keeps them" fp8-quantize merged.h5 --scaling tensor -o quantized.h5
says "in its output too" '^files +chat_template.jinja, generation_config.json$' fp8-info quantized.h5
says "a missing source is refused" '^fp8-convert: none: ' fp8-convert none -o x.h5
says "a token file as source is refused" 'a token file, not a checkpoint' \
  sh -c 'fp8-tokenize hf/config.json --from text -o t.h5 >/dev/null && fp8-convert t.h5 -o x.h5'
says "an existing output is refused" '^fp8-convert: j.h5: exists' fp8-convert hf -o j.h5
says "an output that is also the source is refused" '^fp8-convert: j.h5: is also an input' fp8-convert j.h5 -f -o j.h5
ok "the source verifies" fp8-info --verify j.h5
sed -i 's/"vocab_size": 256/"vocab_size": 255/' hf/config.json
says "tensors of the wrong shape are named" 'tensors of the wrong shape: model.embed_tokens.weight \[256, 64\] instead of \[255, 64\]' \
  fp8-convert hf -o x.h5
status "tensors of the wrong shape give status 2" 2 fp8-convert hf -o x.h5
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/; s/255/256/' hf/config.json
says "missing tensors are named" ': missing tensors: model.layers.2.input_layernorm.weight, .* and [0-9]+ more' fp8-convert hf -o x.h5
sed -i 's/"num_hidden_layers": 3/"num_hidden_layers": 1/' hf/config.json
says "unexpected tensors are named" 'unexpected tensors: model.layers.1.input_layernorm.weight' fp8-convert hf -o x.h5
head -c 100000 "$golden/llama3/hf/model.safetensors" >hf/model.safetensors
says "a truncated safetensors file is refused" '^fp8-convert: hf/model.safetensors: ' fp8-convert hf -o x.h5
head -c 100000 llama3.h5 >short.h5
says "a truncated checkpoint is refused" '^fp8-convert: short.h5: truncated' fp8-convert short.h5 -o x.h5
cp "$golden"/llama3/hf/* hf
for file in tokenizer.json model.safetensors config.json; do # read in the opposite order
  printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 988097824\n' 0 >hf/$file
  says "a Git LFS pointer as $file is named" "^fp8-convert: hf/$file: a Git LFS pointer, not the file; run git lfs pull\$" fp8-convert hf -o x.h5
done
is "no temporary file is left" "$(ls x.h5* ./*.tmp* .[a-z]* 2>/dev/null)" ""
done_testing
