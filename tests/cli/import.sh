# shellcheck shell=bash
# What scripts that test fp8-import share, sourced after lib.sh. Programs run with one thread.
export OMP_NUM_THREADS=1

# model NAME: a folder of a reference model, with a tokenizer of 256 tokens.
model() {
  mkdir "$1" && cp "$SRC/tests/golden/models/$1/hf/"{config,generation_config}.json "$SRC/tests/golden/models/$1/hf/model.safetensors" \
    "$SRC"/examples/3-fine-tune/tokenizer/* "$1" && chmod -R u+w "$1"
}
# values FILE NAME...: prints the values of names of a run.json.
values() { python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(*(r.get(n) for n in sys.argv[2:]))' "$@"; }
# trains NAME FOLDER: the script of a folder runs, from another folder, and its steps are as planned.
trains() {
  ok "$1: run.sh runs" sh -e "$2/run.sh"
  is "$1: with as many steps as run.json says" "$(grep -c '"type":"step"' "$2/run/log.jsonl")" "$(values "$2/run.json" steps)"
}
