#!/bin/sh
# fp8-inspect on mixtures of experts: records of experts, groups, routes, recommendations, codes, adapters, errors.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
text_size=4200
. "$SRC/tests/cli/train.sh"
data="--data d.h5 --seq-length 32 --batch-size 4"
answering
fp8-init mixtral-tiny -o mixtral.h5 >out 2>err && fp8-init qwen3-moe-tiny -o qwen.h5 >out 2>err
result $? "a Mixtral, and a Qwen3-MoE with a dense layer"

# --- operands and GEMMs
# Linears of attention and of the dense layer, then of experts: model, others, layers, experts.
for case in mixtral:8:2:4 qwen:15:2:8; do
  IFS=: read -r m others layers experts <<END
$case
END
  fp8-inspect $m.h5 $data --json --recipe all --blocks >records 2>err
  is "$m: every expert has records under every recipe" \
    "$? $(cat err) $(figures records \
    '{recipe: len({x["linear"] for x in r if x["type"] == "gemm" and x["recipe"] == recipe}) for recipe in ("tensorwise", "delayed", "mxfp8")}')" \
    "0  {'tensorwise': $((others + 3 * layers * experts)), 'delayed': $((others + 3 * layers * experts)), 'mxfp8': \
$((others + 3 * layers * experts))}"
  is "$m: the rows of all experts are those of the tokens" \
    "$(figures records 'sum(x["elements"] for x in r if x["type"] == "operand" and x["recipe"] == "rowwise" and x["gemm"] == "forward" and '\
'x["operand"] == "input" and ".layers.1." in x["linear"] and ".experts." in x["linear"] and x["linear"].endswith(("w1.weight", '\
'"gate_proj.weight"))) // 64 // 128')" "$(if [ $m = qwen ]; then echo 3; else echo 2; fi)"
  is "$m: errors of products are those of FP8, and those of nvfp4 of FP4" \
    "$(figures records 'all(0.005 < x["relative_error"] / (3 if x["recipe"] == "nvfp4" else 1) < 0.12 for x in r if x["type"] == "gemm" and ".experts." in x["linear"])')" True
  fp8-eval $m.h5 --data d.h5 --seq-length 32 --batch-size 4 --precision fp8 --per-token >each 2>err
  is "$m: the loss is that of the first batch of fp8-eval" "$(figures each '"%.10f" % (sum(sum(x["losses"]) for x in r[:4]) / 128)')" \
    "$(figures records '"%.10f" % r[0]["loss"]')"
done
fp8-inspect qwen.h5 --data d.h5 --seq-length 2 --batch-size 1 --json >few 2>err
is "an expert without rows has no record" \
  "$? $(figures few 'sorted({len({x["linear"].split(".")[5] for x in r if x["type"] == "gemm" and ".layers.%d.mlp.experts" % l in x["linear"]}) '\
'for l in (1, 2)})[-1] < 7')" "0 True"
ok "--layers selects an expert" fp8-inspect qwen.h5 $data --layers '*experts.7.up_proj' --blocks --json
is "and no other" "$(figures out 'sorted({x["linear"] for x in r if x["type"] != "inspect"})')" \
  "['model.layers.1.mlp.experts.7.up_proj.weight', 'model.layers.2.mlp.experts.7.up_proj.weight']"

# --- routes
fp8-inspect qwen.h5 $data --recipe tensorwise,rowwise --routes bf16 --json >routes 2>err
result $? "--routes compares routes"
is "with a record for each layer with experts, after those of the recipe" \
  "$(figures routes '[(x["recipe"], x["reference"], x["layer"], x["tokens"], x["experts_per_token"]) for x in r if x["type"] == "routes"], '\
'r[-1]["type"]')" \
  "([('tensorwise', 'bf16', 1, 128, 3), ('tensorwise', 'bf16', 2, 128, 3), ('rowwise', 'bf16', 1, 128, 3), ('rowwise', 'bf16', 2, 128, 3)], 'routes')"
