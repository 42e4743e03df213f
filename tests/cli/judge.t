#!/bin/sh
# fp8-judge: planted rollouts are named, by precision, temperature, checkpoint and shift; forms, gates, ranks, errors.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
text_size=6000
. "$SRC/tests/cli/train.sh"
answering

# --- models: two layers of width 256, after 20 and 40 steps, and of another seed; weights in bf16
shape="--set hidden_size=256 --set intermediate_size=256 --set num_attention_heads=4 --set head_dim=64"
train="--data d.h5 --seq-length 32 --batch-size 8 --lr 3e-3 -q"
fp8-init tiny $shape -o a0.h5 -q >out 2>err && fp8-step a0.h5 $train --out run --steps 40 --save-every 20 >log 2>err &&
  fp8-init tiny $shape --seed 7 -o b0.h5 -q >out 2>err && fp8-step b0.h5 $train --out other --steps 40 >log 2>err
result $? "runs to judge"
fp8-export run@40 -o hf -q >out 2>err && fp8-convert hf -o a.h5 -q >out 2>err
result $? "weights in bf16"

# plant CHECKPOINT CHANGE FLAGS: rollouts.jsonl with the losses that fp8-eval gives the first sequences, changed
plant() {
  checkpoint=$1 change=$2
  shift 2
  fp8-eval "$checkpoint" --data d.h5 --seq-length 48 --batch-size 1 --per-token --json -q "$@" >losses 2>err
  python3 - "$change" <<'EOF' >rollouts.jsonl
import json, sys
text, change = open("text.txt", "rb").read(), sys.argv[1]
for record in map(json.loads, open("losses")):
    if record["type"] != "sequence" or record["index"] >= 12:
        continue
    start = 48 * record["index"]
    ids, logprobs = list(text[start:start + 49]), [None] + [-x for x in record["losses"]]
    if change == "late":
        logprobs = [None] + logprobs[:-1]
    if change == "early":
        logprobs = logprobs[1:] + [None]
    if change == "first":
        ids, logprobs = [7] + ids, [None] + logprobs
    print(json.dumps({"ids": ids, "logprobs": logprobs}))
EOF
}
# cooled T: a.T.h5, whose logits are those of a.h5 divided by T
cooled() {
  rm -rf scaled && cp -r hf scaled && python3 - "$1" <<'EOF'
import json, struct, sys
path, factor = "scaled/model.safetensors", 1 / float(sys.argv[1])
data = open(path, "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, data, out = json.loads(data[8:8 + size]), data[8 + size:], bytearray()
for name, entry in sorted(((n, e) for n, e in header.items() if n != "__metadata__"), key=lambda pair: pair[1]["data_offsets"]):
    values = data[slice(*entry["data_offsets"])]
    if name == "model.norm.weight":
        values = b"".join(struct.pack("<f", struct.unpack("<f", b"\0\0" + values[i:i + 2])[0] * factor) for i in range(0, len(values), 2))
        entry["dtype"] = "F32"
    entry["data_offsets"] = [len(out), len(out) + len(values)]
    out += values
header = json.dumps(header).encode()
open(path, "wb").write(struct.pack("<Q", len(header)) + header + out)
EOF
  fp8-convert scaled -o "a.$1.h5" -f -q >out 2>err
}
# judged NAME EXPRESSION FLAGS: the expression over v, the verdict, and names, the candidates that it allows, is true
judged() {
  name=$1 expression=$2
  shift 2
  fp8-judge a.h5 rollouts.jsonl --json -q "$@" >records 2>err
  code=$?
  is "$name" "$code $(figures records "(lambda v: (lambda names: bool($expression))([v['candidate']] + v['equal']))(r[-1])")" "0 True"
}

for way in fp32 bf16 tensorwise rowwise blockwise mxfp8 delayed rowwise/server "long: current" "long: rowwise_with_gw_hp" "long: blockwise/server"; do
  chosen "$way" || continue
  case $way in
    fp32 | bf16) flags="--precision $way" ;;
    */server) flags="--precision fp8 --recipe ${way%/*} --no-power-of-2-scales" ;;
    *) flags="--precision fp8 --recipe $way" ;;
  esac
  plant a.h5 none $flags
  judged "rollouts in $way are named" "v['explained'] and '$way' in names and v['change'] is None and v['k3'] < 1e-12"
