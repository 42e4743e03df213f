#!/bin/sh
# What runs on ranks that divide linears (--tp) show of themselves: statistics of FP8 operands,
# in fp8-step and fp8-inspect, text that the model continues,
# evaluations and profiles. tp_eval.t has fp8-eval.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1

# differences FILE FILE [BOUND]: the number of records if it is the same;
# then a line for each count that differs, each figure of a weight, and each figure of
# which the relative difference, of a share the difference, is above the bound, 1e-3
differences() {
  python3 -c '
import json, sys
def flat(record):
    for name, values in record.pop("blocks", {}).items():
        for i, v in enumerate(values if isinstance(values, list) else [values]):
            record["blocks %s %d" % (name, i)] = v
    return record
bound = float(sys.argv[3])
one, other = ([flat(r) for r in map(json.loads, open(path)) if r["type"] in ("operand", "gemm")] for path in sys.argv[1:3])
print(len(one) if len(one) == len(other) else "different records")
for a, b in zip(one, other):
    where = [a.get(k) for k in ("linear", "gemm", "operand")]
    if set(a) != set(b) or where != [b.get(k) for k in ("linear", "gemm", "operand")]:
        print("other members", where)
    for k in a:
        exact = k in ("elements", "scales", "format", "granularity", "blocks count 0") or (
            a.get("operand") == "weight" and "sqnr_db" not in k and k != "time")
        if exact and a[k] != b.get(k):
            print(k, where, a[k], b.get(k))
        elif isinstance(a[k], float):
            d = abs(a[k] - b[k]) / (1 if "share" in k else abs(a[k]) + 1e-30)
            if d > (0.1 if k == "dynamic_range" else bound) and k != "blocks amax 0":  # the smallest element is what rounding left of a difference
                print(k, where, a[k], b[k])
' "$1" "$2" "${3:-1e-3}" 2>/dev/null | head -n 3
}

