#!/bin/sh
# fp8-plan: records, tables, statuses and errors. tests/mpi/plan.t compares its memory with that of fp8-step.
# shellcheck disable=SC2086 # lists of flags on purpose
. "${SRC:-.}/tests/cli/lib.sh"
answering
plan() { fp8-plan "$@" -q; }
# of EXPRESSION FLAGS: the value of an expression over r, the records
of() {
  expression=$1
  shift
  plan "$@" --json >records 2>err </dev/null
  figures records "$expression"
}
echo '{"model_type":"llama","vocab_size":128256,"hidden_size":16384,"intermediate_size":53248,"num_hidden_layers":126,"num_attention_heads":128,"num_key_value_heads":8,"max_position_embeddings":131072}' >405b.json

# --- memory alone
is "without a machine there are memory and nulls" "$(of '[(x["type"], x["precision"], x["recipe"], x["fits"], x["step_s"], x["ratio_to_bf16"], x["memory_bytes"]["total"] > 0) for x in r]' tiny --precision bf16)" \
  "[('plan', 'bf16', None, None, None, None, True)]"
is "recipes come in the order given, and imply FP8" "$(of '[(x["precision"], x["recipe"]) for x in r]' tiny --recipe rowwise,tensorwise)" "[('fp8', 'rowwise'), ('fp8', 'tensorwise')]"
is "the default is tensorwise" "$(of 'r[-1]["recipe"]' tiny)" tensorwise
fp8-init tiny -o m.h5 -q >out
is "a checkpoint has the memory of its configuration" "$(of 'r[-1]["memory_bytes"]["moments"]' m.h5)" "$(of 'r[-1]["memory_bytes"]["moments"]' tiny)"
fp8-export m.h5 -o hf -q >out
rm -f hf/*.safetensors
is "so has a folder of Hugging Face without weights" "$(of 'r[-1]["memory_bytes"]["moments"]' hf)" "$(of 'r[-1]["memory_bytes"]["moments"]' tiny)"
is "keys of the configuration can be set" "$(of 'r[-1]["memory_bytes"]["moments"]' tiny --set num_hidden_layers=4)" "$(of '2 * r[-1]["memory_bytes"]["moments"] - 8 * (2 * 256 * 64 + 64)' tiny)"
is "the ranks are those of the mesh" "$(of '[r[-1]["ranks"], r[-1]["mesh"]]' tiny --dp-shard 2 --tp 2 --pp 2)" "[8, {'dp_replicate': 1, 'dp_shard': 2, 'pp': 2, 'ep': 1, 'tp': 2}]"

# --- speed
on='llama3-8b --machine h100-sxm --ranks 8 --seq-length 8192 --batch-size 1'
{
  is "with a machine bf16 comes first" "$(of '[x["recipe"] for x in r]' $on --recipe rowwise)" "[None, 'rowwise']"
  is "each figure is an interval of at most 1.5" "$(of '[all(1 < x[k][1] / x[k][0] < 1.5 for x in r for k in ("step_s", "tokens_per_s", "tokens_per_s_per_rank"))]' $on --recipe all)" "[True]"
  is "terms sum to the step" "$(of '[abs(sum(t[1] for t in x["terms_s"].values()) / x["step_s"][1] - 1) < 1e-9 for x in r]' $on)" "[True, True]"
  is "tensorwise gains on a large model" "$(of '[1.15 < r[-1]["ratio_to_bf16"][0] < r[-1]["ratio_to_bf16"][1] < 1.6, r[0]["ratio_to_bf16"]]' $on)" "[True, [1.0, 1.0]]"
  is "blockwise can gain less than tensorwise" "$(of '[r[1]["ratio_to_bf16"][0] < r[2]["ratio_to_bf16"][0]]' $on --recipe blockwise,tensorwise)" \
    "[True]"
  is "days follow from the tokens" "$(of '[abs(r[0]["days"][0] * r[0]["tokens_per_s"][1] * 86400 / 1e12 - 1) < 1e-9]' $on --tokens 1e12)" "[True]"
  says "the table has a verdict" '^tensorwise: 1\.[0-9]+ to 1\.[0-9]+ times the speed of bf16: it pays$' plan $on
  says "and the command" '^mpirun -n 8 fp8-step MODEL.h5 --data DATA.h5 --out RUN --steps N --seq-length 8192 --batch-size 1 --precision fp8$' plan $on
  says "layers of equal times have one row" '^layers 1 to 30, each  ' plan $on --layers
  status "a gain that is required and there gives status 0" 0 plan $on --require-gain 1.1
  status "one that is not there gives status 1" 1 plan $on --require-gain 2
}
says "FP8 does not pay for a small model" '^tensorwise: 0\.[0-9]+( to 0\.[0-9]+)? times the speed of bf16: it does not pay: in the middle of the intervals GEMMs (save|cost) [0-9.]+ ms' plan tiny --machine h100-sxm
says "FP8 that is emulated does not pay" '^mxfp8: 0\.[0-9]+ to 0\.[0-9]+ times the speed of bf16: it does not pay' plan $on --recipe mxfp8
{
  fp4='llama3-8b --machine gb200 --ranks 4 --seq-length 8192 --batch-size 2'
  speed='r[2]["ratio_to_bf16"][0] > 1.1, r[2]["step_s"][0] < r[1]["step_s"][0]'
  terms='r[2]["terms_s"]["gemm_forward"][1] < 0.7 * r[1]["terms_s"]["gemm_forward"][1], r[2]["terms_s"]["casts"][0] > r[1]["terms_s"]["casts"][1]'
  is "FP4 gains on bf16 and on FP8 on a GPU that has it" \
    "$(of "[$speed, $terms]" $fp4 --recipe tensorwise,nvfp4)" "[True, True, True, True]"
  is "a record has the command, and null where there is none" \
    "$(of '[x["command"] and x["command"][:20] for x in r]' $fp4 --recipe tensorwise,nvfp4)" \
    "['mpirun -n 4 fp8-step', 'mpirun -n 4 fp8-step', None]"
  plan $fp4 --recipe tensorwise,nvfp4 >beside 2>err </dev/null
  says "FP4 is compared with the fastest FP8 recipe" '^nvfp4: [0-9.]+ to 1\.[0-9]+ times the speed of tensorwise, the fastest FP8 recipe of these$' \
    cat beside
  says "the text says that there is no command" '^no command: fp8-step computes recipe nvfp4 on CPUs only$' cat beside
  is "all leaves out what the GPU lacks" \
    "$(for gpu in "$fp4" "$on"; do of '[x["recipe"] for x in r if x["recipe"] in ("nvfp4", "blockwise")]' $gpu --recipe all; done | paste -s -d' ' -)" \
    "['nvfp4'] ['blockwise']"
}
is "on a CPU nvfp4 has a command" "$(of 'r[-1]["command"].endswith("--recipe nvfp4")' tiny --device cpu --recipe nvfp4)" True
status "unbalanced experts have rows for them" 0 plan mixtral-tiny --machine h100-sxm --ranks 4 --ep 4 --imbalance 2.1
is "a slower network makes a step slower" "$(of '[r[0]["step_s"][1]]' llama3-8b --machine h100-sxm --ranks 64 --precision bf16 --set 'machine.network.rate=[1e9,2e9]' | tr -d '[]' | awk '{ print ($1 > 1) }')" 1
is "unbalanced experts cost time" "$(of '[r[0]["step_s"][0]]' qwen3-30b-a3b --machine h100-sxm --ranks 64 --ep 8 --precision bf16 --imbalance 2.1 >a; of '[r[0]["step_s"][0]]' qwen3-30b-a3b --machine h100-sxm --ranks 64 --ep 8 --precision bf16 >b; cat a b | tr -d '[]' | paste -s -d' ' - | awk '{ print ($1 > 1.1 * $2) }')" 1

# --- fits or not
status "a model that fits no rank gives status 1" 1 plan llama3-8b --machine h100-sxm
says "with what would help" '^  --recompute full saves [0-9.]+ GiB' plan llama3-8b --machine h100-sxm --seq-length 8192
says "a run that fits says that --zero 1 keeps whole gradients" \
  '^tensorwise: --zero 1 keeps whole gradients in f32, 29.9 GiB on each rank; --zero 2 saves 2[0-9.]+ GiB$' \
  plan llama3-8b --machine h200 --ranks 8 --batch-size 1 --seq-length 1024 --zero 1
# shellcheck disable=SC2086 # a list of words
is "not with one rank for a copy, or other stages" "$(for zero in "1 --dp-replicate 8" 2; do
  plan llama3-8b --machine h200 --ranks 8 --batch-size 1 --seq-length 1024 --zero $zero
done | grep -c 'whole gradients')" 0
says "and how much is lacking" '^tensorwise does not fit: [0-9.]+ GiB more than 79.1 GiB$' plan llama3-8b --machine h100-sxm
is "405B on 1,024 ranks" "$(of '[r[-1]["ranks"], r[-1]["fits"], r[-1]["limit"]]' 405b.json --machine h100-sxm --ranks 1024 --tp 8 --pp 8 --grad-accumulation 64 --seq-length 8192 --batch-size 1 --recompute full)" "[1024, True, 'communication']"
plan llama-124m --machine h100-sxm --seq-length 64 --batch-size 1 --update-rms-every 5 >measured 2>err </dev/null
is "the copy that measures an update has memory, and the command its flag" \
  "$(grep -c '^ *changes of weights  *147 MiB' measured) $(tail -n 1 measured | grep -o -e '--update-rms-every .*')" "1 --update-rms-every 5"
plan llama3-8b --machine h100-sxm --ranks 4 --fit --grad-accumulation 4 --batch-size 1 >fitted 2>err </dev/null
is "--fit finds settings that fit" "$? $(grep -c 'GEMMs$' fitted) $(grep -c '^mpirun -n 4 fp8-step' fitted)" "0 5 1"
plan tiny --machine h200 --ranks 8 --recipe blockwise --fit -q >fitted.blocks 2>err </dev/null
is "also where blocks refuse some meshes" "$? $(tail -n 1 fitted.blocks | grep -c '^mpirun -n 8 fp8-step')" "0 1"
says "several recipes: the one that is refused is named" '^fp8-plan: blockwise: blocks of 128 elements are on several' \
  plan llama-124m --machine h200 --ranks 8 --tp 4 --recipe tensorwise,blockwise
says "--fit gives the speed relative to bf16, and a verdict" '^the first, beside bf16: tensorwise: 1\.[0-9]+ to 1\.[0-9]+ times the speed of bf16: it pays$' cat fitted
both="tiny --machine b200 --ranks 2 --fit --seq-length 64 --batch-size 2 --recipe tensorwise,nvfp4"
is "--fit searches under each recipe" "$(plan $both | sed -n -e 's/^tiny in \([a-z0-9]*\): .*/\1/p' -e 's/ has the fastest of these:$//p' | sort -u |
  tr '\n' ' ') $(of 'sorted({x["recipe"] for x in r})' $both)" "nvfp4 tensorwise  ['nvfp4', 'tensorwise']"
