#!/bin/sh
# fp8-eval on ranks that divide linears (--tp): the losses of one rank, each in its place; and what is refused.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
mixture
head -c 3000 text.txt >short.txt && fp8-tokenize short.txt -o d.h5 -f -q >out 2>err
result $? "short data is made"
few="--data d.h5 --seq-length 16"

# same ONE OTHER BOUND: prints the number of records of sequences, whether they come in order, and whether every loss of
# a token, and that of the whole, differs by at most BOUND, relatively
same() {
  python3 -c '
import json, sys
one, other = ([json.loads(line) for line in open(path)] for path in sys.argv[1:3])
bound = float(sys.argv[3])
near = lambda a, b: abs(a - b) <= bound * max(abs(a), 1)
tokens = lambda records: [r for r in records if r["type"] == "sequence"]
print(len(tokens(other)), [r["index"] for r in tokens(other)] == list(range(len(tokens(one)))),
      all(len(a["losses"]) == len(b["losses"]) and all(map(near, a["losses"], b["losses"])) for a, b in zip(tokens(one), tokens(other))),
      [(r["tokens"], r["documents"]) for r in one if r["type"] == "eval"] == [(r["tokens"], r["documents"]) for r in other if r["type"] == "eval"],
      all(near(a["loss"], b["loss"]) for a, b in zip(one, other) if a["type"] == "eval"))' "$@"
}

# --- fp32: every loss of a token; documents of their own lengths with a mask, and joined ones. Each kind of mesh once, or with each model
for i in $(seq 1 40); do
  printf '{"messages":[{"role":"user","content":"%s"},{"role":"assistant","content":"%s"}]}\n' \
    "$(head -c $((i % 17 + 3)) text.txt | tr -c '[:lower:]' a)" $i
done >chat.jsonl
sed 's/<|im_start|>/S/g; s/<|im_end|>/E/g' "$FP8_SHARE/templates/chatml.json" >template.json
fp8-tokenize chat.jsonl --template template.json --tokenizer "$FP8_SHARE/tokenizers/shakespeare" --pack 48 -o packed.h5 -q >out 2>err &&
  fp8-init tiny --set vocab_size=1000 -o p.h5 -q >out 2>err
result $? "packed conversations are made"
for way in "m.h5 d.h5 16" "p.h5 packed.h5 48" "x.h5 d.h5 16"; do
  model=${way%% *} rest=${way#* }
  data="--data ${rest% *} --seq-length ${rest#* } --precision fp32 --batch-size 7"
  evaluate 1 $model one $data --per-token
  sequences=$(grep -c '"type":"sequence"' one)
  for mesh in "2 --tp 2" "4 --tp 2" "4 --tp 4" "4 --tp 2 --dp-replicate 2" $([ $model = x.h5 ] && echo "4_--tp_2_--ep_4"); do
    mesh=$(echo "$mesh" | tr _ ' ')
    case "$model $mesh" in "m.h5 4 --tp 4" | "p.h5 "*replicate* | "x.h5 2 --tp 2" | *ep*) ;; *) long || continue ;; esac
    evaluate ${mesh%% *} $model many $data --per-token ${mesh#* }
    is "$way, $mesh: the losses of the tokens are those of one rank" "$? $(same one many 1e-6)" "0 $sequences True True True True"
  done
done
is "documents of a sequence are separate" "$(mpirun -n 4 fp8-eval p.h5 --data packed.h5 --tp 4 -q 2>err | field documents -)" '"separate"'

# --- FP8: within what another order of sums changes, and the same GEMMs
for recipe in tensorwise rowwise rowwise_with_gw_hp current delayed mxfp8; do
  evaluate 1 m.h5 one $few --precision fp8 --recipe $recipe
  evaluate 2 m.h5 many $few --precision fp8 --recipe $recipe --tp 2
  is "$recipe: the loss is within the spread of the recipe" "$? $(same one many 1e-3) $(field fp8_flop_share many)" \
    "0 0 True True True True $(field fp8_flop_share one)"
done
# With f32 activations and one batch, only the order of sums in f32 differs, and all scales are those of one rank.
for recipe in tensorwise rowwise delayed; do
  [ $recipe != tensorwise ] || long || continue
  exact="$few --precision fp8 --recipe $recipe --activations f32 --batch-size 4000"
  evaluate 1 m.h5 one $exact --fp8-lm-head
  evaluate 4 m.h5 many $exact --fp8-lm-head --tp 4
  is "$recipe: with f32 activations the loss is that of one rank" "$? $(same one many 2e-6)" "0 0 True True True True"
done

# --- a run on another mesh, with delayed scales that the checkpoint has, and several recipes in turn
mpirun -n 2 fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 8 --steps 3 --precision fp8 --recipe delayed --tp 2 --out run -q >log \
  2>err </dev/null
evaluate 1 run one $few --precision fp8 --recipe delayed
evaluate 4 run many $few --precision fp8 --recipe delayed --tp 4
is "a checkpoint of tp 2 is evaluated with tp 4" "$? $(same one many 1e-3)" "0 0 True True True True"
evaluate 2 run many $few --precision fp8 --recipe bf16,tensorwise,rowwise --tp 2
is "several recipes are evaluated in turn" "$? $(grep -c '"type":"eval"' many)" "0 3"

# --- what does not fit is refused by name
while IFS='|' read -r n flags expected; do
  mpirun -n "$n" fp8-eval --data d.h5 --seq-length 16 -q $flags >out 2>refusal </dev/null
  is "$n ranks with $flags: status 2" $? 2
  is "$n ranks with $flags: one line says why" "$(grep '^fp8-eval' refusal)" "fp8-eval: $expected"
done <<'EOF'
1|m.h5 --tp 2|--tp 2: does not make 1 rank; start several ranks, as with mpirun -n 2 fp8-eval
3|m.h5 --tp 2|--tp 2: does not make 3 ranks; 2 or 4 ranks fit
3|m.h5 --tp 3|--tp 3: the model has 4 heads, which it does not divide; --tp 1 fits
2|m.h5 --dp-replicate 2 --tp 2|--dp-replicate 2 times --tp 2: does not make 2 ranks; 4 ranks fit
2|m.h5 --ep 2|--ep: m.h5 has no experts
2|x.h5 --ep 8|--ep 8: x.h5 has 7 experts, and each part needs one; --ep 2 fits
2|m.h5 --tp 2 --seq-length 1|--tp 2: the smallest pass has 1 token, and each rank needs one; --tp 1 fits
EOF
done_testing
