#!/usr/bin/env bash
# Fine-tunes a model of a Hugging Face folder on 60 conversations with LoRA in FP8, merges the adapters, exports the result and asks it questions.
# Each command is printed before it runs. Takes about half a minute on two cores.
#   examples/3-fine-tune/run.sh [FOLDER]      FOLDER (default: build/fine-tune) must be new, empty, or made by an earlier run of this example, which
#                                             is then deleted
# The folder is a reference model of the tests, with random weights, and a tokenizer of 256 tokens: it stands for a downloaded model, and learns the
# conversations by heart. BIN is the folder of the programs (default: build/bin), STEPS the number of steps (default: 400, at least 10), PYTHON an
# interpreter that may have transformers (default: python3). The script checks the exit status of each command, and that the merged model has
# the loss of the adapters.
set -euo pipefail
export LC_ALL=C.UTF-8
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
BIN=${BIN:-$root/build/bin}
folder=${1:-$(dirname "$BIN")/fine-tune}
steps=${STEPS:-400}
python=${PYTHON:-python3}

. "$root/examples/common.sh"

begin "$folder" "From a Hugging Face folder to a fine-tuned one"

say "1  Take a Hugging Face folder and conversations"
mkdir base
cp "$root"/tests/golden/models/llama3/hf/{config,generation_config}.json "$root"/tests/golden/models/llama3/hf/model.safetensors "$here"/tokenizer/* base
cp "$here/conversations.jsonl" .
chmod -R u+w base
run ls base
run head -n 2 conversations.jsonl

say "2  Convert the folder; the table says which linears FP8 may compute"
show "fp8-convert base -o base.h5 | tail -n 8"
fp8-convert base -o base.h5 | tail -n 8

say "3  Tokenize the conversations with the chat template that the folder carries; + marks the tokens that count as targets"
run fp8-tokenize conversations.jsonl --tokenizer base --pack 128 -o chat.h5 --show 2

say "4  Train adapters in FP8 on two ranks; the weights of the model are frozen"
printf -v last 'step-%08d' "$steps"
train=(mpirun -n 2 fp8-step base.h5 --data chat.h5 --out run --lora-rank 32 --lora-alpha 64
  --precision fp8 --steps "$steps" --warmup-steps $((steps / 20)) --lr 2e-2 --batch-size 4 --quiet)
show "${train[*]} >records.jsonl"
"${train[@]}" >records.jsonl
run fp8-log run

say "5  Merge the adapters into the weights; evaluate the model on its conversations: before, with its adapters, and merged"
show "fp8-convert run/$last --merge-lora -o merged.h5 | tail -n 1"
fp8-convert "run/$last" --merge-lora -o merged.h5 | tail -n 1
for model in base.h5 "run/$last" merged.h5; do
  show "fp8-eval $model --data chat.h5 --precision fp32 --quiet"
  fp8-eval "$model" --data chat.h5 --precision fp32 --quiet | tee -a losses.jsonl | cut -c -80
done

say "6  Export the merged model as a Hugging Face folder, in BF16 and with FP8 codes, and the adapters for PEFT"
run fp8-export merged.h5 -o tuned
run fp8-export merged.h5 -o tuned-fp8 --format compressed-tensors
run fp8-export "run/$last" -o adapter --format peft

say "7  Ask the model, in FP8"
questions=("What does fp8-step do?" "What is 6 times 7?" "Is 9 a prime number?" "Which tool merges adapters?")
for question in "${questions[@]}"; do
  show "fp8-generate merged.h5 '$question' --greedy --precision fp8 --max-tokens 40"
  fp8-generate merged.h5 "$question" --greedy --precision fp8 --max-tokens 40
done

say "8  Load the exported folder with transformers"
if "$python" -W ignore -c 'import transformers' 2>/dev/null; then
  show "$python $here/ask.py tuned ..."
  HF_HUB_OFFLINE=1 "$python" -W ignore "$here/ask.py" tuned "${questions[@]}"
else
  echo "$python has no transformers, so this step is left out (PYTHON=... names another interpreter)"
fi

loss_of() { sed -n "$1s/.*\"loss\":\([0-9.]*\).*/\1/p" losses.jsonl; }
if ! awk -v a="$(loss_of 2)" -v b="$(loss_of 3)" 'BEGIN { d = a - b; exit !(d < 1e-3 && d > -1e-3) }'; then
  echo "example: the merged model has the loss $(loss_of 3), its adapters $(loss_of 2)" >&2
  exit 1
fi
printf '\nDone in %d s. The folders are in %s\n' "$SECONDS" "$(pwd)"
echo "Next: mandoc -a $root/man/man7/fp8-finetune.7"
