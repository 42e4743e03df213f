#!/bin/sh
# A recipe for some linears, --recipe GLOB=NAME: the recipe of each linear is that of a run in which all have it; histories, ranks, resuming,
# configurations, phases, evaluation, inspection, errors.
# shellcheck disable=SC2086 # lists of words on purpose
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
text_size=4000
# shellcheck source=tests/cli/train.sh
. "$SRC/tests/cli/train.sh"
flags="--data d.h5 --seq-length 32 --batch-size 4 --steps 6 --save-every 3 --lr 1e-3 --precision fp8"
train() { # NAME FLAGS...
  name=$1
  shift
  fp8-step m.h5 $flags --out "$name.run" "$@" >"$name" 2>"$name.err"
}
# linears NAME PATTERN: "linear recipe" of the FP8 linears in the run record of NAME whose name matches; "-" for that of the run
linears() { head -1 "$1" | python3 -c 'import json, re, sys
for l in json.load(sys.stdin)["linears"]:
    if l["precision"] == "fp8" and re.search(sys.argv[1], l["name"]): print(l["name"].split(".", 2)[-1], l.get("recipe", "-"))' "$2"; }

# --- every linear by a glob: the bits are those of the recipe alone, with another recipe as that of the run
for recipe in tensorwise rowwise rowwise_with_gw_hp current delayed blockwise mxfp8 nvfp4; do
  other=rowwise
  [ $recipe != rowwise ] || other=delayed
  train "one.$recipe" --recipe $recipe
  train "all.$recipe" --recipe $other --recipe "*_proj=$recipe"
  same_bits "all linears in $recipe by a glob: the losses are those of --recipe $recipe" "all.$recipe" "one.$recipe"
  is "all linears in $recipe by a glob: as many FP8 GEMMs" "$(field fp8_gemms "all.$recipe")" "$(field fp8_gemms "one.$recipe")"
done
train pow2 --recipe tensorwise --power-of-2-scales
train all.pow2 --recipe rowwise --recipe '*_proj=tensorwise' --power-of-2-scales
same_bits "--power-of-2-scales acts on recipes of linears" all.pow2 pow2
train single --recipe rowwise --rowwise-single-copy
train all.single --recipe tensorwise --recipe '*_proj=rowwise' --rowwise-single-copy
same_bits "--rowwise-single-copy acts on recipes of linears" all.single single

# --- two recipes
mix="--recipe *.down_proj=delayed --recipe current --recipe *.1.mlp.down_proj=blockwise"
train mix $mix
is "the last glob that matches gives the recipe" "$(linears mix 'down_proj|o_proj')" "$(printf '%s\n' '0.self_attn.o_proj.weight -' \
  '0.mlp.down_proj.weight delayed' '1.self_attn.o_proj.weight -' '1.mlp.down_proj.weight blockwise')"
ok "records name all recipes in the form of the flag" grep -q '"recipe":"current,\*.down_proj=delayed,\*.1.mlp.down_proj=blockwise"' mix
train list --recipe 'current,*.down_proj=delayed,*.1.mlp.down_proj=blockwise'
same_bits "a list in the form of the records is the same" list mix
ok "the table of linears names the recipe" grep -Eq 'down_proj.weight .*recipe delayed' mix.err
[ "$(losses mix)" != "$(losses one.current)" ] && [ "$(losses mix)" != "$(losses one.delayed)" ]
result $? "the recipe of one linear changes the losses"
is "only the linear in delayed has histories" \
  "$(h5ls -r mix.run/step-00000006/* 2>/dev/null | grep -c 'down_proj.*history')$(fp8-info mix.run/step-00000006 2>err | grep -c 'q_proj/input')" "00"
for ranks in 2 4; do
  mpirun -n $ranks fp8-step m.h5 --data d.h5 --seq-length 32 --batch-size $((4 / ranks)) --steps 6 --save-every 3 --lr 1e-3 --precision fp8 $mix \
    --out mix$ranks.run >mix$ranks 2>mix.err
  near "$ranks ranks: the losses are near those of one rank" mix$ranks mix 2e-2
done
train first $mix --until-step 3
mv first first.half
train first $mix
cat first.half first >joined
is "a run that is resumed has the same bits" "$(losses joined)" "$(losses mix)"
same_step "and the same last checkpoint" first.run/step-00000006 mix.run/step-00000006

# --- configurations and phases
fp8-step m.h5 $flags $mix --out x --print-config >mix.json 2>err
is "--print-config prints an array" "$(tr -d ' \n' <mix.json | grep -o '"recipe":[^]]*]')" \
  '"recipe":["*.down_proj=delayed","current","*.1.mlp.down_proj=blockwise"]'
fp8-step m.h5 $flags --recipe rowwise --out x --print-config >one.json 2>err
is "--print-config prints a string for one recipe" "$(field recipe one.json)" ' "rowwise"'
fp8-step m.h5 --config mix.json --out config.run >config 2>err
same_bits "a configuration with an array gives the same run" config mix
fp8-step m.h5 --config one.json --out one.run >one 2>err
same_bits "and one with a string" one one.rowwise
printf '%s\n' "3 --precision bf16" "6 --precision fp8 --recipe tensorwise --recipe '*.down_proj=rowwise'" >mix.phases
fp8-resume phases.run --phases mix.phases -- fp8-step m.h5 --data d.h5 --seq-length 32 --batch-size 4 --save-every 3 >phases 2>err
result $? "a phase has recipes of linears"
ok "its records name them" grep -q '"recipe":"tensorwise,\*.down_proj=rowwise"' phases.run/log.jsonl

# --- evaluation and inspection
fp8-eval m.h5 --data d.h5 --seq-length 32 --precision fp8 --recipe rowwise >eval.rowwise 2>err
fp8-eval m.h5 --data d.h5 --seq-length 32 --precision fp8 --recipe '*_proj=rowwise' >eval.glob 2>err
is "fp8-eval: all linears by a glob" "$(field loss eval.glob)" "$(field loss eval.rowwise)"
fp8-inspect m.h5 --data d.h5 --seq-length 32 --recipe tensorwise,blockwise --recipe '*.down_proj=rowwise' --json >inspect 2>err
result $? "fp8-inspect: a glob applies to each recipe that is compared"
is "the records name both" "$(grep '"type":"inspect"' inspect | grep -o '"recipe":"[^"]*"')" \
  "$(printf '%s\n' '"recipe":"tensorwise,*.down_proj=rowwise"' '"recipe":"blockwise,*.down_proj=rowwise"')"
errors() { grep '"type":"gemm"' "$2" | grep "$3" | grep "\"recipe\":\"$1" | grep -o '"relative_error":[0-9.e-]*'; }
fp8-inspect m.h5 --data d.h5 --seq-length 32 --recipe tensorwise --json --layers '*.0.self_attn.q_proj' >alone 2>err
is "linears without a glob are measured as without one" \
  "$(errors tensorwise inspect 'layers.0.self_attn.q_proj' | head -1)" "$(errors tensorwise alone 'layers.0.self_attn.q_proj' | head -1)"

# --- errors
refused "an unknown recipe" "--recipe: 'x' is not one of tensorwise, rowwise" m.h5 $flags --out x --recipe x
refused "an unknown recipe after a glob" "--recipe: 'x' is not one of tensorwise" m.h5 $flags --out x --recipe '*=x'
refused "two recipes in a list" "--recipe: 'rowwise,\*.o_proj=current,current': one recipe is needed, beside it GLOB=NAME" m.h5 $flags --out x \
  --recipe 'rowwise,*.o_proj=current,current'
refused "an empty part of a list" "--recipe: '' is not one of tensorwise" m.h5 $flags --out x --recipe 'rowwise,'
refused "an empty glob" "--recipe: '=rowwise': needs a GLOB" m.h5 $flags --out x --recipe =rowwise
refused "a glob that matches nothing" "recipe nothing=rowwise: matches no linear" m.h5 $flags --out x --recipe nothing=rowwise
refused "a glob that splits q, k, v" \
  "recipe \*\.q_proj=rowwise: model.layers.0.self_attn.q_proj.weight and model.layers.0.self_attn.k_proj.weight have the same input" \
  m.h5 $flags --out x --recipe '*.q_proj=rowwise'
refused "a glob that splits gate, up" "recipe \*\.up_proj=rowwise: .*gate_proj.weight and .*up_proj.weight have the same input" m.h5 $flags --out x \
  --recipe '*.up_proj=rowwise'
refused "sums of an H100 with MX blocks in one linear" "--accumulate: hopper: this chip has no GEMM of --recipe mxfp8" m.h5 $flags --out x \
  --accumulate hopper --recipe '*.o_proj=mxfp8'
fp8-quantize m.h5 --scaling tensor -o codes.h5 >out 2>err
refused "a glob beside FP8 codes" \
  "--recipe: tensorwise,\*\.o_proj=rowwise: codes.h5 holds FP8 codes with one scale each, for which it is tensorwise" \
  codes.h5 --data d.h5 --steps 1 --lora-rank 2 --out x --recipe '*.o_proj=rowwise'
done_testing