is "routes of a random mixture differ, and one expert of several more often than all" \
  "$(figures routes 'all(0 < x["differ"] < 0.5 and x["differ"] / 3 <= x["experts_differ"] <= x["differ"] for x in r if x["type"] == "routes")')" True
for m in mixtral qwen; do
  fp8-inspect $m.h5 $data --recipe delayed,rowwise --routes rowwise --json >same 2>err
  is "$m: a recipe has its own routes" \
    "$? $(figures same '[max(x["differ"] for x in r if x["type"] == "routes" and x["recipe"] == recipe) > 0 for recipe in ("delayed", "rowwise")]')" \
    "0 [True, False]"
done
fp8-inspect qwen.h5 $data --routes fp32 >table 2>err
is "fp32 is compared with bf16 too, in the table and in lines" \
  "$? $(grep -c '^ *[12]  *\(bf16\|tensorwise\)  *fp32  *[0-9.]*  *[0-9.]*$' \
  table) $(sed -n 's/^\(bf16\|tensorwise\): [0-9.]* % of the routes have other experts than in fp32; most in layer [12], [0-9.]* %$/\1/p' table |
  tr '\n' ' ')" "0 4 bf16 tensorwise "
is "bf16 differs less from fp32 than FP8 does" \
  "$(fp8-inspect qwen.h5 $data --routes fp32 --json 2>err >exact; figures exact \
  '[sum(x["differ"] for x in r if x["type"] == "routes" and x["recipe"] == n) for n in ("bf16", "tensorwise")]' |
  python3 -c 'a, b = eval(input()); print(a < b / 2)')" True
ok "--activations f32 has routes" fp8-inspect mixtral.h5 $data --activations f32 --routes fp32 --json
fp8-log exact --tensors --top 2 >worst 2>err
is "fp8-log reads the records beside those of routes" "$? $(cat err) $(head -n 1 worst)" \
  "0  step 1, $(grep -c '"type":"\(operand\|gemm\|routes\)"' exact) records"
fp8-log exact --tensors >shown 2>err
is "and shows the routes as fp8-inspect does" "$(grep ' fp32 ' shown | awk '{ print $1, $2, $3, $6 }' | sort)" "1 bf16 fp32 128
1 tensorwise fp32 128
2 bf16 fp32 128
2 tensorwise fp32 128"
ok "they are plotted" fp8-log exact --tensors --plot differ -o routes.svg
fp8-inspect mixtral.h5 $data -q >table 2>err
is "in tables the experts of a layer share a row for each cast" \
  "$? $(grep -c 'experts\.\*\.w1' table) $(grep -c 'experts\.[0-9]' table) $(head -1 table | awk '{ print $1, $2 }')" "0 6 0 linear expert"

# --- sensitivity and recommendation
fp8-inspect qwen.h5 $data --sensitivity --recommend 0 -o skip.json --json >advice 2>err
result $? "--sensitivity and --recommend of a mixture"
is "the experts of a layer with one role are measured together" \
  "$(figures advice '[(x["linear"], x["experts"]) for x in r if x["type"] == "sensitivity" and x["gemm"] == "dgrad" and "layers.2.mlp" in '\
'x["linear"]]')" \
  "[('model.layers.2.mlp.experts.*.gate_proj.weight', 8), ('model.layers.2.mlp.experts.*.up_proj.weight', 8), \
('model.layers.2.mlp.experts.*.down_proj.weight', 8)]"
is "in all GEMMs, as many as a dense model has" \
  "$(figures advice '[sum(x["type"] == "sensitivity" and x["gemm"] == g for x in r) for g in ("forward", "dgrad", "wgrad")]')" "[21, 21, 21]"
is "a layer has a group of gate and up and one of down" \
  "$(figures advice '[len(x["linears"]) for x in r if x["type"] == "group" and "layers.2.mlp" in x["linears"][0]]')" "[16, 8]"
