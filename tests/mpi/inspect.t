#!/bin/sh
# fp8-inspect and --tensor-stats-every under mpirun: the figures are those of one rank.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"

# differences FILE FILE: compares records; prints `weights` if a figure of a weight differs, and every figure of which the
# relative difference, of a share the difference, is above 1e-3, also among those of --blocks; and the number of records.
differences() {
  python3 -c '
import json, sys
one, other = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
print(len(one) - len(other), len(one) > 100)
def flat(record):
    blocks = record.get("blocks", {})
    for name, values in blocks.items():
        for i, v in enumerate(values if isinstance(values, list) else []):
            record["blocks %d %s" % (i, name)] = v
    record["blocks count"] = float(blocks.get("count", 0))
    return record

for a, b in zip(map(flat, one), map(flat, other)):
    figures = [k for k in a if isinstance(a[k], float)]
    if a.get("operand") == "weight" and any(a[k] != b[k] for k in figures):
        print("weights", a["linear"], a["gemm"])
    for k in ("elements", "scales"):
        if a.get(k) != b.get(k):
            print(k, a["linear"], a["gemm"], a["operand"], a[k], b[k])
    for k in figures:
        d = abs(a[k] - b[k]) / (1 if k.endswith("share") else abs(a[k]) + 1e-30)
        if d > 1e-3:
            print(k, a.get("linear"), a.get("gemm"), a.get("operand"), a[k], b[k])
' "$1" "$2"
}

for recipe in tensorwise rowwise delayed; do
  fp8-inspect m.h5 --data d.h5 --seq-length 32 --batch-size 12 --recipe $recipe --json >one 2>err
  for n in 2 3 4; do
    case $recipe$n in tensorwise2 | rowwise3 | delayed4) ;; *) long || continue ;; esac
    mpirun -n $n fp8-inspect m.h5 --data d.h5 --seq-length 32 --batch-size $((12 / n)) --recipe $recipe --json >many 2>err
    is "$recipe on $n ranks: figures of weights are equal, the others within 1e-3" "$? $(differences one many)" "0 0 True"
  done
done
mpirun -n 2 fp8-inspect m.h5 --data d.h5 --seq-length 32 --batch-size 6 --fp8-lm-head --recipe blockwise --no-fp8-all-gather --layers 'lm_head*' \
  >out 2>err
is "the LM head is inspected, as a table" "$? $(wc -l <out) $(awk '{ print $1 }' out | sort -u | tr '\n' ' ')" "0 6 linear lm_head.weight "
# Blocks of 128 tokens end where the tokens of a rank end, so each rank has a multiple of 128.
for recipe in tensorwise rowwise blockwise mxfp8; do
  fp8-inspect m.h5 --data d.h5 --seq-length 32 --batch-size 16 --recipe $recipe --blocks --json >one 2>err
  for n in 2 4; do
    case $recipe$n in tensorwise2 | rowwise4 | blockwise4 | mxfp82) ;; *) long || continue ;; esac
    mpirun -n $n fp8-inspect m.h5 --data d.h5 --seq-length 32 --batch-size $((16 / n)) --recipe $recipe --blocks --json >many 2>err
    is "$recipe on $n ranks with --blocks: the same" "$? $(grep -c '"blocks":{"count":[1-9]' many) $(differences one many)" \
      "0 $(grep -c '"type":"operand"' one) 0 True"
  done
done

# --- the recommendation
# loss_of WORDS...: the loss of the first step of fp8-step on two ranks
loss_of() {
  rm -rf first
  mpirun -n 2 fp8-step m.h5 --data d.h5 --seq-length 32 --batch-size 6 --sampler sequential --steps 1 --out first -q "$@" 2>err |
    field loss /dev/stdin
}
bf16=$(loss_of --precision bf16)
for recipe in tensorwise delayed rowwise; do
  [ $recipe = delayed ] || long || continue
  mpirun -n 2 fp8-inspect m.h5 --data d.h5 --seq-length 32 --batch-size 6 --recipe $recipe --recommend 2e-4 -o chosen.json -f --json >advice 2>err
  is "$recipe on two ranks: fp8-step has the change of the loss that is recommended" "$? $(python3 -c '
import json, sys
change = json.loads(open("advice").readlines()[-1])["loss_change"]
print(change != 0, abs(float(sys.argv[2]) - float(sys.argv[1]) - change) < 1e-6)' "$bf16" "$(loss_of --config chosen.json)")" "0 True True"
done

