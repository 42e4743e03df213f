#!/bin/sh
# What runs on ranks that divide linears (--tp) show of themselves: statistics of FP8 operands, in fp8-step and fp8-inspect, text that the model continues,
# evaluations and profiles. tp_eval.t has fp8-eval.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1

# differences FILE FILE: the number of records if it is the same; then a line for each count that differs, each figure of a weight, and each figure of which
# the relative difference, of a share the difference, is above 1e-3
differences() {
  python3 -c '
import json, sys
one, other = ([r for r in (json.loads(line) for line in open(path)) if r["type"] in ("operand", "gemm")] for path in sys.argv[1:])
print(len(one) if len(one) == len(other) else "different records")
for a, b in zip(one, other):
    where = [a.get(k) for k in ("linear", "gemm", "operand")]
    if set(a) != set(b) or where != [b.get(k) for k in ("linear", "gemm", "operand")]:
        print("other members", where)
    for k in a:
        exact = k in ("elements", "scales", "format", "granularity") or (a.get("operand") == "weight" and k not in ("sqnr_db", "time"))
        if exact and a[k] != b.get(k):
            print(k, where, a[k], b.get(k))
        elif isinstance(a[k], float):
            d = abs(a[k] - b[k]) / (1 if k.endswith("share") else abs(a[k]) + 1e-30)
            if d > (0.1 if k == "dynamic_range" else 1e-3):  # the smallest element is what rounding left of a difference
                print(k, where, a[k], b[k])
' "$1" "$2" | head -n 3
}

# --- statistics count each element once
step() {
  n=$1 out=$2
  shift 2
  rm -rf "$out"
  mpirun -n "$n" fp8-step m.h5 --data d.h5 --seq-length 32 --sampler sequential --steps 1 --precision fp8 --activations f32 --tensor-stats-every 1 --timeout 60 --out "$out" -q "$@" \
    >log 2>err </dev/null
}
for recipe in rowwise tensorwise rowwise_with_gw_hp delayed "rowwise --rowwise-single-copy --fp8-lm-head"; do
  step 1 one --batch-size 8 --recipe $recipe
  for way in "2 --batch-size 8 --tp 2" "4 --batch-size 8 --tp 4"; do
    step ${way%% *} many ${way#* } --recipe $recipe
    is "$recipe, $way: the statistics are those of one rank" "$? $(differences one/tensors.jsonl many/tensors.jsonl)" "0 $(wc -l <one/tensors.jsonl)"
  done
done
step 2 one --batch-size 4 --recipe rowwise
step 4 many --batch-size 4 --recipe rowwise --tp 2
is "two parts of the samples have the statistics that they have without --tp" "$? $(differences one/tensors.jsonl many/tensors.jsonl)" "0 $(wc -l <one/tensors.jsonl)"

# --- fp8-inspect
rm -rf one many
inspect() { mpirun -n "$@" --data d.h5 --seq-length 32 --activations f32 --timeout 60 --json -q 2>err </dev/null; }
for recipe in rowwise tensorwise delayed; do
  inspect 1 fp8-inspect m.h5 --recipe $recipe --batch-size 8 >one
  for way in "2 8 --tp 2" "4 4 --tp 2" "4 4 --tp 2 --dp-replicate 2"; do
    rest=${way#* }
    inspect ${way%% *} fp8-inspect m.h5 --recipe $recipe --batch-size $rest >many
    is "fp8-inspect, $recipe on $way: the figures are those of one rank" "$? $(differences one many)" "0 $(grep -c -E '"type":"(operand|gemm)"' one)"
  done
  near_values "and the loss" "$(field loss many)" "$(field loss one)"
done
for flag in "--blocks" "--sensitivity" "--recommend 1 -o x.json"; do
  mpirun -n 2 fp8-inspect m.h5 --data d.h5 --seq-length 32 --tp 2 $flag >out 2>refusal </dev/null
  is "fp8-inspect refuses $flag with --tp by name" "$? $(grep '^fp8-inspect' refusal)" "2 fp8-inspect: ${flag%% *}: not with --tp"
done

# --- text, evaluations and a profile of a run
watched() {
  n=$1 out=$2
  shift 2
  rm -rf "$out"
  mpirun -n "$n" fp8-step m.h5 --data d.h5 --seq-length 16 --steps 4 --lr 1e-2 --sample-every 2 --sample-prompt 'the king' --sample-tokens 12 --eval-data d.h5 --eval-every 2 \
    --eval-batches 2 --profile 2 --timeout 60 --out "$out" "$@" >"$out.log" 2>"$out.err" </dev/null
}
texts() { grep '"type":"sample"' "$1" | sed 's/,"seconds".*//'; }
for precision in "fp32" "fp8 --activations f32 --recipe rowwise --fp8-lm-head"; do
  watched 1 one --batch-size 8 --precision $precision
  watched 2 two --batch-size 8 --tp 2 --precision $precision
  watched 4 four --batch-size 4 --tp 2 --precision $precision
  for many in two four; do
    is "$precision, $many ranks: the text is that of one rank" "$(texts $many.log)" "$(texts one.log)"
    is "$precision, $many ranks: there is a profile" "$(find $many -name 'profile-*.json' | wc -l) $(grep -c 'where the time goes' $many.err)" "1 1"
  done
  [ "$precision" = fp32 ] && near_values "the evaluations are those of one rank" "$(evaluations four.log)" "$(evaluations one.log)"
  is "$precision: text was sampled twice" "$(texts one.log | wc -l)" 2
done

# --- experts, where ranks have a row more than others: passes of experts are planned alike
mixture
for way in "2 --tp 2 --ep 2 --seq-length 15" "4 --tp 4 --ep 4 --seq-length 7"; do
  rm -rf one many
  mpirun -n ${way%% *} fp8-step x.h5 --data d.h5 --batch-size 1 --steps 4 --precision fp32 --expert-rows 1 --timeout 20 --out many -q ${way#* } >many.log 2>err </dev/null
  fp8-step x.h5 --data d.h5 --batch-size 1 --steps 4 --precision fp32 --out one -q --seq-length ${way##* } >one.log 2>err </dev/null
  near "$way: tokens that the ranks do not divide" many.log one.log 1e-6
done
done_testing
