#!/bin/sh
# fp8-log of mixtures of experts: their losses and loads in summaries, plots and --tensors.
# shellcheck source=tests/cli/lib.sh disable=SC2016 # each shell expands its own variables
. "${SRC:-.}/tests/cli/lib.sh"

# Fields of steps.
for step in 1 2 3 4; do
  printf '{"type":"step","step":%s,"tokens":%s,"loss":2.5,"aux_loss":%s.25,"z_loss":0.5,"expert_load_max":1.5,"expert_idle":%s,"expert_passes":2}\n' $step $((step * 8)) $step $((4 - step))
done >steps.jsonl
is "a summary has the means of the last part" "$(fp8-log steps.jsonl | tr -s ' ' | grep -e '^aux' -e '^z' -e '^load' -e '^idle' -e '^passes')" "aux loss, last part 3.75
z loss, last part 0.5
load, largest / mean 1.5
idle experts 0.5
passes of experts 2"
is "a comparison has them side by side" "$(fp8-log --compare steps.jsonl steps.jsonl | tr -s ' ' | grep -c -e '^aux loss 3.75 3.75' -e '^z loss 0.5 0.5' -e '^load, largest / mean 1.5 1.5' -e '^idle experts 0.5 0.5')" 4
is "a table of three runs has columns of them" "$(fp8-log steps.jsonl steps.jsonl steps.jsonl | tr -s ' ' | head -3 | sed '2d')" "run loss aux loss z loss max load idle passes tokens/s
steps.jsonl 2.5000 3.75 0.5 1.5 0.5 2 -"
sed 's/"aux_loss":[0-9.]*,"z_loss":[0-9.]*,//' steps.jsonl >plain.jsonl
for side in steps plain; do sed '1i {"type":"run","config":{"seed":7}}' $side.jsonl >$side-7.jsonl; sed '1i {"type":"run","config":{"seed":8}}' $side.jsonl >$side-8.jsonl; done
is "so has a comparison of pairs for each side" "$(fp8-log --compare plain-7.jsonl,plain-8.jsonl steps-7.jsonl,steps-8.jsonl | tr -s ' ' | grep -A3 '^side' | grep -v ─)" "side aux loss z loss max load idle passes
A: plain - - 1.5 0.5 2
B: steps 3.75 0.5 1.5 0.5 2"
is "and one of several sides" "$(fp8-log --compare plain.jsonl steps.jsonl steps-7.jsonl | tr -s ' ' | grep -A4 '^side aux' | grep -v ─)" "side aux loss z loss max load idle passes
plain - - 1.5 0.5 2
steps 3.75 0.5 1.5 0.5 2
steps-7 3.75 0.5 1.5 0.5 2"
says "the load is plotted" '^expert_load_max ' fp8-log steps.jsonl --plot expert_load_max
says "CSV has the fields" '^run,step,tokens,precision,recipe,loss,aux_loss,z_loss,expert_load_max,expert_idle,expert_passes$' fp8-log steps.jsonl --export csv
says "so has Prometheus" '^fp8_expert_load_max\{run="steps"\} 1.5$' fp8-log steps.jsonl --export prometheus
status "another factor of a loss is refused with --gate" 2 sh -c 'for x in 0.0 0.01; do { printf "{\"type\":\"run\",\"config\":{\"aux-loss\":%s}}\n" $x; cat steps.jsonl; } >aux-$x.jsonl; done; fp8-log --compare aux-0.0.jsonl aux-0.01.jsonl --gate 1'

# Records of each expert, alone and beside operands.
operand() { # STEP
  printf '{"type":"operand","linear":"model.layers.0.mlp.up_proj.weight","gemm":"forward","operand":"input","recipe":"rowwise","format":"e4m3","nonfinite":0,"amax":1.5,"scale":2.0,"underflow_share":0.001,"saturated_share":0.0,"sqnr_db":31.5,"step":%s}\n' "$1"
}
experts() { # STEP LAYER ROWS
  printf '{"type":"experts","layer":%s,"module":"model.layers.%s.mlp.experts","rows":[%s],"step":%s}\n' "$2" "$2" "$3" "$1"
}
for step in 10 20 30; do experts $step 0 "5,$((step / 10)),$((11 - step / 10)),0"; experts $step 2 4,4,4,3; done >experts.jsonl
is "layers with experts are listed by their largest loads" "$(fp8-log experts.jsonl --tensors | tr -s ' ' | sed 's/ $//')" "3 steps, 10 to 30, 6 records