fp8-inspect qwen.h5 $data --sensitivity --layers '*layers.1.mlp.experts.2.*' --json >one 2>err
is "--layers selects experts" \
  "$? $(figures one '{(x["linear"], x["experts"]) for x in r if x["type"] == "sensitivity" and x["gemm"] == "forward"} == '\
'{("model.layers.1.mlp.experts.2.%s_proj.weight" % n, 1) for n in ("gate", "up", "down")}')" "0 True"

# A trained model, of which all down projections of layer 0 lose their weight to an outlier.
fp8-step mixtral.h5 --data d.h5 --seq-length 32 --batch-size 8 --steps 60 --lr 1e-2 --out trained -q >log 2>err &&
  fp8-export trained/step-00000060 -o folder --format bf16 -q >table 2>err
result $? "a mixture is trained"
cat >hurt.py <<'END'
# Gives w2 of all experts of layer 0 a column of 1e6 and clears the row of w3 by which it is multiplied.
import json, struct
data = bytearray(open("folder/model.safetensors", "rb").read())
size = struct.unpack("<Q", data[:8])[0]
for name, t in json.loads(data[8 : 8 + size]).items():
    if not name.startswith("model.layers.0.block_sparse_moe.experts."):
        continue
    begin, cols = 8 + size + t["data_offsets"][0], t["shape"][1]
    places = [r * cols + 7 for r in range(t["shape"][0])] if ".w2." in name else range(7 * cols, 8 * cols) if ".w3." in name else []
    for i in places:
        data[begin + 2 * i : begin + 2 * i + 2] = struct.pack("<f", 1e6 if ".w2." in name else 0)[2:]
open("folder/model.safetensors", "wb").write(data)
END
ok "and hurt" sh -c 'python3 hurt.py && fp8-convert folder -o hurt.h5'
fp8-inspect hurt.h5 --data d.h5 --seq-length 32 --batch-size 16 -q --batches 8 --recommend 1e-3 -o skip.json -f >table 2>err
is "the group is found" "$? $(head -n 3 table | sed 's/; change.*//')" "0 1 group hurts beyond noise
left in bf16: 4, in FP8: 28
  model.layers.0.block_sparse_moe.experts.*.w2.weight (4 linears)"
is "its row of the table has one name" "$(sed -n '/^group/{n;p}' table | awk '{ print $1 }')" "model.layers.0.block_sparse_moe.experts.*.w2"
is "and so has the configuration" "$(python3 -c 'import json; print(json.load(open("skip.json"))["filter"])')" \
  "['model.layers.0.block_sparse_moe.experts.*.w2.weight']"
fp8-step hurt.h5 --data d.h5 --seq-length 32 --config skip.json --steps 2 --out run -q >log 2>err
is "fp8-step reads it" "$? $(grep -c '"type":"step".*"recipe":"tensorwise"' log)" "0 2"
fp8-inspect hurt.h5 --data d.h5 --seq-length 32 --batch-size 16 -q --batches 8 --recommend 1e-3 --recommend-recipe rowwise -o other.json \
  --json >advice 2>err
is "or the experts get another recipe" "$? $(python3 -c 'import json; print(json.load(open("other.json"))["recipe"])')" \
  "0 ['tensorwise', 'model.layers.0.block_sparse_moe.experts.*.w2.weight=rowwise']"