status "--fit without any gives status 1" 1 plan 405b.json --machine h100-sxm --ranks 8 --fit --batch-size 1
is "--sweep has a record for each number of ranks" "$(of '[x["ranks"] for x in r]' llama3-8b --machine h100-sxm --sweep 8,16 --batch-size 1)" "[8, 16]"

says "so does --sweep" '^on 16 ranks, tensorwise: 1\.[0-9]+ to 1\.[0-9]+ times' plan llama3-8b --machine h100-sxm --sweep 8,16 --batch-size 1
plan llama-124m --machine h100-sxm --recipe all >many 2>err </dev/null
is "many recipes have a row each, of at most 100 characters" "$(sed -n '2,10p' many | awk '{ if (length > w) w = length } END { print (w <= 100), NR }') $(grep -cE '^(mxfp8|bf16) +[0-9.]+ GiB ' many)" "1 9 2"
says "the command is that of the fastest that fits" '^delayed is the fastest of these that fits:$' cat many
is "the default of the length is noted" "$(fp8-plan llama-124m --device cpu 2>&1 >out </dev/null)" "fp8-plan: --seq-length: 1024 tokens by default; the model's context is 1024"
fp8-plan llama3-8b --machine h100-sxm --ranks 64 --fit --seq-length 8192 -q >stopped 2>err </dev/null &
sleep 2
kill -TERM $! # a shell starts processes in the background with INT ignored
wait $!
is "a search that is stopped prints what it has found" "$(grep -c 'the search was stopped$' stopped)" 1