done
for way in "0.5 bf16" "0.7 fp32" "1.3 fp32"; do # 0.5 is exact in bf16 too, and a few improbable tokens make the mean k3 at 1
  t=${way% *}
  cooled $t
  plant a.$t.h5 none --precision ${way#* }
  judged "temperature $t in ${way#* } is named" \
    "v['explained'] and v['candidate'] == '${way#* }' and v['change'] == 'temperature' and abs(v['temperature'] - $t) < 0.005" --recipe rowwise
done
sed 's/}$/,"temperature":1.3}/' rollouts.jsonl >stated && mv stated rollouts.jsonl
judged "a temperature that the records state is applied" "v['explained'] and v['candidate'] == 'fp32' and v['change'] is None" --recipe rowwise
plant run@20 none --precision bf16
judged "an earlier checkpoint is not explained" "not v['explained'] and v['candidate'] is None and 'nothing here explains them' in v['text']" \
  --recipe rowwise
judged "--also names it" "v['explained'] and v['candidate'] == 'bf16' and 'step-00000020' in v['checkpoint']" --recipe rowwise --also run@20
plant other none --precision bf16
judged "another seed is not explained" "not v['explained']" --recipe rowwise
plant a.h5 late --precision bf16
judged "log-probabilities that are late" "v['explained'] and v['candidate'] == 'bf16' and v['change'] == 'one token late'" --recipe rowwise
plant a.h5 early --precision bf16
judged "log-probabilities that are early" "v['explained'] and v['candidate'] == 'bf16' and v['change'] == 'one token early'" --recipe rowwise
plant a.h5 first --precision bf16
judged "ids with a token too many in front" "v['explained'] and v['candidate'] == 'bf16' and v['change'] == 'without the first token'" \
  --recipe rowwise

# --- records, gates, sequences, ranks
plant a.h5 none --precision bf16
fp8-judge a.h5 rollouts.jsonl --recipe rowwise,blockwise --worst 3 --json -q >records 2>err
is "candidates, their worst tokens and a verdict" \
  "$? $(figures records "' '.join(x.get('recipe') or x.get('precision') or x['type'] for x in r)")" \
  "0 rollouts fp32 token token token bf16 token token token rowwise token token token blockwise token token token verdict"
is "tokens that are judged and skipped" "$(figures records "[(x['tokens'], x['skipped']) for x in r if x['type'] == 'candidate'][1:3]")" "[(576, 12), (576, 12)]"
is "the largest difference is that of the first token" \
  "$(figures records "[abs(t['d']) == c['max_abs'] and t['position'] == c['max_at']['position'] for c, t in zip(r, r[1:]) if c['type'] == 'candidate']")" \
  "[True, True, True, True]"
fp8-judge a.h5 rollouts.jsonl --recipe rowwise,blockwise --worst 3 --json -q 2>err | sed 's/,"time":"[^"]*"}$/}/' >one
mpirun -n 3 fp8-judge a.h5 rollouts.jsonl --recipe rowwise,blockwise --worst 3 --json -q 2>err | sed 's/,"time":"[^"]*"}$/}/' >three
ok "three ranks print the records of one" cmp one three
fp8-judge a.h5 rollouts.jsonl rollouts.jsonl --sequences 13 --recipe rowwise --json -q >records 2>err
is "files follow each other, and --sequences ends them" "$(figures records "r[0]['sequences'], r[0]['tokens']")" "(13, 624)"
status "a gate passes" 0 fp8-judge a.h5 rollouts.jsonl --recipe rowwise --gate nemo-rl -q
is "and the line says on which candidate" "$(grep -c '^gate nemo-rl: mult_prob_error of rowwise is 1\.0[0-9]*, which passes$' out)" 1
status "a gate fails" 1 fp8-judge a.h5 rollouts.jsonl --recipe rowwise --gate 1e-9 -q
status "a gate bears on bf16 where several recipes are computed" 0 fp8-judge a.h5 rollouts.jsonl --recipe rowwise,blockwise --gate 1e-9 -q
is "the table has the nearest candidate first" "$(sed -n 2p out | awk '{ print $1, $2, $3 }')" "bf16 576 0"
ok "--plot draws" fp8-judge a.h5 rollouts.jsonl --recipe rowwise --plot k3.svg -q
ok "the picture names the candidates" grep -q rowwise k3.svg
status "--plot replaces nothing" 2 fp8-judge a.h5 rollouts.jsonl --plot k3.svg
is "a picture that exists is named" "$(cat err)" "fp8-judge: k3.svg: exists (use --force to replace it)"
fp8-generate a.h5 --ids 72,105 --max-tokens 40 --ignore-end --seed 3 --precision fp32 --logprobs >rollouts.jsonl 2>err
is "fp8-generate --logprobs prints ids, log-probabilities and a mask" \
  "$? $(figures rollouts.jsonl "len(r), r[0]['ids'][:2], len(r[0]['ids']), r[0]['logprobs'][:2], len(r[0]['logprobs']), sum(r[0]['mask'])")" \
  "0 (1, [72, 105], 42, [None, None], 42, 40)"
judged "which the judge explains" "v['explained'] and v['candidate'] == 'fp32'" --recipe rowwise

# --- a quantized checkpoint has the recipe of its codes
fp8-quantize a.h5 --scaling block --power-of-2-scales -o q.h5 -q >out 2>err
plant q.h5 none --precision fp8 --recipe blockwise
fp8-judge q.h5 rollouts.jsonl --json >records 2>err
is "a quantized checkpoint is judged with its codes" \
  "$? $(figures records "r[-1]['explained'], r[-1]['candidate'], [x['recipe'] for x in r if x['type'] == 'candidate']")" "0 (True, 'blockwise', ['blockwise', 'blockwise/server'])"

# --- errors: one line, status 2
plant a.h5 none --precision fp32
{
  fp8-judge a.h5 rollouts.jsonl --json 2>err
  echo $? >status
} | while read -r line; do case $line in *'"type":"rollouts"'*) echo >>rollouts.jsonl ;; esac; done
is "rollouts that change are noticed" "$(cat status) $(cat err)" \
  "2 fp8-judge: rollouts.jsonl: changed while it was read, so candidates read different rollouts"