# --- statistics count each element once
step() {
  n=$1 out=$2
  shift 2
  rm -rf "$out"
  mpirun -n "$n" fp8-step m.h5 --data d.h5 --seq-length 32 --sampler sequential --steps 1 --precision fp8 --activations f32 --tensor-stats-every 1 \
    --timeout 60 --out "$out" -q "$@" >log 2>err </dev/null
}
for recipe in rowwise tensorwise rowwise_with_gw_hp delayed "rowwise --rowwise-single-copy --fp8-lm-head"; do
  step 1 one --batch-size 8 --recipe $recipe
  for way in "2 --batch-size 8 --tp 2" "4 --batch-size 8 --tp 4"; do
    case "$recipe $way" in tensorwise*2 | *hp*2 | "rowwise 4 "* | delayed*2 | *single*2) ;; *) long || continue ;; esac
    step ${way%% *} many ${way#* } --recipe $recipe
    is "$recipe, $way: the statistics are those of one rank" "$? $(differences one/tensors.jsonl many/tensors.jsonl)" "0 $(wc -l <one/tensors.jsonl)"
  done
done
step 2 one --batch-size 4 --recipe rowwise
step 4 many --batch-size 4 --recipe rowwise --tp 2
is "two parts of the samples have the statistics that they have without --tp" "$? $(differences one/tensors.jsonl many/tensors.jsonl)" \
  "0 $(wc -l <one/tensors.jsonl)"

# --- fp8-inspect
rm -rf one many
inspect() { mpirun -n "$@" --data d.h5 --seq-length 32 --activations f32 --timeout 60 --json -q 2>err </dev/null; }
for recipe in rowwise tensorwise delayed; do
  inspect 1 fp8-inspect m.h5 --recipe $recipe --batch-size 8 >one
  for way in "2 8 --tp 2" "4 4 --tp 2" "4 4 --tp 2 --dp-replicate 2"; do
    case "$recipe $way" in "rowwise 2 "* | "tensorwise 4 4 --tp 2" | delayed*replicate*) ;; *) long || continue ;; esac
    rest=${way#* }
    inspect ${way%% *} fp8-inspect m.h5 --recipe $recipe --batch-size $rest >many
    is "fp8-inspect, $recipe on $way: the figures are those of one rank" "$? $(differences one many)" "0 $(grep -c -E '"type":"(operand|gemm)"' one)"
  done
  near_values "and the loss" "$(field loss many)" "$(field loss one)"
done
# The heads of w.h5 end where blocks of 128 do; its MLP has five blocks, and the last one is smaller.
# Another code of one element moves the figures of its block
# by up to a hundredth.
fp8-init tiny --set hidden_size=64 --set num_attention_heads=4 --set num_key_value_heads=2 --set head_dim=128 --set intermediate_size=576 -o w.h5 \
  -q >out 2>err
for way in "long: m rowwise 2 8" "long: m tensorwise 4 4" "w blockwise 4 4"; do
  chosen "$way" || continue
  set -- $way
  inspect 1 fp8-inspect $1.h5 --recipe $2 --batch-size 8 --blocks >one
  inspect $3 fp8-inspect $1.h5 --recipe $2 --batch-size $4 --blocks --tp 2 >many
  is "$2 on $3 ranks with --blocks: the same" "$? $(grep -c '"blocks":{"count":[1-9]' many) $(differences one many 0.05)" \
    "0 $(grep -c '"type":"operand"' one) $(grep -c -E '"type":"(operand|gemm)"' one)"
done
# What is measured of linears with and without FP8 counts each sequence and each gradient once;
# with --tp 4, two ranks have the same key and value head.
# measured FILE FILE: the number of records, then each figure that differs by more than a tenth of the largest of its kind, or a fiftieth for
# differences of gradients
measured() {
  python3 -c '
import json, sys
one, other = ([r for r in map(json.loads, open(path)) if r["type"] in ("sensitivity", "group", "recommendation")] for path in sys.argv[1:])
print(len(one) if len(one) == len(other) else "different records")
figures = ("loss", "loss_change", "standard_error", "cosine", "relative_l2", "sum", "noise")
others = ("type", "linear", "linears", "gemm", "recipe", "sequences", "limit", "skip", "fp8_linears", "groups")
most = {k: max([abs(r[k]) for r in one if k in r], default=0) for k in figures}
for a, b in zip(one, other):
    where = [a.get(k) for k in ("type", "linear", "linears", "gemm")]
    for k in a:
        near = 0.02 * a[k] if k == "relative_l2" else 0.1 * most.get(k, 0)
        if k in figures and abs(a[k] - b[k]) > near or k in others and a[k] != b.get(k):
            print(k, where, a[k], b.get(k))
' "$1" "$2" | head -n 3
}
for way in "tensorwise 4 8 --tp 4" "long: rowwise 4 4 --tp 2 --dp-replicate 2"; do
  chosen "$way" || continue
  recipe=${way%% *} rest=${way#* }
  mesh=${rest#* }
  inspect 1 fp8-inspect m.h5 --recipe $recipe --batch-size 8 --sensitivity --recommend 1 --layers 'model.layers.1.*' -o one.json -f >one
  inspect ${rest%% *} fp8-inspect m.h5 --recipe $recipe --batch-size $mesh --sensitivity --recommend 1 \
    --layers 'model.layers.1.*' -o many.json -f >many
  is "$way: sensitivities and the recommendation are those of one rank" "$? $(measured one many)" "0 26"
  ok "$way: the recommended configuration is that of one rank" cmp one.json many.json
done
mpirun -n 2 fp8-inspect m.h5 --data d.h5 --seq-length 32 --tp 2 --bisect '--precision bf16' --against '--precision fp8' >out 2>refusal </dev/null
is "fp8-inspect refuses --bisect with --tp by name" "$? $(grep '^fp8-inspect' refusal)" "2 fp8-inspect: --bisect: not with --tp"

# --- text, evaluations and a profile of a run
watched() {
  n=$1 out=$2
  shift 2
  rm -rf "$out"
  mpirun -n "$n" fp8-step m.h5 --data d.h5 --seq-length 16 --steps 4 --lr 1e-2 --sample-every 2 --sample-prompt 'the king' --sample-tokens 12 \
    --eval-data d.h5 --eval-every 2 --eval-batches 2 --timeout 60 --out "$out" "$@" >"$out.log" 2>"$out.err" </dev/null
}
texts() { grep '"type":"sample"' "$1" | sed 's/,"seconds".*//'; }
for precision in "fp32" "fp8 --activations f32 --recipe rowwise --fp8-lm-head"; do
  watched 1 one --batch-size 8 --precision $precision
  for many in four two; do
    case "$precision $many" in fp32*four | fp8*two) ;; *) long || continue ;; esac
    if [ $many = four ]; then
      profile=
      if long; then profile="--profile 2"; fi # it measures the machine; ranks.t and pp.t have profiles
      watched 4 four --batch-size 4 --tp 2 --precision $precision $profile
      [ -z "$profile" ] || is "$precision, four ranks: there is a profile" \
        "$(find four -name 'profile-*.json' | wc -l) $(grep -c 'where the time goes' four.err)" "1 1"
    else
      watched 2 two --batch-size 8 --tp 2 --precision $precision
    fi
    is "$precision, $many ranks: the text is that of one rank" "$(texts $many.log)" "$(texts one.log)"
  done
  [ "$precision" = fp32 ] && near_values "the evaluations are those of one rank" "$(evaluations four.log)" "$(evaluations one.log)"
  is "$precision: text was sampled twice" "$(texts one.log | wc -l)" 2
done

# --- experts, where ranks have a row more than others: passes of experts are planned alike
mixture
for way in "2 --tp 2 --ep 2 --seq-length 15" "long: 4 --tp 4 --ep 4 --seq-length 7"; do
  chosen "$way" || continue
  rm -rf one many
  mpirun -n ${way%% *} fp8-step x.h5 --data d.h5 --batch-size 1 --steps 4 --precision fp32 --expert-rows 1 --timeout 20 --out many -q ${way#* } \
    >many.log 2>err </dev/null
  fp8-step x.h5 --data d.h5 --batch-size 1 --steps 4 --precision fp32 --out one -q --seq-length ${way##* } >one.log 2>err </dev/null
  near "$way: tokens that the ranks do not divide" many.log one.log 1e-6
done
inspect 1 fp8-inspect x.h5 --recipe rowwise_with_gw_hp --batch-size 8 --routes bf16 >routes.one
inspect 4 fp8-inspect x.h5 --recipe rowwise_with_gw_hp --batch-size 4 --routes bf16 --tp 2 >routes.many
is "routes are those of one rank" "$? $(grep '"type":"routes"' routes.many | sed 's/,"time".*//')" \
  "0 $(grep '"type":"routes"' routes.one | sed 's/,"time".*//')"
done_testing