echo '{"model_type":"llama","vocab_size":1000,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":128,"tie_word_embeddings":false,"attention_bias":false,"mlp_bias":false}' >few.json
is "keys that change neither memory nor time may be missing" "$(fp8-plan few.json --seq-length 64 2>&1 >out </dev/null)" ""
sed 's/"vocab_size":1000,//' few.json >fewer.json
is "others are noted" "$(fp8-plan fewer.json --seq-length 64 2>&1 >out </dev/null | grep -c 'fewer.json: lacks keys, .*vocab_size 32000')" 1

# --- pictures
for image in m.png m.svg; do ok "$image is drawn" plan tiny --machine h200 --plot $image; done
is "they are images" "$(head -c 4 m.png | od -An -tx1 | tr -d ' ') $(grep -c '<svg' m.svg)" "89504e47 1"
is "a bar has the categories, a machine adds the speed" "$(for word in activations moments 'the rest' '1000 tokens/s of all' '8 ranks'; do
  plan llama3-8b --machine h100-sxm --sweep 8,16 --batch-size 1 --plot n.svg -f >out; grep -c ">$word<" n.svg; done | sort -u)" 1

# fill NAME FILE: the color of a category in the legend
fill() { tr -d '\n' <"$2" | sed -n "s/.*<text>$1<\/text>//p" | grep -o 'rgb([^)]*)' | head -n 1; }
plan llama3-8b --machine h200 --ranks 8 --seq-length 1024 --batch-size 1 --plot one.svg >out 2>err </dev/null
plan llama3-8b --machine h100-sxm --ranks 8 --seq-length 8192 --batch-size 1 --plot two.svg >out 2>err </dev/null
is "a category has one color in all pictures" "$(fill moments one.svg) $(fill activations one.svg)" \
  "$(fill moments two.svg) $(fill activations two.svg)"

