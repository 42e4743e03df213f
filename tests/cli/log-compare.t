#!/bin/sh
# fp8-log --compare on the command line: what sides were computed in, and the folder of a sweep.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# What the sides were computed in, and a speed that is not that of FP8.
fixtures=$SRC/tests/man/fixtures
for s in 1 2 3; do
  cp "$fixtures/bf16-$s.jsonl" "p$s.jsonl"
  sed 's/"emulated": *true/&,"fp8_flop_share":0.96,"fp8_flop_share_total":0.88/' "$fixtures/fp8-$s.jsonl" >"q$s.jsonl"
  sed 's/"tensorwise"/"rowwise"/; s/"emulated": *true/"emulated":false/' "q$s.jsonl" >"r$s.jsonl"
done
cells() { tr -s ' ' <out | grep -E "$1"; }
ok "one pair" fp8-log --compare p1.jsonl q1.jsonl
is "shows precision, shares and a speed that is emulated" "$(cells '^(precision|tokens/s|linears in FP8|all FLOPs in FP8) .* (emulated|%)$')" \
  "precision bf16 fp8 tensorwise, emulated
tokens/s 76 k 60.8 k 0.8 x, emulated
linears in FP8 - 96 %
all FLOPs in FP8 - 88 %"
p=p1.jsonl,p2.jsonl,p3.jsonl q=q1.jsonl,q2.jsonl,q3.jsonl r=r1.jsonl,r2.jsonl,r3.jsonl
ok "several pairs" fp8-log --compare $p $q
is "show them for each side" "$(cells '^([AB]: [pq]|side) (bf16|fp8|precision|tokens/s|0)')" "side precision linears in FP8 all FLOPs in FP8
A: p bf16 - -
B: q fp8 tensorwise, emulated 96 % 88 %
side precision tokens/s
A: p bf16 1 x
B: q fp8 tensorwise, emulated 0.805 x, emulated"
for s in 1 2; do
  sed -e 's/"fp8_flop_share":0.96,/"fp8_flop_share":0,/' \
    -e 's/"fp8_flop_share_total":0.88/"fp8_flop_share_total":0,"fp4_flop_share":0.94,"fp4_flop_share_total":0.86/' q$s.jsonl >f$s.jsonl
done
ok "a pair with FP4" fp8-log --compare q1.jsonl f1.jsonl
is "shows its shares" "$(cells '^(linears|all FLOPs) in FP4 ')" "linears in FP4 - 94 %
all FLOPs in FP4 - 86 %"
ok "pairs with FP4" fp8-log --compare q1.jsonl,q2.jsonl f1.jsonl,f2.jsonl
is "show them in columns of their own" "$(cells 'in FP4|94 %' | tr '\n' ' ')" \
  "side precision linears in FP4 all FLOPs in FP4 B: f fp8 tensorwise, emulated 94 % 86 % "
is "and JSON has them" "$(fp8-log --compare q1.jsonl,q2.jsonl f1.jsonl,f2.jsonl --json | python3 -c '
import json, sys
b = json.load(sys.stdin)["sides"]["b"]
print(round(b["fp4_flop_share"], 3), round(b["fp4_flop_share_total"], 3))')" "0.94 0.86"
ok "three sides" fp8-log --compare $r $p $q
is "too; FP8 that is not emulated has its speed" "$(cells '^[pqr] .* x')" "r fp8 rowwise 1 x
p bf16 1.24 x
q fp8 tensorwise, emulated 1 x, emulated"
is "JSON has them for each side" "$(fp8-log --compare $p $q --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(r["sides"]["a"]["precisions"][0]["precision"], r["sides"]["a"]["emulated"], r["sides"]["b"]["precisions"],
      round(r["sides"]["b"]["fp8_flop_share_total"], 3), r["speedup_emulated"])')" \
  "bf16 False [{'precision': 'fp8', 'recipe': 'tensorwise', 'emulated': True}] 0.88 True"
is "not of FP8 that runs" "$(fp8-log --compare $p $r --json | field speedup_emulated)" False
says "a table of runs names the precision of emulated ones, also where it is the same" '^q1 +fp8 tensorwise, emulated ' fp8-log q1.jsonl q2.jsonl \
  --sort loss

# What the interval can show, and what it cannot.
says "more pairs would show a gap of the size of the gate" ', which includes 0: cannot tell; about [0-9]+ more pairs would show a gap of 0\.002$' \
  fp8-log --compare $p $q --gate 0.002
says "or of the mean without one" \
  '^the loss gap is -0\.00091 .*, which includes 0: cannot tell; about [0-9]+ more pairs would show a gap of 0\.00091$' fp8-log --compare $p $q
says "intervals of several sides are not adjusted, which is said" '^the 95 % intervals are not adjusted for 2 comparisons; ' \
  fp8-log --compare $p $q $r
says "runs on both sides are all named" '^p1.jsonl, p2.jsonl, p3.jsonl: compared with themselves, which shows nothing$' fp8-log --compare $p $p
mkdir -p self && cp p1.jsonl self/log.jsonl
says "under another spelling of the path too" '^self: compared with itself, which shows nothing$' fp8-log --compare self self/

