#!/bin/sh
# Runs the commands of README.md under "And on my model?" with small files of these names: a Hugging Face folder and a text.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

export OMP_NUM_THREADS=1
sed -n '/^\*\*And on my model?\*\*/,/^`/s/^    //p' "$SRC/README.md" >commands
is "README.md has three commands" "$(cut -d ' ' -f 1 commands | paste -s -d ' ' -)" "fp8-convert fp8-tokenize fp8-inspect"
cp -r "$SRC/tests/golden/models/llama3/hf" my-model
chmod -R u+w my-model
cp "$SRC"/examples/3-fine-tune/tokenizer/* my-model
head -c 20000 "$SRC/share/text/tinyshakespeare.txt" >my.txt
while read -r command; do
  ok "$command" sh -c "$command"
  cp out "$(echo "$command" | cut -d ' ' -f 1).out"
done <commands
says "the first says which linears FP8 may compute" 'lm_head.weight +256x64 +bf16 +yes +LM head' cat fp8-convert.out
recipes=$(grep -Eo '(tensorwise|rowwise_with_gw_hp|rowwise|current|delayed|blockwise|mxfp8) ' fp8-inspect.out | sort -u | wc -l)
is "the last shows every recipe" "$recipes" 7
done_testing