# --- codes and adapters
for scaling in tensor:tensorwise row:rowwise block:blockwise; do
  recipe=${scaling#*:}
  fp8-quantize mixtral.h5 -o $recipe.h5 --scaling ${scaling%:*} >out 2>err
  fp8-inspect $recipe.h5 $data --json --routes $recipe >codes 2>err
  is "$recipe: codes of experts are inspected" \
    "$? $(figures codes '[sum(x["type"] == t for x in r) for t in ("gemm", "routes")], sorted({x["gemm"] for x in r if x["type"] == "gemm"}), '\
'max(x["differ"] for x in r if x["type"] == "routes")')" "0 ([64, 2], ['dgrad', 'forward'], 0.0)"
done
fp8-step qwen.h5 --data d.h5 --seq-length 32 --batch-size 4 --lora-rank 4 --steps 2 --lr 1e-2 --out lora --precision fp8 -q >log 2>err
fp8-inspect lora/step-00000002 $data --json --sensitivity --layers '*experts*' --routes bf16 >adapters 2>err
is "adapters on experts are inspected" "$? $(figures adapters '[sum(x["type"] == t for x in r) for t in ("gemm", "routes", "sensitivity")]')" \
  "0 [96, 2, 12]"

# --- loads, and flags that name routers or the linears of another family
fp8-step mixtral.h5 --data d.h5 --seq-length 32 --batch-size 4 --steps 1 --tensor-stats-every 1 --out loads --filter '*.gate' >log 2>notes
is "a filter of routers has no effect, and a note says so" "$? $(grep -c '^fp8-step: --filter \*.gate: no effect: routers are never FP8$' notes)" \
  "0 1"
is "the CSV of loads has the names of the family" "$(fp8-log loads --tensors --export csv | cut -d, -f2 | sed 1d | sort -u | sed -n '1p;$p')" \
  "model.layers.0.block_sparse_moe.experts.0
model.layers.1.block_sparse_moe.experts.3"
ok "a filter of routers and linears has an effect" fp8-step mixtral.h5 --data d.h5 --seq-length 32 --steps 1 --out x -n --filter '*.gate' \
  --filter '*.w1' --filter '*gate*'
is "of which the note has no word" "$(grep -o -e '--filter.*' err)" "--filter *.gate, *gate*: no effect: routers are never FP8"
status "a target of another family" 2 fp8-step mixtral.h5 --data d.h5 --seq-length 32 --steps 1 --out x --lora-rank 4 --lora-targets q_proj,down_proj
is "the line has the name of this family" "$(cat err)" \
  "fp8-step: --lora-targets: down_proj: matches no linear of a layer of the model (use --lora-targets w2 for that linear of experts)"
is "the linears of all experts share a line of the table" \
  "$(fp8-step mixtral.h5 --data d.h5 --seq-length 32 --steps 1 --out x -n --precision fp8 2>&1 | grep -o 'experts.*' | tr -s ' ')" \
  "experts.*.w1.weight 96x64 x8
experts.*.w3.weight 96x64 x8
experts.*.w2.weight 64x96 x8"

# --- errors
bad() { # NAME REGEX WORDS...
  name=$1 pattern=$2
  shift 2
  status "$name" 2 fp8-inspect "$@"
  is "$name: one line" "$(wc -l <err) $(grep -Ec -e "^fp8-inspect: $pattern" err)" "1 1"
}
bad "a bisection" "mixtral.h5: has experts, whose rows are of other tokens where A and B route differently, " mixtral.h5 $data --bisect '' \
  --against '--precision fp8'
bad "routes and a bisection" "--routes: not together with --bisect" mixtral.h5 $data --bisect '' --against '' --routes bf16
bad "routes of a dense model" "--routes: m.h5 has no experts" m.h5 $data --routes bf16
bad "an unknown precision of routes" "--routes: 'fp16' is not one of bf16, fp32, tensorwise, " mixtral.h5 $data --routes fp16
bad "an empty precision of routes" "--routes: '' is not one of bf16, " mixtral.h5 $data --routes ''
bad "routes of codes in bf16" \
  "rowwise.h5: model.layers.0.*: stored as codes, .*; --routes needs the weights: fp8-quantize rowwise.h5 --dequantize" rowwise.h5 $data -q \
  --routes bf16
bad "routes of codes in another recipe" "--recipe: tensorwise: rowwise.h5 holds FP8 codes" rowwise.h5 $data -q --routes tensorwise
bad "routes in a recipe that the sums do not fit" "--accumulate: hopper" mixtral.h5 $data --routes mxfp8 --accumulate hopper

done_testing