refused_() { # NAME REGEX WORDS
  name=$1 pattern=$2
  shift 2
  status "$name: status 2" 2 fp8-judge "$@"
  is "$name: one line" "$(wc -l <err) $(grep -Ec -e "^fp8-judge: $pattern" err)" "1 1"
}
echo '{"ids":[1,2],"logprobs":[null,0.5]}' >bad
echo '{"ids":[1,300],"logprobs":[null,-1]}' >beyond
echo '{"ids":[1,2],"logprobs":[null,null]}' >none
printf 'PAR1' >table.parquet
refused_ "a positive log-probability" 'bad: line 1: logprobs: 0.5 is positive' a.h5 bad
refused_ "an id outside of the vocabulary" "beyond: line 1: ids: id 300 is not in the model's vocabulary of 256" a.h5 beyond
refused_ "nothing to judge" 'none: line 1: no token has a log-probability' a.h5 none
refused_ "a Parquet file" 'table.parquet: is a Parquet file; convert it: python3 -c' a.h5 table.parquet
refused_ "a pipe" 'ROLLOUTS: -: each candidate reads the rollouts again' a.h5 -
refused_ "an unknown recipe" "--recipe: 'row' is unknown" a.h5 rollouts.jsonl --recipe row
refused_ "an unknown gate" "--gate: 'x' is neither" a.h5 rollouts.jsonl --gate x
refused_ "a missing file" 'nowhere: .*No such file' a.h5 nowhere
refused_ "the trainer of a plain form" 'rollouts.jsonl: line 1: has the log-probabilities of one side alone' a.h5 rollouts.jsonl --trainer
mpirun -n 2 fp8-judge a.h5 bad >out 2>err
is "two ranks print one line" "$? $(grep -c '^fp8-judge: bad: line 1: logprobs' err)" "2 1"

done_testing