flags="--data d.h5 --seq-length 32 --recommend 2e-4 -o chosen.json -f --json"
fp8-inspect m.h5 $flags --batch-size 6 >one 2>err && mpirun -n 2 fp8-inspect m.h5 $flags --batch-size 3 >many 2>err
is "two ranks round each sequence as one does" "$? $(python3 -c '
import json
one, many = ([x for x in map(json.loads, open(path)) if x["type"] == "group"] for path in ("one", "many"))
print(len(one), [x for x, y in zip(one, many) for key in ("loss_change", "standard_error")
                if abs(x[key] - y[key]) > 1e-9 or x["sequences"] != 6])')" "0 8 []"

# --- bisection
bisect="--data d.h5 --seq-length 32 --json"
fp8-inspect m.h5 $bisect --batch-size 8 --bisect '--precision bf16' --against '--precision fp8 --recipe rowwise_with_gw_hp' >one 2>err
mpirun -n 2 fp8-inspect m.h5 $bisect --batch-size 4 --bisect '--precision bf16' --against '--precision fp8 --recipe rowwise_with_gw_hp' >many 2>err
is "two ranks compare the operations of one" "$? $(python3 -c '
import json
one, many = ([json.loads(line) for line in open(path)] for path in ("one", "many"))
print(len(one) == len(many),
      all(a.get("operation") == b.get("operation") and
          abs(a.get("relative_difference", 0) - b.get("relative_difference", 0)) < 0.01 for a, b in zip(one, many)))')" "0 True True"
mpirun -n 2 fp8-inspect m.h5 $bisect --batch-size 4 --bisect '--precision fp8 --recipe delayed' --against '--precision fp8 --recipe delayed' \
  --bound 0 >same 2>err
is "equal settings on two ranks give no difference" "$? $(grep -c '"relative_difference":0.0,' same) $(grep -c '"first_above":null' same)" \
  "0 $(grep -c '"type":"operation"' same) 1"
mpirun -n 2 fp8-step m.h5 --data d.h5 --seq-length 32 --batch-size 6 --sampler sequential --steps 2 --out run --precision fp8 --recipe rowwise \
  --tensor-stats-every 2 -q >log 2>err
result $? "fp8-step writes tensor statistics on two ranks"
mpirun -n 2 fp8-inspect run/step-00000002 --data d.h5 --seq-length 32 --batch-size 6 --recipe rowwise --json >sharded 2>err
is "a sharded checkpoint is inspected" "$? $(grep -c '"type":"operand"' sharded)" "0 84"
# scales FILE: the numbers of scales of the operands of q_proj of layer 0, by GEMM: input, weight, gradient.
scales() { grep '"type":"operand","linear":"model.layers.0.self_attn.q_proj' "$1" |
  sed 's/.*"gemm":"\([a-z]*\)","operand":"\([a-z_]*\)".*"scales":\([0-9]*\).*/\1 \2 \3/' | sort | tr '\n' ' '; }
is "ranks of training have scales of their own, which add up" "$(scales run/tensors.jsonl)" \
  "dgrad grad_output 384 dgrad weight 64 forward input 384 forward weight 64 wgrad grad_output 128 wgrad input 128 "
mpirun -n 2 fp8-step m.h5 --data d.h5 --seq-length 32 --batch-size 6 --steps 1 --out delayed --precision fp8 --recipe delayed \
  --tensor-stats-every 1 -q >log 2>err
is "and in recipe delayed they share them" "$? $(scales delayed/tensors.jsonl)" \
  "0 dgrad grad_output 1 dgrad weight 1 forward input 1 forward weight 1 wgrad grad_output 1 wgrad input 1 "
is "the statistics have a record for each operand and GEMM of the step" "$(grep -c '"step":2}$' run/tensors.jsonl) $(wc -l <run/tensors.jsonl)" \
  "126 126"

