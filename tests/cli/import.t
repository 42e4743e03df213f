#!/bin/bash
# fp8-import: from files of other trainers to trained models, statuses, and what is refused. The readers have tests of their own in lib/foreign.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
# shellcheck source=tests/cli/import.sh
. "$SRC/tests/cli/import.sh"
model llama3 && model qwen2 && cp "$SRC/examples/3-fine-tune/conversations.jsonl" .
cat >dataset_info.json <<'END'
{"faq": {"file_name": "conversations.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"},
  "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant", "system_tag": "system"}},
 "hub": {"hf_hub_url": "org/set"}}
END
# The SFT file of LLaMA-Factory, its lines for FP8, and the file of Accelerate beside it.
cat >sft.yaml <<'END'
### model
model_name_or_path: Qwen/Qwen2.5-0.5B
trust_remote_code: true
### method
stage: sft
do_train: true
finetuning_type: full
### dataset
dataset: faq
template: qwen
cutoff_len: 64
max_samples: 1000
overwrite_cache: true
preprocessing_num_workers: 16
### output
output_dir: saves/full/sft
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
### train
per_device_train_batch_size: 2
gradient_accumulation_steps: 2
learning_rate: 1.0e-3
num_train_epochs: 2.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null
END
cat sft.yaml - >fp8.yaml <<'END'
fp8: true
fp8_backend: torchao
fp8_enable_fsdp_float8_all_gather: true
END
cat >accelerate.yaml <<'END'
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_version: 2
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
use_cpu: false
END
# A file of DeepSpeed for stage 1 with a section that DeepSpeed does not know.
cat >ds1.json <<'END'
{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "train_batch_size": "auto", "gradient_clipping": "auto",
 "bf16": {"enabled": "auto"}, "fp8": {"enabled": true},
 "zero_optimization": {"stage": 1, "overlap_comm": true, "reduce_bucket_size": 5e8, "contiguous_gradients": true}, "steps_per_print": 100}
END
sed 's/^num_train_epochs.*/max_steps: 3/' sft.yaml >stage1.yaml && echo 'deepspeed: ds1.json' >>stage1.yaml
sed -e 's/^finetuning_type.*/finetuning_type: lora/' -e 's/^num_train_epochs.*/max_steps: 3/' sft.yaml >lora.yaml