# --- a stored machine
mkdir -p config/fp8
host='"host": {"name": "'$(uname -n)'", "processor": "'$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)'", "cores": {"value": 3}},'
sed "2a $host" "$SRC/share/machines/h200.json" >config/fp8/machine.json
is "the machine of this host is used" "$(OMP_NUM_THREADS=3 fp8-plan tiny --precision bf16 --seq-length 64 --json 2>err </dev/null | grep -o '"machine":"H200[^"]*"') $(cat err)" \
  "\"machine\":\"$(sed -n 's/^  "name": "\(.*\)",/\1/p' config/fp8/machine.json)\" fp8-plan: the machine is $PWD/config/fp8/machine.json"
is "that of another host is not" "$(OMP_NUM_THREADS=2 fp8-plan tiny --precision bf16 --seq-length 64 --json 2>err </dev/null | grep -o '"machine":null') $(grep -c 'not used: measured on' err)" '"machine":null 1'
is "nor is one of another device" "$(OMP_NUM_THREADS=3 fp8-plan tiny --device cpu --precision bf16 --seq-length 64 --json 2>err </dev/null | grep -o '"machine":null') $(cat err)" '"machine":null '
rm -r config

timeout 60 fp8-plan llama3-8b --machine h200 --batch-size 2000000 --seq-length 1024 --json >out 2>err </dev/null
is "a batch that no GPU holds is planned without a visit of each block of its logits" "$? $(grep -c '"fits":false' out)" "1 2"

# --- errors
refused() {
  name=$1 line=$2
  shift 2
  plan "$@" >out 2>err </dev/null
  is "$name" "$? $(cat err)" "2 fp8-plan: $line"
}
refused "a machine that does not exist" "h1000: neither a file nor a machine (b200, gb200, h100-sxm, h200)" tiny --machine h1000
refused "a mesh that does not divide" "--tp 4: does not make 6 ranks; 4 or 8 ranks fit" tiny --ranks 6 --tp 4
refused "a question that needs a machine" "--fit: needs --machine" tiny --fit
refused "a key that the machine does not have" "--set machine.memry=1: needs KEY=VALUE with a key of the machine's file, as gemm.bf16.rate (did you mean machine.memory?)" tiny --machine h200 --set machine.memry=1
refused "a key of a checkpoint" "--set: vocab_size=3: m.h5 is a checkpoint" m.h5 --set vocab_size=3
refused "sizes beyond all bounds" "--batch-size: 1000000000 sequences of 1048576 tokens, 2147483647 tokens at most" 405b.json --batch-size 1000000000 --seq-length 1048576
refused "a step that no number counts" "the sequences of a step: too large" tiny --machine h200 --ranks 65536 \
  --grad-accumulation 1000000000000000 --fit
refused "a sweep of no numbers" "--sweep: 'x' is not a number of ranks" tiny --machine h200 --sweep 8,x
refused "more ranks than are planned for" "--ranks: 4294967297 ranks are more than the 65536 that can be planned for" \
  tiny --machine h200 --sweep 1,4294967297
refused "a gain of many plans" "--fit: not together with --require-gain" tiny --machine h200 --fit --require-gain 2
fp8-quantize m.h5 --scaling row -o codes.h5 -q >out 2>err
is "adapters on codes have a plan, without bf16 beside it" \
  "$(of '[[x["recipe"] for x in r], r[0]["ratio_to_bf16"]]' codes.h5 --lora-rank 4 --machine h100-sxm)" "[['rowwise'], None]"
refused "a gain of bf16" "--require-gain: needs a recipe" tiny --machine h200 --precision bf16 --require-gain 2
refused "FP4 where the GPU has none" "--recipe: nvfp4 is not planned for H100 SXM, which has no FP4 GEMMs: its machine file has no gemm.fp4" \
  tiny --machine h100-sxm --recipe tensorwise,nvfp4
refused "for some linears too" "--recipe: nvfp4 is not planned for H200, which has no FP4 GEMMs: its machine file has no gemm.fp4" \
  tiny --machine h200 --recipe '*mlp*=nvfp4'
refused "a recipe of bf16" "--recipe: contradicts --precision bf16" tiny --precision bf16 --recipe rowwise
refused "experts of a dense model" "--imbalance: the model has no experts" tiny --imbalance 2
refused "more stages than layers" "--vp: 2 stages on each of 2 ranks of --pp, of 2 layers" tiny --ranks 2 --pp 2 --vp 2
refused "a picture of another format" "m.gif: the name of a plot must end in .svg or .png" tiny --plot m.gif
refused "a picture that exists" "m.png: exists (use --force to replace it)" tiny --plot m.png
refused "another program" "--as: 'nemo' is not one of megatron, fsdp2" tiny --as nemo
done_testing