layer expert largest load at step last idle experts
──────────────────────────────────────────────────────────────
0 2 2.5 10 2 1 of 4
2 0 1.067 10 1.067 0 of 4"
is "--top limits them" "$(fp8-log experts.jsonl --tensors --top 1 | tail -1 | cut -c 1)" 0
is "--json has a record for each layer" "$(fp8-log experts.jsonl --tensors --json | head -1)" '{"type":"experts","layer":0,"experts":4,"steps":3,"load_max":2.5,"load_max_expert":2,"load_max_step":10,"last_load_max":2.0,"last_idle":1}'
is "the load of each expert is drawn in the terminal" "$(fp8-log experts.jsonl --tensors --plot expert_load | sed -n '1p;3,8p')" "load of each expert of a layer, by step
rows over the mean of the layer
               10     20     30
0 expert 0   1.25   1.25   1.25
0 expert 1   0.25    0.5   0.75
0 expert 2    2.5   2.25      2
0 expert 3      0      0      0"
for image in svg png; do
  ok "the load of each expert is drawn as $image" fp8-log experts.jsonl --tensors --plot expert_load -o experts.$image
done
is "an SVG has a row for each expert" "$(grep -c -E '>[02] expert [0-3]<' experts.svg)" 8
{ operand 10; experts 10 0 3,1; } >beside.jsonl
is "a CSV of operands and experts has a column of loads" "$(fp8-log beside.jsonl --tensors --export csv | sed -n '1p;2,$s/.*,//p' | sed 's/.*,//')" "expert_load

1.5
0.5"
is "operands keep their tables beside experts" "$(fp8-log beside.jsonl --tensors | grep -c -e '^model.layers.0.mlp.up_proj.weight ' -e '^layer ')" 3
operand 10 >operands.jsonl
says "a plot of loads without any is refused" '^fp8-log: operands.jsonl: no record of experts' fp8-log operands.jsonl --tensors --plot expert_load -o x.svg
says "a plot of operands without any is refused" '^fp8-log: experts.jsonl: no record has a value of sqnr_db' fp8-log experts.jsonl --tensors --plot sqnr_db -o x.svg

# Operands of experts: one row for those of a layer, whose records stay whole.
for e in 0 1 2; do operand 10 | sed "s/mlp.up_proj/block_sparse_moe.experts.$e.w3/; s/31.5/3$e.5/"; done >many.jsonl
is "experts of a layer share a row, that of the worst" "$(fp8-log many.jsonl --tensors | tr -s ' ' | sed -n '3p;5,6p')" "linear expert gemm operand lowest SQNR, dB
model.layers.0.block_sparse_moe.experts.*.w3.weight 0 forward input 30.5"
is "--json has them all" "$(fp8-log many.jsonl --tensors --json | grep -c '"type":"tensor"')" 3

# Routes of fp8-inspect.
for recipe in bf16 rowwise; do
  for layer in 0 1; do printf '{"type":"routes","recipe":"%s","reference":"fp32","layer":%s,"tokens":128,"experts_per_token":2,"differ":0.%s5,"experts_differ":0.125}\n' $recipe $layer $((layer + ${#recipe})); done
done >routes.jsonl
is "routes are a table" "$(fp8-log routes.jsonl --tensors --top 3 | tr -s ' ' | grep -v ─)" "4 records

layer recipe reference tokens differ, % experts differ, % tokens
1 rowwise fp32 85 12.5 128
0 rowwise fp32 75 12.5 128
1 bf16 fp32 55 12.5 128"
is "their heatmap has recipes as columns" "$(fp8-log routes.jsonl --tensors --plot differ | tr -s ' ' | sed -n '3,6p')" "against fp32
 bf16 rowwise
0 45 75
1 55 85"
ok "and is drawn as an image" fp8-log routes.jsonl --tensors --plot differ -o routes.svg
says "a plot of routes without any is refused" '^fp8-log: operands.jsonl: no record of routes' fp8-log operands.jsonl --tensors --plot differ

# The mesh of a run.
mesh() { # RANKS EP
  printf '{"type":"run","config":{"ep":%s},"experts":16,"mesh":{"dp_replicate":1,"dp_shard":%s,"pp":1,"ep":%s,"tp":1}}\n' "$2" "$1" "$2"
  cat steps.jsonl
}
mesh 1 1 >one.jsonl
mesh 4 2 >four.jsonl
is "a summary has the mesh" "$(fp8-log one.jsonl four.jsonl | tr -s ' ' | grep '^mesh')" "mesh 1 rank dp_shard=4 ep=2"
is "and how many experts there are" "$(fp8-log one.jsonl steps.jsonl | tr -s ' ' | grep '^idle')" "idle experts 0.5 of 16 0.5"
for step in 1 2; do
  printf '{"type":"step","step":%s,"tokens":%s,"loss":2.5,"sent_bytes":2097152,"sent_bytes_tp_bf16":2097152}\n' $step $step
done >>four.jsonl
is "and what its ranks sent" "$(fp8-log one.jsonl four.jsonl | tr -s ' ' | grep '^sent')" "sent in a step - 2 MiB"
is "but not that of one rank" "$(fp8-log one.jsonl steps.jsonl | grep -c '^mesh')" 0
done_testing
