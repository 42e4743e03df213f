#!/bin/sh
# Memory use: tools that process tensors one at a time never hold a whole checkpoint, and a run allocates what its memory plan states.
. "${SRC:-.}/tests/cli/lib.sh"

# peak COMMAND...: prints the peak resident memory of the command in MiB; nothing if the command fails
peak() {
  python3 -c 'import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=open("err", "w"))
done.returncode == 0 and print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)' "$@"
}
below() { # NAME GOT LIMIT
  [ -n "$2" ] && [ "$2" -lt "$3" ]
  result $? "$1: $2 below $3 MiB"
}

# --- checkpoints of 177 MiB and 161 MiB with a largest tensor of 32 MiB
size="--set hidden_size=1024 --set intermediate_size=2816 --set num_hidden_layers=3 --set vocab_size=8192 --set num_attention_heads=16 --set \
num_key_value_heads=16 --set head_dim=64"
# shellcheck disable=SC2086 # words on purpose
below "fp8-init needs at most its largest tensor and 100 MiB" "$(peak fp8-init tiny $size --set tie_word_embeddings=true -o m.h5)" 132
ok "the checkpoint is larger than 180 MB" test "$(stat -c %s m.h5)" -gt 180000000
below "fp8-convert of a checkpoint needs at most its largest tensor and 100 MiB" "$(peak fp8-convert m.h5 -o c.h5 --dtype bf16)" 132
rm m.h5
python3 -c 'import json, struct
f = 2816
layer = {"input_layernorm": [1024], "post_attention_layernorm": [1024], "mlp.gate_proj": [f, 1024],
         "mlp.up_proj": [f, 1024], "mlp.down_proj": [1024, f]}
layer |= {f"self_attn.{p}_proj": [1024, 1024] for p in "qkvo"}
shapes = {"model.embed_tokens.weight": [8192, 1024], "model.norm.weight": [1024]}
shapes |= {f"model.layers.{i}.{name}.weight": shape for i in range(6) for name, shape in layer.items()}
head, at = {}, 0
for name, shape in shapes.items():
    n = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    head[name], at = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}, at + n
text = json.dumps(head).encode()
with open("model.safetensors", "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text)
    for _ in range(at >> 20): out.write(b"\x80\x3f" * (1 << 19))
    out.write(b"\x80\x3f" * (at % (1 << 20) // 2))
config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": f, "num_hidden_layers": 6,
          "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 8192, "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
          "rope_theta": 1e4, "max_position_embeddings": 2048, "hidden_act": "silu"}
json.dump(config, open("config.json", "w"))'
below "fp8-convert of a Hugging Face folder needs at most its largest tensor and 100 MiB" "$(peak fp8-convert . -o folder.h5)" 132
rm -f c.h5 model.safetensors config.json

# --- a tensor of 128 MiB with one row
python3 -c 'import json, struct
text = json.dumps({"t": {"dtype": "F32", "shape": [1, 8192, 4096], "data_offsets": [0, 1 << 27]}}).encode()
with open("row.safetensors", "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text)
    out.truncate(8 + len(text) + (1 << 27))'
below "fp8-info --diff reads pieces of a row" "$(peak fp8-info row.safetensors --diff row.safetensors)" 100
rm row.safetensors

# --- the peak memory of a run is within 5 % of its plan
fp8-init tiny --set hidden_size=512 --set intermediate_size=1408 --set num_hidden_layers=3 --set vocab_size=16384 --set num_attention_heads=8 \
  --set num_key_value_heads=8 --set head_dim=64 --set tie_word_embeddings=true -o m.h5 >out 2>err
seq 1 20000 >text
fp8-tokenize text --tokenizer bytes -o d.h5 >out 2>err
# near_plan NAME LOG: passes if the largest memory_peak_bytes is within 5 % of the plan in the run record
near_plan() {
  planned=$(sed -n '1s/.*"memory_plan":{[^}]*"total":\([0-9]*\)}.*/\1/p' "$2")
  taken=$(sed -n 's/.*"memory_peak_bytes":\([0-9]*\),.*/\1/p' "$2" | sort -n | tail -1)
  awk -v p="$planned" -v t="$taken" 'BEGIN { exit !(p > 0 && t > 0.95 * p && t < 1.05 * p) }'
  result $? "$1: $taken bytes of $planned"
}
for precision in bf16 fp8; do
  for n in 1 2; do
    rm -rf run
    mpirun -n $n fp8-step m.h5 --data d.h5 --out run --seq-length 64 --batch-size 1 --steps 2 -q --precision $precision >log 2>err </dev/null
    near_plan "$precision at $n ranks" log
    head -1 log >$precision.$n
  done
done
kept=$(sed 's/.*"memory_plan":{\([^}]*\)}.*/\1/' bf16.1 | tr ',' '\n' |
  awk -F: '/master weights|moments|gradients|compute weights/ { sum += $2 } END { print sum }')
is "master weights, moments, gradients and bf16 weights need 18 bytes per parameter" "$kept" \
  "$((18 * $(sed 's/.*"parameters":\([0-9]*\),.*/\1/' bf16.1)))"
done_testing
