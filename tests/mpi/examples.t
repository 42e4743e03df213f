#!/bin/sh
# The examples, with ten steps of a tiny model each; the demo has two pairs of runs.
. "${SRC:-.}/tests/cli/lib.sh"
head -c 12000 "$SRC/share/text/tinyshakespeare.txt" >text.txt
export STEPS=10 SEEDS=2 PRESET=tiny TEXT=text.txt PYTHON=none
status "the demo succeeds" 0 "$SRC/examples/1-demo/run.sh" demo
is "the demo runs to its last command" "$(grep -c '^\(gate met\|gate not met\|cannot tell\)' out) $(grep -c '^Done in ' out)" "1 1"
is "the demo makes no model without a tokenizer to compare" "$(cat out err | grep -c 'has no tokenizer')" 0
is "the demo prints a line for the first step and each fifth of four runs" "$(grep -c '^  step .* of 10 ' out)" 24
is "the demo leaves four runs" "$(find demo -path '*/step-00000010' -prune | wc -l)" 4
is "the demo ends with text of the trained model" \
  "$(grep -c '^\$ fp8-generate fp8-1/step-00000010 ' out) $(sed -n '/^\$ fp8-generate/,/^Done in/p' out | wc -m | awk '{ print ($1 > 150) }')" "1 1"
status "the example of precision phases succeeds" 0 "$SRC/examples/2-precision-phases/run.sh" phases
is "the run by fp8-resume and the run by hand are equal" "$(grep 'equal$' out)" "supervised/step-00000010 and byhand/step-00000010: equal"
is "the run has three phases" "$(sed -n 's/^\(precision\|  phase [0-9]*\)  *//p' out | paste -s -d ';')" \
  "bf16;from 2: fp8 tensorwise, emulated;from 10: bf16"
status "the example of fine-tuning succeeds" 0 "$SRC/examples/3-fine-tune/run.sh" tune
is "it runs to its last command, without transformers" "$(grep -c '^none has no transformers' out) $(grep -c '^Done in ' out)" "1 1"
is "it leaves two folders of models and one of adapters" "$(cd tune && echo ./*/*.safetensors)" \
  "./adapter/adapter_model.safetensors ./base/model.safetensors ./tuned-fp8/model.safetensors ./tuned/model.safetensors"
is "the exported folder has the texts of the first" \
  "$(cd tune && for f in tokenizer.json tokenizer_config.json chat_template.jinja; do cmp base/$f tuned/$f; done)" ""
status "the example of recipes succeeds" 0 "$SRC/examples/4-recipes/run.sh" recipes
is "it has three runs of each side" \
  "$(cd recipes/recipes && for side in bf16 tensorwise rowwise delayed blockwise mxfp8; do find ${side}_seed=[123] -name step-00000010 |
  wc -l; done | tr '\n' ' ')" "3 3 3 3 3 3 "
is "it compares each recipe with bf16, in training and evaluation loss" \
  "$(grep -cE '^(tensorwise|rowwise|delayed|blockwise|mxfp8)  +3  .* ± ' out) $(grep -c '^Done in ' out)" "10 1"
is "it draws the gaps of the five recipes" \
  "$(grep -c '<svg' recipes/gaps.svg) $(grep -oE 'tensorwise|rowwise|delayed|blockwise|mxfp8' recipes/gaps.svg | sort -u | wc -l)" "1 5"
mkdir mine
touch mine/file
for example in 1-demo 2-precision-phases 3-fine-tune 4-recipes; do
  status "$example: a folder with other files gives status 2" 2 "$SRC/examples/$example/run.sh" mine
  is "$example: a folder with other files is named" "$(cut -d' ' -f2- err)" "mine: holds other files; name a new folder"
done
is "the folder with other files is unchanged" "$(ls -A mine)" "file"
done_testing