# --- mixtures of experts, with sequences so short that a rank has experts without rows
fp8-init qwen3-moe-tiny -o qwen.h5 >out 2>err
moe="--data d.h5 --seq-length 4 --json"
fp8-inspect qwen.h5 $moe --batch-size 6 --recipe delayed --blocks >one 2>err
for mesh in 2 3 "2 --ep 2"; do
  n=${mesh%% *}
  mpirun -n $n fp8-inspect qwen.h5 $moe --batch-size $((6 / n)) --recipe delayed --blocks ${mesh#"$n"} >many 2>err
  is "experts on ranks $mesh: the same linears, rows and figures of weights" "$? $(python3 -c '
import json
one, many = ([json.loads(line) for line in open(path)] for path in ("one", "many"))
key = lambda x: [x.get(k) for k in ("type", "linear", "gemm", "operand", "elements", "scales")]
weights = [(a, b) for a, b in zip(one, many) if a.get("operand") == "weight"]
print(len(one) > 300, [key(x) for x in one] == [key(x) for x in many],
      all(a[k] == b[k] for a, b in weights for k in ("sqnr_db", "amax", "scale", "underflow_share", "blocks")),
      *(max(abs(a["relative_error"] - b["relative_error"]) for a, b in zip(one, many) if a.get("gemm") == gemm and a["type"] == "gemm") < bound
        for gemm, bound in (("forward", 1e-6), ("dgrad", 1e-6), ("wgrad", 3e-2))))')" \
          "0 True True True True True True" # each rank has a product of its own in wgrad
done
mpirun -n 3 fp8-inspect qwen.h5 $moe --batch-size 2 --routes fp32 >many 2>err
is "routes are those of all ranks, in bf16 the same" "$? $(python3 -c '
import json
r = [x for x in map(json.loads, open("many")) if x["type"] == "routes"]
print([(x["recipe"], x["layer"], x["tokens"]) for x in r])')" "0 [('bf16', 1, 24), ('bf16', 2, 24), ('tensorwise', 1, 24), ('tensorwise', 2, 24)]"
fp8-inspect qwen.h5 $moe --batch-size 6 --recipe rowwise_with_gw_hp --routes bf16 >one 2>err
mpirun -n 2 fp8-inspect qwen.h5 $moe --batch-size 3 --recipe rowwise_with_gw_hp --routes bf16 >many 2>err
is "and equal to those of one rank" "$? $(grep '"type":"routes"' many | sed 's/,"time".*//')" "0 $(grep '"type":"routes"' one | sed 's/,"time".*//')"
measures="--data d.h5 --seq-length 32 --recommend 1 --sensitivity --layers *layers.2.mlp.experts* -o chosen.json -f --json"
mpirun -n 2 fp8-inspect qwen.h5 $measures --batch-size 2 >advice 2>err
is "the experts of a layer are measured together on two ranks" "$? $(grep -c '"type":"sensitivity"' advice) $(grep -c '"type":"group"' advice)" \
  "0 9 2"

# Ranks that share experts compute all rows of an expert together, as one rank does:
# its figures, and what FP8 does to the loss and to gradients, are equal.
fp8-inspect qwen.h5 $measures --batch-size 4 --blocks --routes bf16 >one 2>err
mpirun -n 2 fp8-inspect qwen.h5 $measures --batch-size 2 --blocks --routes bf16 --ep 2 >many 2>err
is "with --ep 2 the figures, sensitivities, groups, routes and the recommendation are those of one rank" "$? $(python3 -c '
import json
def flat(value, name=""):
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    return {name: value} if not members else {k: v for key, each in members for k, v in flat(each, name + "." + str(key)).items()}
own = {".time", ".batch_size", ".fp8_gemms", ".bf16_gemms"}  # of a rank, or summed over ranks that repeat GEMMs of other linears
one, many = ([{k: v for k, v in flat(json.loads(line)).items() if k not in own} for line in open(path)] for path in ("one", "many"))
same = lambda a, b: abs(a - b) <= 1e-4 * abs(a) + 1e-7 if isinstance(a, float) and isinstance(b, float) else a == b
print(len(one) > 100, sorted({x[".type"] for x in one}), len(one) - len(many),
      [(x, y.get(k), k) for x, y in zip(one, many) for k in x if not same(x[k], y.get(k))][:1])')" \
  "0 True ['gemm', 'group', 'inspect', 'operand', 'recommendation', 'routes', 'sensitivity'] 0 []"
mpirun -n 2 fp8-step qwen.h5 --data d.h5 --seq-length 4 --batch-size 1 --steps 2 --out experts --precision fp8 --tensor-stats-every 1 -q >log 2>err
is "fp8-step writes statistics of experts of which ranks have no rows" \
  "$? $(grep -c '"type":"gemm".*experts.*"step":2}$' experts/tensors.jsonl | awk '{ print ($1 > 30) }')" "0 1"

done_testing
