#!/bin/bash
# fp8-import: recipes of NeMo AutoModel, configurations of KempnerForge and of Axolotl become runs. The readers have tests of their own in lib/foreign.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
# shellcheck source=tests/cli/import.sh
. "$SRC/tests/cli/import.sh"
model llama3 && cp "$SRC/examples/3-fine-tune/conversations.jsonl" train.jsonl
# rates NAME FOLDER EXPRESSION: the rates of the steps are those of a Python expression of t.
rates() {
  is "$1" "$(python3 -c '
import json, sys
from math import cos, pi
lr = [x["lr"] for x in map(json.loads, open(sys.argv[1])) if x["type"] == "step"]
wanted = [eval(sys.argv[2]) for t in range(len(lr))]
print(len(lr) > 1 and all(abs(a - b) < 1e-9 for a, b in zip(lr, wanted)) or (lr, wanted))' "$2/run/log.jsonl" "$3")" True
}

# NeMo AutoModel: a recipe for fine-tuning with the block fp8.
cat >recipe.yaml <<'END'
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler:
  global_batch_size: 8
  local_batch_size: 2
  ckpt_every_steps: 200
  val_every_steps: 100
  num_epochs: 1
  max_steps: 12
dist_env:
  backend: nccl
  timeout_minutes: 1
rng:
  _target_: nemo_automodel.components.training.rng.StatefulRNG
  seed: 1111
  ranked: true
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: llama3
checkpoint:
  enabled: true
  checkpoint_dir: checkpoints/
  model_save_format: torch_save
  save_consolidated: false
distributed:
  strategy: fsdp2
  dp_size: none
  tp_size: 1
  cp_size: 1
  sequence_parallel: false
fp8:
  enabled: true
  recipe_name: tensorwise
  enable_fsdp_float8_all_gather: true
  precompute_float8_dynamic_scale_for_fsdp: true
  force_recompute_fp8_weight_in_bwd: true
  filter_fqns: ["lm_head"]
  emulate: false
loss_fn:
  _target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy
dataset:
  _target_: nemo_automodel.components.datasets.llm.chat_dataset.ChatDataset
  path_or_dataset_id: train.jsonl
  seq_length: 64
  truncation: true
dataloader:
  _target_: torchdata.stateful_dataloader.StatefulDataLoader
  collate_fn: nemo_automodel.components.datasets.utils.default_collater
  shuffle: true
optimizer:
  _target_: torch.optim.Adam
  betas: [0.9, 0.999]
  eps: 1e-8
  lr: 1.0e-3
  weight_decay: 0
lr_scheduler:
  lr_decay_style: cosine
  lr_warmup_steps: 2
END
ok "a recipe of NeMo AutoModel with its block fp8" fp8-import recipe.yaml --ranks 2 -o automodel
is "the batch is over all ranks, and the shorter limit ends the run" \
  "$(values automodel/run.json batch-size grad-accumulation steps warmup-steps)" "2 2 8 2"
is "FP8 is as in the block" "$(values automodel/run.json precision recipe fp8-all-gather fp8-lm-head decay master)" \
  "fp8 tensorwise True False all fp32"
trains "AutoModel's recipe on two ranks" automodel
rates "the warm-up begins at a tenth, and the end is a hundredth" automodel \
  '1e-4 + 9e-4 * t / 2 if t < 2 else 1e-5 + 99e-5 * (1 + cos(pi * (t - 2) / 6)) / 2'
sed -e 's/^  weight_decay: 0/  weight_decay: 0.01/' recipe.yaml >l2.yaml
status "Adam with weight decay has no counterpart" 1 fp8-import l2.yaml -q
sed -e 's/^lr_scheduler:/_lr_scheduler:/' recipe.yaml >constant.yaml
ok "a recipe without a schedule" fp8-import constant.yaml -o constant
is "has a constant rate" "$(values constant/run.json schedule warmup-steps)" "constant 0"

# KempnerForge: a model from scratch with mixed_precision "fp8" and the table of its profiler.
mkdir tokens && python3 -c 'import struct; open("tokens/tokenized_0.bin", "wb").write(struct.pack("<8000I", *((7 * i + i * i // 13) % 250 for i in range(8000))))'
cat >fp8.toml <<'END'
[model]
dim = 64
n_layers = 2
n_heads = 4
n_kv_heads = 2
vocab_size = 256
ffn_dim_multiplier = 1.3
max_seq_len = 64
rope_theta = 500000.0

[train]
batch_size = 2
seq_len = 64
max_steps = 8
grad_accum_steps = 2
grad_clip_norm = 1.0
seed = 42
compile_model = true
mixed_precision = "fp8"
activation_checkpointing = "full"

[optimizer]
name = "adamw"
lr = 1e-3
weight_decay = 0.1
betas = [0.9, 0.95]
eps = 1e-8
fused = true

[scheduler]
name = "cosine"
warmup_steps = 2
min_lr_ratio = 0.1

[data]
dataset_path = "tokens"
file_pattern = "tokenized_*.bin"
num_workers = 4
pin_memory = true
prefetch_factor = 2

[distributed]
dp_shard = 2
nccl_timeout_sec = 600

[checkpoint]
dir = "checkpoints/fp8"
interval = 25
async_mode = "async_with_pinned_mem"
keep_last_n = 2

[metrics]
log_interval = 1

[profiling]
enable = true
start_step = 3
end_step = 5
END
ok "a configuration of KempnerForge in FP8" fp8-import fp8.toml -o kempner
is "weights and moments are bf16, and the head is FP8" \
  "$(values kempner/run.json precision recipe fp8-all-gather fp8-lm-head master moments dp-shard)" "fp8 tensorwise True True bf16 bf16 2"
trains "KempnerForge's model on two ranks" kempner
rates "the first rate is 0, and the end is a tenth" kempner '1e-3 * t / 2 if t < 2 else 1e-4 + 9e-4 * (1 + cos(pi * (t - 2) / 6)) / 2'
is "the head runs in FP8" "$(grep -c '"name":"lm_head.weight","precision":"fp8"' kempner/run/log.jsonl)" 1
ok "the steps of the profiler are profiled" test -s kempner/run/profile-4-5.json
sed -i -e 's/^ffn_dim.*/&\nnum_experts = 4\nmoe_router = "sigmoid_topk"/' fp8.toml
status "a router with a bias has no counterpart" 1 fp8-import fp8.toml -q

# Axolotl: conversations, packed, with adapters.
cat >axolotl.yaml <<'END'
base_model: llama3
datasets:
  - path: train.jsonl
    type: chat_template
chat_template: chatml
val_set_size: 0.05
output_dir: ./outputs/lora-out
adapter: lora
lora_r: 8
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
sequence_len: 128
sample_packing: true
gradient_accumulation_steps: 2
micro_batch_size: 1
num_epochs: 2
optimizer: adamw_torch_fused
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
tf32: false
gradient_checkpointing: true
resume_from_checkpoint:
logging_steps: 1
flash_attention: true
warmup_ratio: 0.1
weight_decay: 0.0
END
ok "a configuration of Axolotl" fp8-import axolotl.yaml -o axolotl
is "adapters, f32" "$(values axolotl/run.json lora-rank lora-alpha lora-targets master warmup-from)" "8 16.0 ['all'] fp32 0.0"
trains "Axolotl's adapters" axolotl
sed -e 's/^optimizer.*/optimizer: adamw_bnb_8bit/' axolotl.yaml >eight.yaml
says "moments in 8 bits are refused by name" 'optimizer: no counterpart: moments in 8 bits' fp8-import eight.yaml

done_testing
