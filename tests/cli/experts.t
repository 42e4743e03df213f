#!/bin/sh
# Models with experts in fp8-init, fp8-convert, fp8-export, fp8-quantize and fp8-info: tables, messages, errors.
. "${SRC:-.}/tests/cli/lib.sh"
golden=$SRC/tests/golden/models

for model in mixtral wide-moe; do
  ok "$model is converted" fp8-convert "$golden/$model/hf" -o $model.h5
  is "the head alone is not FP8" "$(grep ' bf16 ' out | cut -d ' ' -f 1)" lm_head.weight
  ok "$model verifies" fp8-info $model.h5 --verify
  ok "$model is exported" fp8-export $model.h5 -q -o $model
  ok "its weights are the same bytes" cmp $model/model.safetensors "$golden/$model/hf/model.safetensors"
done
says "an expert is a linear" '^model.layers.1.block_sparse_moe.experts.3.w2.weight +64x96 +fp8 +yes$' fp8-convert mixtral -n -o x.h5
says "the model line has the experts" 'feed-forward 96, vocabulary 256; 2 of 4 experts of width 96 in every layer$' fp8-info mixtral.h5
says "routers have a reason" 'block_sparse_moe.gate.weight +bfloat16 +4x64 +bf16 +router$' fp8-info mixtral.h5
says "active parameters are shown" '^parameters +205632 \(131904 active\), ' fp8-info mixtral.h5
ok "and are in the record" sh -c 'fp8-info mixtral.h5 --json | grep -F "\"parameters\":205632,\"active_parameters\":131904,"'
ok "no other model has them" sh -c 'fp8-init tiny -o tiny.h5 >table && ! fp8-info tiny.h5 --json | grep active_parameters'
cp -r "$golden/mixtral/hf" hf && chmod -R u+w hf && cp hf/config.v4.json hf/config.json
ok "the configuration of transformers 4 is read" fp8-convert hf -o old.h5
ok "the models are equal" fp8-info mixtral.h5 --diff old.h5

for format in fp8 compressed-tensors; do
  ok "$format is written" fp8-export mixtral.h5 -q --any-server --format $format -o $format
  ok "routers are excluded by name" grep -q '"model.layers.1.block_sparse_moe.gate"' $format/config.json
  says "codes of experts are kept" '^model.layers.0.block_sparse_moe.experts.0.w3.weight +96x64 +(block|row) +fp8 +yes$' \
    fp8-convert $format -o $format.h5
  ok "another export has the same files" \
    sh -c "fp8-export $format.h5 -q --any-server --format $format -o $format-again && diff -r $format $format-again"
  ok "codes are dequantized" fp8-convert $format --dequantize -o values.h5 -f