# The folder of a sweep, in which runs have names as fp8-sweep(5) gives them.
position=0
for lr in 2e-3 1e-3; do
  for seed in 1 2 3; do
    for side in q p r; do # in the order of the sweep, not of the alphabet
      run=swept/$side"_lr=${lr}_seed=$seed" position=$((position + 1))
      mkdir -p "$run"
      cp $side$seed.jsonl "$run/log.jsonl"
      echo "{\"flags\":[],\"command\":[],\"status\":0,\"position\":$position}" >"$run/sweep.json"
    done
  done
done
mkdir -p swept/q_seed=7/later && cp q1.jsonl swept/q_seed=7/log.jsonl && mkdir "swept/p_lr=1e-3_seed=4" &&
  head -1 p1.jsonl >"swept/p_lr=1e-3_seed=4/log.jsonl"
ok "the sides of a sweep" fp8-log --compare swept
is "are compared with its first, paired by the other settings" "$(cells '^[pqr] [0-9]+ ' | awk '{ print $1, $2 }' | tr '\n' ';')" "q 6;p 6;r 6;"
is "without runs that have no steps or no partner" "$(cat err) $(grep -c '^ *not paired, so not used: q_seed=7 ' out)" \
  "fp8-log: swept/p_lr=1e-3_seed=4: has no steps, so it is left out 2"
ok "the values of a setting" fp8-log --compare swept --by lr --json
is "are compared as well, paired by side and seed" "$(python3 -c '
import json
r = json.load(open("out"))
print(r["side_a"], r["side_b"], len(r["pairs"]), r["pairs"][0]["a"]["name"], r["pairs"][0]["b"]["name"], r["gap"])')" \
  "lr=2e-3 lr=1e-3 9 p_lr=2e-3_seed=1 p_lr=1e-3_seed=1 0.0"
is "each seed counts once in the interval, and each pair is there" "$(python3 -c '
import json
r = json.load(open("out"))
print(r["seeds"], len(r["pairs"]))')" "3 9"
is "runs without the setting are left out" "$(cat err)" "fp8-log: swept/q_seed=7: has no lr, so it is left out
fp8-log: swept/p_lr=1e-3_seed=4: has no steps, so it is left out"
fp8-log --compare swept --by lr -q >seeds
says "which the text says" ' \(95 % interval over 3 seeds, of 9 pairs\)' cat seeds
is "the table of sides has their names" "$(grep -o '^[AB]: lr=[12]e-3 ' seeds | sort -u | tr -d '\n')" "A: lr=2e-3 B: lr=1e-3 "
fp8-log --compare swept -q >seeds
is "a table of several sides has the number of seeds" "$(grep -c '^[pr]  *6 of 3 seeds ' seeds)" 2
is "the table of settings says whose values it has" "$(grep '^side  *setting' seeds | tr -s ' ')" "side setting that differs in q in the side"
cp -r swept gone && rm -r gone/q_lr=2e-3_seed=1 gone/p_lr=1e-3_seed=3 && rm gone/q_lr=2e-3_seed=2/sweep.json
fp8-log --compare gone -q >seeds
is "missing runs leave the order of sides" "$(grep -oE '^[pqr] +[0-9]( of 3 seeds)? ' seeds | tr -s ' ' | tr '\n' ';')" \
  "q 5 of 3 seeds ;p 4 of 3 seeds ;r 5 of 3 seeds ;"
is "the first side has the mean over the most pairs" "$(grep -E '^[qr] .*seeds ' seeds | head -n 2 | sed 's/.*seeds *//' |
  python3 -c 'q, r = [l.split() for l in __import__("sys").stdin]; print(abs(float(r[0]) - float(q[0]) - float(r[1])) < 1e-3)')" True
rm -f swept/*/sweep.json
is "sides are sorted where the order is not known" "$(fp8-log --compare swept -q | grep -E '^[pqr] +(6 of 3 seeds)? +3' | cut -c 1 | tr '\n' ' ')" \
  "p q r "
is "values as numbers" "$(fp8-log --compare swept --by lr --json -q | field side_a)" "lr=1e-3"
says "a plot too" '>p<' sh -c 'fp8-log --compare swept -q --plot loss -o swept.svg && cat swept.svg'
says "a name that is no setting of the sweep" '^fp8-log: swept: no setting of the sweep is named clip; its settings are side, lr, seed$' \
  fp8-log --compare swept --by clip
says "the seed, which pairs runs" '^fp8-log: --by seed: the seed pairs the runs of two sides, so its values cannot be compared$' \
  fp8-log --compare swept --by seed
says "the folder of a sweep without --compare" \
  '^fp8-log: swept: contains no log.jsonl, but folders in it do: give swept/\*, or --compare swept, which compares the sides of a sweep$' \
  fp8-log swept
mkdir -p few/p_lr=1_seed=1 few/q_lr=1_seed=1 && cp p1.jsonl few/p_lr=1_seed=1/log.jsonl && cp q1.jsonl few/q_lr=1_seed=1/log.jsonl
says "a setting that does not differ" '^fp8-log: few: its runs do not differ in lr; they differ in side$' fp8-log --compare few --by lr
says "--by without a sweep" '^fp8-log: --by: needs the folder of a sweep$' fp8-log --compare $p $q --by lr
says "--by without --compare" '^fp8-log: --by: only with --compare$' fp8-log swept --by lr
done_testing