class() { python3 -c 'import json, sys
print(*sorted({r["class"] for r in map(json.loads, open("out")) if r.get("key") == sys.argv[1]}))' "$1"; }
import() { fp8-import "$@" --dataset-dir .; }

ok "the SFT file with its lines for FP8 and its file of Accelerate" import fp8.yaml accelerate.yaml --model qwen2 -o full
is "ranks, batch, steps and warmup are those of the Trainer" "$(values full/run.json batch-size grad-accumulation steps warmup-steps warmup-from)" \
  "2 2 16 2 0.0"
is "FP8 is row-wise, with f32 master weights" "$(values full/run.json precision recipe master zero)" "fp8 rowwise fp32 3"
is "two ranks train" "$(grep -c '^mpirun -n 2 fp8-step ' full/run.sh)" 1
trains "Qwen2 in FP8 on two ranks" full
is "the first rate is 0, and the rates are the Trainer's" "$(python3 -c '
import json
r = [json.loads(l) for l in open("full/run/log.jsonl")]
lr = [x["lr"] for x in r if x["type"] == "step"]
from math import cos, pi
wanted = [1e-3 * (t / 2 if t < 2 else (1 + cos(pi * (t - 2) / 14)) / 2) for t in range(16)]
print(len(lr) == 16 and all(abs(a - b) < 1e-9 for a, b in zip(lr, wanted)))')" True
ok "the model is exported" test -f full/model/model.safetensors
ok "the script can be run again" sh -e full/run.sh

ok "a file that names a file of DeepSpeed" import stage1.yaml --model llama3 -o stage1 --json
is "its section fp8 does nothing there either" "$(class fp8.enabled)" "does nothing"
is "its stage is --zero 1" "$(values stage1/run.json zero precision steps)" "1 bf16 3"
trains "Llama under ZeRO 1" stage1

ok "adapters" import lora.yaml --model llama3 -o lora
is "rank, alpha and targets are the defaults there" "$(values lora/run.json lora-rank lora-alpha lora-targets)" "8 16.0 ['all']"
trains "adapters" lora
ok "which are exported for PEFT" test -f lora/adapter/adapter_config.json

sed -e 's/^cutoff_len.*/cutoff_len: 128/' -e 's/^template.*/template: chatml/' -e 's/^per_device.*/per_device_train_batch_size: 1/' \
  -e 's/^gradient_acc.*/gradient_accumulation_steps: 1/' -e 's/^num_train.*/num_train_epochs: 1/' sft.yaml >packed.yaml
echo 'neat_packing: true' >>packed.yaml
ok "packed records" import packed.yaml --model llama3 -o packed
is "steps are those of packed sequences, of which 60 conversations make 13" "$(values packed/run.json steps seq-length documents)" "13 128 separate"

# Statuses, and files.
status "a file exists" 2 import lora.yaml --model llama3 -o lora
says "which is said" '^fp8-import: lora/run.json: exists' import lora.yaml --model llama3 -o lora
echo 'neftune_noise_alpha: 5' | cat lora.yaml - >noise.yaml
status "a key without counterpart" 1 import noise.yaml --model llama3 -o noise -q
is "-q prints no table" "$(cat out)" ""
printf '%s\n' 'add_tokens: a,b' 'resize_vocab: true' | cat lora.yaml - >tokens.yaml
says "keys of one reason have one line, which says what is lost" \
  '^fp8-import: tokens.yaml: add_tokens, resize_vocab: no counterpart: the tokenizer and the' \
  import tokens.yaml --model llama3
ok "run.json is written" test -f noise/run.json
ok "run.sh is not" test ! -e noise/run.sh
status "that key allowed" 0 import noise.yaml --model llama3 -o noise -f --allow neftune_noise_alpha
ok "run.sh is written" test -f noise/run.sh
status "again without the word" 1 import noise.yaml --model llama3 -o noise -f
ok "an older run.sh is removed" test ! -e noise/run.sh
status "no model" 2 import lora.yaml -o nomodel
is "one line names it" "$(grep -c '^fp8-import: missing: model: Qwen/Qwen2.5-0.5B: no such folder; download it' err) $(test -f nomodel/run.json && echo json)" "1 json"
sed 's/^dataset: faq/dataset: hub/' lora.yaml >hub.yaml
status "data of a hub" 2 import hub.yaml --model llama3
is "the file to fetch is named" "$(grep -c 'hub: is at org/set, not on this machine; fetch it' err)" 1
sed 's/^stage: sft/stage: dpo/' lora.yaml >dpo.yaml
says "other stages are named" '^fp8-import: dpo.yaml: stage: no counterpart: ' import dpo.yaml --model llama3
echo 'a: 1' >other.yaml
says "a file of no trainer" '^fp8-import: other.yaml: no key that only one trainer has, of LLaMA-Factory, .* \(use --from ' import other.yaml
says "a trainer that does not exist" "^fp8-import: --from: 'llamafactory' is not one of llama-factory, automodel" import sft.yaml --from llamafactory
printf 'stage: sft\nlearning_rate: fast\n' >fast.yaml
says "a value of another type" '^fp8-import: fast.yaml: line 2: learning_rate: needs a number, found "fast"$' import fast.yaml
printf 'stage: sft\nseed: %s\n' "\${SEED}" >seed.yaml
says "a number of the environment" \
  '^fp8-import: seed.yaml: line 2: seed: needs a number, found .*; variables of the environment are not substituted: write the value of SEED$' \
  import seed.yaml
printf 'stage: sft\noutput_dir: %s\n' "\${HOME}/x" >dir.yaml
says "a value of the environment" '^fp8-import: missing: dir.yaml: output_dir: .* refers to the environment' import dir.yaml
head -c 5000000 /dev/zero | tr '\0' '#' >large.yaml
says "a file that is too large" '^fp8-import: large.yaml: ' import large.yaml
sed 's/^learning_rate.*/learning_rate: -1/' lora.yaml >negative.yaml
says "a value that fp8-step refuses" '^fp8-import: missing: .*lr' import negative.yaml --model llama3 -o refused
is "its run.json is refused by fp8-step with the same reason, and there is no run.sh" \
  "$(fp8-step none.h5 --config refused/run.json 2>&1 | sed 's/.*run.json: //') $(ls refused)" \
  "$(sed -n 's/^fp8-import: missing: run.json: //p' err) run.json"
says "the table" '^learning_rate +0.001 +--lr 0.001' import lora.yaml --model llama3

done_testing