done
# A router in FP8: its bf16 values become codes of 1 with a scale, and no list names it.
cp -r fp8 routed && python3 - routed model.layers.1.block_sparse_moe.gate <<'END'
import json, struct, sys
folder, gate = sys.argv[1:]
with open(folder + "/model.safetensors", "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    data = file.read()
router = header.pop(gate + ".weight")
parts = [(name, t, data[t["data_offsets"][0]:t["data_offsets"][1]]) for name, t in header.items() if name != "__metadata__"]
parts.append((gate + ".weight", {"dtype": "F8_E4M3", "shape": router["shape"]}, b"\x38" * (router["shape"][0] * router["shape"][1])))
parts.append((gate + ".weight_scale_inv", {"dtype": "F32", "shape": [1, 1]}, struct.pack("<f", 1)))
at, entries = 0, {}
for name, t, values in parts:
    entries[name] = t | {"data_offsets": [at, at + len(values)]}
    at += len(values)
text = json.dumps(entries).encode()
with open(folder + "/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + b"".join(values for _, _, values in parts))
config = json.load(open(folder + "/config.json"))
for key in ("modules_to_not_convert", "ignored_layers"):
    config["quantization_config"][key] = [name for name in config["quantization_config"][key] if name != gate]
json.dump(config, open(folder + "/config.json", "w"))
END
status "codes of a router are refused" 2 fp8-convert routed -o x.h5
is "and named" "$(cat err)" \
  "fp8-convert: routed: holds codes, which are kept; those of model.layers.1.block_sparse_moe.gate.weight are of no linear of a layer (use \
--dequantize)"
ok "they are dequantized" fp8-convert routed --dequantize -q -o routed.h5
says "small blocks are named in one line" \
  'model.layers.\{0-1\}.block_sparse_moe.experts.\{0-3\}.w1.weight \[96, 64\].* do not consist of whole blocks' \
  fp8-export mixtral.h5 --format fp8 -o x
says "quantized experts are listed" '^model.layers.0.block_sparse_moe.experts.2.w1.weight ' fp8-quantize mixtral.h5 -o q.h5 --scaling row
ok "and dequantized" fp8-quantize q.h5 --dequantize -o d.h5

ok "a preset of Qwen3-MoE makes a model" fp8-init qwen3-moe-tiny -o qwen.h5
says "dense layers are counted" 'feed-forward 192, vocabulary 256; 3 of 8 experts of width 48 in 2 of 3 layers$' fp8-info qwen.h5
ok "it goes to a folder and back" \
  sh -c 'fp8-export qwen.h5 -q -o qwen && fp8-convert qwen -o back.h5 && fp8-convert qwen.h5 --dtype bf16 -o bf16.h5 && fp8-info back.h5 '\
'--diff bf16.h5'
is "the folder has the keys of the family" \
  "$(grep -cE '"(num_experts|num_experts_per_tok|moe_intermediate_size|norm_topk_prob|decoder_sparse_step|mlp_only_layers)"' qwen/config.json)" 6
fp8-init qwen3-moe-tiny --set moe_intermediate_size=40 -o odd.h5 >table
says "widths of experts are padded" '^model.layers.2.mlp.experts.7.down_proj.weight +64x48 +64x40 +fp8 +yes$' fp8-convert odd.h5 --pad -o padded.h5
ok "the padded model verifies" fp8-info padded.h5 --verify
loss() { fp8-eval "$1" --data bytes.h5 --seq-length 32 --precision fp32 -q | sed 's/.*"loss":\([^,]*\),.*/\1/'; }
fp8-tokenize "$golden/README.md" -o bytes.h5 >table 2>err
ok "its loss is equal" python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a - b) > 1e-6)' "$(loss odd.h5)" "$(loss padded.h5)"

refused() { what=$1; line=$2; shift 2; status "$what is refused" 2 "$@"; is "$what: one line" "$(cat err)" "$line"; }
refused "top k above the experts" "fp8-init: mixtral-tiny: num_experts_per_tok 5 is above the number of experts, 4" \
  fp8-init mixtral-tiny --set num_experts_per_tok=5 -o x.h5
refused "a dense layer that is none" 'fp8-init: qwen3-moe-tiny: "mlp_only_layers" holds 3, not a layer from 0 to 2' \
  fp8-init qwen3-moe-tiny --set 'mlp_only_layers=[3]' -o x.h5
echo '{"model_type":"qwen2_moe","shared_expert_intermediate_size":8}' >shared.json
refused "a shared expert" \
  'fp8-init: shared.json: "shared_expert_intermediate_size": shared experts are not supported (those of mixtral and qwen3_moe are)' \
  fp8-init shared.json -o x.h5
echo '{"model_type":"deepseek_v3"}' >shared.json
refused "DeepSeek" 'fp8-init: shared.json: model_type "deepseek_v3": shared experts are not supported (those of mixtral and qwen3_moe are)' \
  fp8-init shared.json -o x.h5
sed -i '/num_experts_per_tok/d; s/"output_router_logits": false/"output_router_logits": true/' hf/config.json
ok "a folder without the number of experts of a token is converted" fp8-convert hf -n -o x.h5
is "notes name the default, and the loss that transformers adds" "$(grep config.json err)" \
  "fp8-convert: hf/config.json: lacks keys, defaults of mixtral are used: num_experts_per_tok 2
fp8-convert: hf/config.json: with output_router_logits transformers adds its balancing loss in training, with coefficient 0.001; fp8-step adds one \
of the same size with --aux-loss 0.001"
sed -i 's/experts\.3\.w2/experts.9.w2/' hf/model.safetensors
refused "a missing expert" "fp8-convert: hf: missing tensors: model.layers.0.block_sparse_moe.experts.3.w2.weight; unexpected tensors: \
model.layers.0.block_sparse_moe.experts.9.w2.weight" fp8-convert hf -o x.h5
done_testing
