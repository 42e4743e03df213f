#!/bin/sh
# fp8-log on the command line: summaries, comparison, plots, exports, live view, errors.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

curves=$SRC/tests/golden/curves
cp "$SRC"/tests/man/fixtures/run-a.jsonl "$SRC"/tests/man/fixtures/run-b.jsonl .
mkdir run
cp run-a.jsonl run/log.jsonl
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# Summaries.
says "the summary of a folder names the run" '^run +run$' fp8-log run
says "the summary has the final loss" '^final loss +2\.2039$' fp8-log run
says "several runs are shown side by side" '^precision +bf16 +fp8 tensorwise$' fp8-log run run-b.jsonl
ok "--json succeeds" fp8-log run run-b.jsonl --json
is "--json prints one line per run" "$(wc -l <out)" 2
is "the JSON has the values of the log" "$(head -1 out | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(r["path"], r["steps"], r["tokens"], r["final_loss"], r["precision"], r["checkpoints"], r["restarts"], r["finished"], r["reason"])')" \
  "run 12 49152 2.203938 bf16 2 0 True done"
is "standard input is read by default" "$(fp8-log --json <run-a.jsonl | field path)" "-"
is "- names standard input" "$(fp8-log - --json <run-a.jsonl | field steps)" 12
is "a log with steps from 0 and fewer fields is read" "$(fp8-log "$curves/llama3-fp32.jsonl" --json | field tokens)" 51200
{ head -8 run-a.jsonl; printf '{"type":"step","st'; } >torn.jsonl
is "an incomplete last line is ignored" "$(fp8-log torn.jsonl --json | field steps)" 6
{ cat run-a.jsonl; sed -n '1p;5,8p' run-a.jsonl; } >resumed.jsonl
is "the steps of a resumed run replace the later ones" "$(fp8-log resumed.jsonl --json | field steps)" 6
is "a restart is counted" "$(fp8-log resumed.jsonl --json | field restarts)" 1
is "a resumed run without an end record is not finished" "$(fp8-log resumed.jsonl --json | field finished)" False
is "a pipe gets no colour codes" "$(fp8-log run-a.jsonl | grep -c "$(printf '\033')")" 0

# Comparison. The README of the curves gives the gaps: +4.7e-3, +2.2e-3, +1.7e-3 over the last 50 steps.
for pair in tensorwise:0.0047 rowwise:0.0022 rowwise_with_gw_hp:0.0017; do
  fp8-log --compare "$curves/llama3-bf16.jsonl" "$curves/llama3-${pair%:*}.jsonl" --json >out 2>err
  is "--compare: the loss gap of ${pair%:*}" "$(python3 -c 'import json; print(round(json.load(open("out"))["gap"], 4))')" "${pair#*:}"
done
status "a met gate gives status 0" 0 fp8-log --compare run-a.jsonl run-b.jsonl --gate 0.01
says "a met gate is reported" '^gate met: the loss gap of \+0\.0024 nats is within 0\.01$' fp8-log --compare run-a.jsonl run-b.jsonl --gate 0.01
status "a gate that is not met gives status 1" 1 fp8-log --compare run-a.jsonl run-b.jsonl --gate 0.0000001
says "a gate that is not met is reported" '^gate not met: ' fp8-log --compare run-a.jsonl run-b.jsonl --gate 0.0000001
status "the gate is not met with the runs exchanged" 1 fp8-log --compare run-b.jsonl run-a.jsonl --gate 0.0000001
status "--json: a gate that is not met gives status 1" 1 fp8-log --compare run-a.jsonl run-b.jsonl --gate 0.0000001 --json
is "--json: the record has the verdict" "$(field met <out)" False
status "a run meets a gate of 0 against itself" 0 fp8-log --compare run run-a.jsonl --gate 0
says "speed and memory are compared" '^peak memory .* 0\.778 x$' fp8-log --compare run-a.jsonl run-b.jsonl
{ head -1 run-a.jsonl; sed -n '2,9s/"loss":[0-9.]*/"loss":null/p' run-a.jsonl; sed -n '10,99p' run-a.jsonl; } >nulls.jsonl
{ head -8 run-a.jsonl; sed -n '9,99s/"loss":[0-9.]*/"loss":null/p' run-a.jsonl; } >diverged.jsonl
status "non-finite losses at the beginning do not fail the gate" 0 fp8-log --compare run-a.jsonl nulls.jsonl --gate 1
status "non-finite losses at the end fail every gate" 1 fp8-log --compare run-a.jsonl diverged.jsonl --gate 1000
{ head -12 run-a.jsonl; sed -n '13,99s/"loss":[0-9.]*/"loss":null/; 13,99p' run-a.jsonl; } >half.jsonl # the last half of the window
sed 's/"reason":"done"/"reason":"diverged"/' run-a.jsonl >ended.jsonl
for other in half ended; do
  status "a run that diverged meets no gate: $other" 1 fp8-log --compare run-a.jsonl $other.jsonl --gate 1000
  is "which is the reason: $other" "$(tail -1 out)" "gate not met: diverged: $other"
  status "nor with the sides exchanged: $other" 1 fp8-log --compare $other.jsonl run-a.jsonl --gate 1000 --json
  is "in JSON too: $other" "$(field verdict <out)" "not met"
done
is "the summary says whether a run diverged" "$(fp8-log run-a.jsonl --json | field diverged) $(fp8-log half.jsonl --json | field diverged)" "False True"
sed 's/"loss":[0-9.]*/"loss":null/' run-a.jsonl >lossless.jsonl
ok "a run without a finite loss beside a baseline" fp8-log run-a.jsonl lossless.jsonl run-b.jsonl --baseline run-a.jsonl
is "has no gap, and the others have theirs" "$(sed -n '3,5p;$p' out | tr -s ' ' | tr '\n' ';')" \
  "run-a bf16 2.2203 2.2539 2.2539 12 baseline;run-b fp8 tensorwise 2.2227 2.2597 2.2597 12 +0.0024;lossless bf16 - - - - -;lossless.jsonl: contains no finite loss to compare;"
status "a baseline without a finite loss" 2 fp8-log run-a.jsonl --baseline lossless.jsonl
sed 's/"tokens":\([0-9]*\)[0-9]/"tokens":\19/' run-a.jsonl >shifted.jsonl
is "exchanged sides have exactly the negated gap" "$(for sides in "run-a.jsonl shifted.jsonl" "shifted.jsonl run-a.jsonl"; do
  # shellcheck disable=SC2086 # words on purpose
  fp8-log --compare $sides --json | python3 -c 'import json, sys; r = json.load(sys.stdin); print(abs(r["gap"]), r["points"], r["gap"] != 0)'
done | uniq | wc -l)" 1
sed 's/"tokens":/&9/' run-a.jsonl >far.jsonl
says "runs without common tokens are refused" '^fp8-log: no tokens in common: run-a.jsonl has 4096 to 49152, far.jsonl has ' fp8-log --compare run-a.jsonl far.jsonl
status "runs without common tokens give status 2" 2 fp8-log --compare run-a.jsonl far.jsonl
status "--compare with one run gives status 2" 2 fp8-log --compare run-a.jsonl
is "the message names the number of runs" "$(cat err)" "fp8-log: --compare: needs two runs or more, two lists of runs with commas, or the folder of a sweep, found 1"
says "one pair has step noise" '^step noise: . 0\.00096 nats ' fp8-log --compare run-a.jsonl run-b.jsonl
says "and an unknown noise between runs" '^noise between runs: unknown from 1 pair of runs; 3 or more give an interval$' fp8-log --compare run-a.jsonl run-b.jsonl

# Several pairs. The gaps of the runs that differ only in their ranks are small; the loss of the others is raised by the gap in their names.
noise=$SRC/tests/golden/noise
for s in 1 2 3; do
  cp "$noise/seed-$s-ranks-1.jsonl" "a$s.jsonl"
  cp "$noise/seed-$s-ranks-2.jsonl" "b$s.jsonl"
done
raise() { # FROM TO NATS: a log whose losses are higher
  python3 -c '
import json, sys
for line in open(sys.argv[1]):
    r = json.loads(line)
    if "loss" in r: r["loss"] += float(sys.argv[3])
    print(json.dumps(r))' "$@" >"$2"
}
raise b1.jsonl far1.jsonl 0.5
raise b2.jsonl far2.jsonl 0.51
raise b3.jsonl far3.jsonl 0.52
sides="a1.jsonl,a2.jsonl,a3.jsonl b3.jsonl,b1.jsonl,b2.jsonl"
# shellcheck disable=SC2086 # words on purpose
{
  status "three pairs whose interval is within the gate" 0 fp8-log --compare $sides --gate 0.01
  says "say so" '^gate met: the loss gap of \+0\.0005. . 0\.0025 nats \(95 % interval over 3 pairs\) is within 0\.01$' fp8-log --compare $sides --gate 0.01
  says "runs of one seed are a pair" '^a2 +b2 +2 ' fp8-log --compare $sides
  status "an interval across the gate" 1 fp8-log --compare $sides --gate 0.001
  says "cannot tell" '^cannot tell: the loss gap of .* is partly within 0\.001; ' fp8-log --compare $sides --gate 0.001
  fp8-log --compare $sides --gate 0.001 --json >out
  is "in JSON too" "$(field verdict <out) $(field met <out)" "cannot tell False"
  is "with a seed, a summary and a gap for each pair" "$(python3 -c '
import json
r = json.load(open("out"))
print([p["seed"] for p in r["pairs"]], r["pairs"][1]["a"]["name"], abs(sum(p["gap"] for p in r["pairs"]) / 3 - r["gap"]) < 1e-12,
      r["gap_interval"][0] < r["gap"] < r["gap_interval"][1], r["beyond_noise"])')" "[1, 2, 3] a2 True True False"
}
sides="a1.jsonl,a2.jsonl,a3.jsonl far1.jsonl,far2.jsonl,far3.jsonl"
# shellcheck disable=SC2086
{
  status "an interval beyond the gate" 1 fp8-log --compare $sides --gate 0.3
  says "is not met" '^gate not met: .* exceeds 0\.3$' fp8-log --compare $sides --gate 0.3
  says "excludes 0" '^the loss gap is \+0\.51.* \(95 % interval over 3 pairs\), which excludes 0$' fp8-log --compare $sides
}
status "two pairs decide by the gap alone" 0 fp8-log --compare a1.jsonl,a2.jsonl far1.jsonl,far2.jsonl --gate 0.51
says "and say that the noise is unknown" '^noise between runs: unknown from 2 pairs' fp8-log --compare a1.jsonl,a2.jsonl far1.jsonl,far2.jsonl
ok "a seed without a partner" fp8-log --compare a1.jsonl,a2.jsonl b1.jsonl,b3.jsonl
is "is named and not used" "$(head -1 out | tr -s ' '); $(grep paired out)" "metric a1 b1 difference; not paired, so not used: a2, b3 (they have no partner on the other side)"
status "no seed with a partner" 2 fp8-log --compare a1.jsonl,a2.jsonl b3.jsonl
is "is an error" "$(cat err)" "fp8-log: a1.jsonl: no run of the other side has its seed (1), nor that of another run of its side"
says "sides of different length" '^not paired, so not used: a2 ' fp8-log --compare a1.jsonl,a2.jsonl b1.jsonl
# Evaluations, and what a gate prints besides its verdict.
with_eval() { # FROM TO LOSS: a log with an evaluation after its last step
  { cat "$1" && printf '{"type":"eval","step":%s,"loss":%s}\n' "$(grep -o '"step": *[0-9]*' "$1" | tail -1 | cut -d: -f2)" "$3"; } >"$2"
}
for s in 1 2 3; do
  with_eval a$s.jsonl ea$s.jsonl 2.0$s
  with_eval b$s.jsonl eb$s.jsonl 2.1$((s + s))
  with_eval far$s.jsonl ef$s.jsonl 2.0$s
done
ea=ea1.jsonl,ea2.jsonl,ea3.jsonl eb=eb1.jsonl,eb2.jsonl,eb3.jsonl ef=ef1.jsonl,ef2.jsonl,ef3.jsonl
ok "evaluations are compared" fp8-log --compare $ea $eb --gate 1
is "with a mean and an interval" "$(grep -A 6 'evaluation loss A' out | tail -2 | tr -s ' ' | tr '\n' ';')" "mean +0.1200;95 % interval ± 0.0248;"
is "that excludes 0, which is said under a gate too" "$(grep 'evaluation loss gap' out)" \
  "the evaluation loss gap is +0.1200 ± 0.0248 nats (95 % interval over 3 pairs), which excludes 0"
says "and so is what includes 0" '^the loss gap is .*, which includes 0: cannot tell; a gap of 1 would have shown$' fp8-log --compare $ea $eb --gate 1
is "the verdict is the last line" "$(tail -1 out | cut -d: -f1)" "gate met"
is "JSON has the gap of the evaluations" "$(fp8-log --compare $ea $eb --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(round(r["eval_gap"], 6), [round(x, 3) for x in r["eval_gap_interval"]], r["eval_beyond_noise"], r["beyond_noise"], r["more_pairs"] > 0, r["eval_more_pairs"],
      round(r["pairs"][2]["eval_gap"], 6), r["side_a"], r["side_b"], r["unpaired"])')" "0.12 [0.095, 0.145] True False True None 0.13 ea eb []"
# Three sides.
ok "each side is compared with the first" fp8-log --compare $ea $eb $ef
is "the gap to the first side excludes 0 or does not" "$(grep -E '^e[bf] ' out | awk '{ print $1, $NF }' | head -4 | tr '\n' ' ')" "eb no ef yes eb yes ef no "
status "a gate that one side does not meet" 1 fp8-log --compare $ea $eb $ef --gate 0.1
is "is said of each" "$(grep -oE '^(eb|ef)$|gate (not )?met' out | tr '\n' ' ')" "eb gate met ef gate not met "
status "a gate that all sides meet" 0 fp8-log --compare $ea $eb $ef --gate 1
is "JSON has a record for each side" "$(fp8-log --compare $ea $eb $ef --gate 0.1 --json | python3 -c '
import json, sys
print([(r["side_a"], r["side_b"], r["met"]) for r in map(json.loads, sys.stdin)])')" "[('ea', 'eb', True), ('ea', 'ef', False)]"
says "three runs are three sides" '^b1 +1 ' fp8-log --compare a1.jsonl b1.jsonl b2.jsonl
for image in svg png; do ok "the gaps are drawn as $image" fp8-log --compare $ea $eb $ef --plot gaps -o gaps.$image; done
is "with the names of the sides and both losses" "$(grep -cE '>(eb|ef|training loss|evaluation loss|Loss less that of ea, nats per token)<' gaps.svg)" 5
ok "a gate is drawn as a band" fp8-log --compare $ea $ef --plot gaps --gate 1 -o band.svg
says "which the legend names" 'shaded: within 1<' cat band.svg
says "gaps without a comparison" '^fp8-log: --plot: gaps: only with --compare$' fp8-log ea1.jsonl --plot gaps -o x.svg
says "gaps in the terminal" '^fp8-log: --plot: gaps: needs --output FILE, .svg or .png$' fp8-log --compare $ea $eb --plot gaps
cp ea1.jsonl ea1.svg
says "gaps over a log" '^fp8-log: ea1.svg: is also an input$' fp8-log --compare ea1.svg eb1.jsonl --plot gaps -o ea1.svg -f
ok "a baseline for each seed" fp8-log eb1.jsonl eb2.jsonl eb3.jsonl --baseline $ea --sort run
is "gives each run its gap" "$(fp8-log --compare $ea $eb --json | python3 -c 'import json, sys; print(*("%+.4f" % p["gap"] for p in json.load(sys.stdin)["pairs"]))')" \
  "$(fp8-log eb1.jsonl eb2.jsonl eb3.jsonl --baseline $ea --sort run --json | python3 -c 'import json, sys; print(*("%+.4f" % json.loads(r)["gap"] for r in sys.stdin))')"
status "an empty name" 2 fp8-log --compare a1.jsonl, b1.jsonl
cp a1.jsonl a,1.jsonl
status "a path with a comma is one run" 0 fp8-log --compare a,1.jsonl b1.jsonl

# Settings of real runs. What a resumed run may not change is refused by a gate, under every name that the log lists.
head -c 20000 "$SRC/share/text/tinyshakespeare.txt" >text.txt
fp8-tokenize text.txt -o data.h5 >/dev/null 2>&1
head -c 15000 text.txt >less.txt && fp8-tokenize less.txt -o other.h5 >/dev/null 2>&1
fp8-init tiny --seed 1 -o one.h5 >/dev/null 2>&1 && fp8-init tiny --seed 2 -o two.h5 >/dev/null 2>&1
train() { # OUT MODEL FLAGS...
  out=$1 model=$2
  shift 2
  fp8-step "$model" --data data.h5 --out "$out" --seq-length 16 --batch-size 4 --steps 4 "$@" >/dev/null 2>step.err || cat step.err
}
train base one.h5
train free one.h5 --precision fp8 --seed 7 --batch-size 2 --grad-accumulation 2 --save-every 2
train unlike one.h5 --lr 1e-3 --steps 6
train model two.h5
train data one.h5 --data other.h5
train delayed one.h5 --precision fp8 --recipe delayed --amax-history 8 --margin 3
says "the settings of the recipe delayed are shown" '^delayed scaling +history 8, max, margin 3$' fp8-log delayed
says "in JSON too" '"delayed":"history 8, max, margin 3"' fp8-log delayed --json
status "precision, seed and the split of the batch are free" 0 fp8-log --compare base free --gate 100
says "but printed" '^precision +bf16 +fp8$' fp8-log --compare base free
says "so is the split" '^grad-accumulation +1 +2$' fp8-log --compare base free
status "another rate and length" 2 fp8-log --compare base unlike --gate 100
is "are refused by name" "$(cat err)" \
  "fp8-log: --gate: the runs differ in lr (3e-04, 0.001), steps (4, 6); --allow lr,steps compares them nevertheless"
status "one of them allowed" 2 fp8-log --compare base unlike --gate 100 --allow lr
status "both" 0 fp8-log --compare base unlike --gate 100 --allow lr,steps
status "everything" 0 fp8-log --compare base unlike --gate 100 --allow all
status "without a gate nothing is refused" 0 fp8-log --compare base unlike
says "another model" '^fp8-log: --gate: the runs differ in model ' fp8-log --compare base model --gate 100
says "other data" '^fp8-log: --gate: the runs differ in data ' fp8-log --compare base data --gate 100
says "a name that is no setting" '^fp8-log: --allow: "lrr" is not one of all, model, data, seq-length, ' fp8-log --compare base unlike --allow lrr
says "names without a comparison" '^fp8-log: --allow: only with --compare$' fp8-log base --allow lr
is "every setting that a resumed run may not change is checked, also in logs that do not list them" "$(python3 - <<'END'
import json, subprocess
lines = open("base/log.jsonl").read().splitlines()
run = json.loads(lines[0])
def write(name, record, listed):
    record = dict(record)
    if not listed: del record["settings"]
    open(name, "w").write("\n".join([json.dumps(record)] + lines[1:]) + "\n")
for listed in (True, False):
    write("was.jsonl", run, listed)
    for key in run["settings"]:
        changed = json.loads(lines[0])
        where = {"model": changed["settings"] if listed else changed, "documents": changed}.get(key, changed["config"])
        if key in ("data", "chat template") and listed: where = changed["settings"]
        if key == "chat template" and not listed: continue  # it is in no other place
        if key.startswith("global batch"): key = "batch-size"
        where[key] = "another"
        if key == "batch-size": where[key] = 99
        write("is.jsonl", changed, listed)
        status = subprocess.run(["fp8-log", "--compare", "was.jsonl", "is.jsonl", "--gate", "9"], capture_output=True).returncode
        if status != (0 if key == "seed" else 2): print(key, listed, status)
END
)" ""
# Many runs: a row each.
says "the settings that differ are columns" '^run +precision +batch-size ' fp8-log base free unlike --baseline base
says "the baseline is named" '^base .*baseline( |$)' fp8-log base free unlike --baseline base
is "rows are sorted by a setting" "$(fp8-log base unlike model --sort lr | awk 'NR > 2 { print $1 }' | tail -1)" unlike
is "or decreasing" "$(fp8-log base unlike model --sort=-lr | awk 'NR > 2 { print $1 }' | head -1)" unlike
is "in JSON too, with settings and gap" "$(fp8-log base unlike --baseline base --sort=-lr --json | python3 -c '
import json, sys
print([(r["name"], r["settings"]["lr"], r["gap"] == 0) for r in map(json.loads, sys.stdin)])')" \
  "[('unlike', 0.001, False), ('base', 0.0003, True)]"
says "an unknown column" '^fp8-log: no column "speed" to sort by; available: run, loss, ' fp8-log base unlike --sort speed
says "sorting a comparison" '^fp8-log: --sort: not together with --compare, ' fp8-log --compare base unlike --sort lr
says "a log without config is a note" '^settings unknown, so not compared: run-a, run-b \(log without config\)$' fp8-log --compare run-a.jsonl run-b.jsonl --gate 1

# Evaluations, phases, models: tables.
train early one.h5 --lr 3e-3 --eval-data other.h5 --eval-every 1 --eval-batches 1 --save-every 2
train late one.h5 --lr 1e-3 --eval-data other.h5 --eval-every 1 --eval-batches 1 --save-every 2
sed 's/"loss":\([0-9.]*\),"perplexity"/"loss":9.5,"perplexity"/' early/log.jsonl >worse.jsonl
is "a table of runs with evaluations is sorted by their last loss" "$(fp8-log worse.jsonl late base | awk 'NR > 2 && NF { print $1 }' | head -3 | tr '\n' ' ')" "late worse base "
is "JSON keeps the order of the arguments" "$(fp8-log worse.jsonl late base --json | sed 's/.*"name":"\([a-z]*\)".*/\1/' | tr '\n' ' ')" "worse late base "
says "with the best evaluation and its step" ' eval loss +best +at step ' fp8-log worse.jsonl late base
says "the summary has both" '^best evaluation loss +[0-9.]+ at [0-9]$' fp8-log late
is "and the best checkpoint, which is that of RUN@best" "$(fp8-log late | sed -n 's/^best checkpoint *step //p')" "$(fp8-info late@best --json | sed -n 's/.*"step":\([0-9]*\).*/\1/p' | head -1)"
is "JSON has all settings, and which differ" "$(fp8-log base unlike --json | python3 -c '
import json, sys
print([(r["settings"]["lr"], r["settings"]["clip"], r["settings"].get("recipe"), "lr" in r["differing"], "clip" in r["differing"]) for r in map(json.loads, sys.stdin)])')" \
  "[(0.0003, 1.0, None, True, False), (0.001, 1.0, None, True, False)]"
is "models have names" "$(fp8-log base model unlike --json | sed 's/.*"model":"\([^"]*\)".*/\1/' | tr '\n' ' ')" "one.h5 two.h5 one.h5 "
says "in the table too" ' one\.h5 ' fp8-log base model unlike
fp8-log base free --export csv >out
is "CSV has the settings that differ" "$(python3 -c '
import csv
rows = list(csv.DictReader(open("out")))
print(sorted({(r["run"], r["setting:seed"], r["recipe"]) for r in rows}), "setting:clip" in rows[0])')" "[('base', '0', ''), ('free', '7', 'tensorwise')] False"
fp8-log late --export csv >out
is "and the loss of evaluations" "$(python3 -c '
import csv
print([r["step"] for r in csv.DictReader(open("out")) if r["eval_loss"]])')" "['1', '2', '3', '4']"
printf '2 --precision bf16\n4 --precision fp8 --recipe rowwise\n' >two.phases
ok "a run of two phases" fp8-resume phased --phases two.phases -- fp8-step one.h5 --data data.h5 --seq-length 16 --batch-size 4 --steps 4 -q
is "has no restart" "$(fp8-log phased --json | field restarts)" 0
is "its phases are rows" "$(fp8-log phased | sed -n '/^precision/,/^steps/p' | tr -s ' ' | tr '\n' ';')" "precision bf16; phase 2 from 3: fp8 rowwise, emulated;steps 4 of 4;"
is "below the run" "$(fp8-log base phased unlike | grep -A 1 '^phased' | sed -n 2p | tr -s ' ' | cut -d' ' -f 2-6)" "from 3 fp8 rowwise, emulated"
{
  echo '{"type":"run","config":{"seed":1,"lr":1e-3,"clip":2.0,"eps":1e-6,"warmup-steps":100,"schedule":"constant"}}'
  seq 24 | awk '{ printf "{\"type\":\"step\",\"step\":%d,\"tokens\":%d,\"loss\":3,\"precision\":\"%s\"}\n", $1, $1, $1 % 2 ? "fp8" : "bf16" }'
} >alternating.jsonl
is "what is left out of many phases is said in the part of the table that has them" "$(fp8-log base phased alternating.jsonl | grep -A 9 '^alternating' | sed -n 10p | tr -s ' ')" " and 15 more ..."
widest() { awk '{ n = gsub(/[^\200-\277]/, "") } n > most { most = n } END { print most <= 80 }'; } # whether no line has more than 80 characters
long=a-run-with-a-name-that-is-so-long-that-no-table-has-room-for-it-and-its-values
cp -r phased $long
is "no table is wider than 80 characters" "$(for what in "base free unlike phased model data $long" "phased base" "--compare base free" "run --tensors"; do
  # shellcheck disable=SC2086 # words on purpose
  on_terminal "fp8-log $what" | sed 's/\r//; s/\x1b\[[0-9]*m//g' | LC_ALL=C widest
done | tr -d '\n')" 1111

# Named pipes are read like files; a message names a pipe without a writer.
mkfifo pipe.jsonl
: >err
fp8-log pipe.jsonl --json >out 2>err &
job=$!
tries=0
until [ -s err ] || [ $((tries = tries + 1)) = 200 ]; do sleep 0.05; done
is "a pipe without data is named in a message" "$(cat err)" "fp8-log: pipe.jsonl: is a pipe to which nothing has been written yet; waiting"
cat run-a.jsonl >pipe.jsonl
wait $job
is "the pipe is read when data arrives" "$? $(field steps <out)" "0 12"
cat run-a.jsonl >pipe.jsonl &
ok "a pipe with a writer is read" fp8-log pipe.jsonl --json
is "a pipe with a writer gives no message" "$(cat err) $(field steps <out)" " 12"
status "--follow of a pipe gives status 2" 2 timeout 10 fp8-log --follow pipe.jsonl
is "the message suggests standard input" "$(cat err)" "fp8-log: pipe.jsonl: is a named pipe, which cannot be followed; redirect it to standard input and follow -"

# Control characters in names of runs.
cp run-a.jsonl "$(printf 'a\033[31mb.jsonl')"
for format in csv prometheus trace; do
  is "$format contains no control characters" "$(fp8-log a*b.jsonl --export $format | tr -d '\n' | tr -cd '\000-\037\177' | wc -c)" 0
done
fp8-log a*b.jsonl --export csv >out
is "an escaped name in CSV can be decoded" "$(python3 -c '
import csv, re
name = list(csv.reader(open("out")))[1][0]
print(re.sub(r"\\x(..)|\\(.)", lambda m: chr(int(m[1], 16)) if m[1] else m[2], name) == "a\x1b[31mb")')" True

# Plots.
says "--plot draws in the terminal" '^loss +.* run-a$' fp8-log run-a.jsonl --plot loss
for e in svg png; do
  ok "--plot writes an $e file" fp8-log run-a.jsonl run-b.jsonl --plot loss -o "loss.$e"
  is "--plot with -o $e prints nothing" "$(cat out err)" ""
done
ok "a plot of a comparison" fp8-log --compare a1.jsonl,a2.jsonl,a3.jsonl b1.jsonl,b2.jsonl,b3.jsonl --plot loss --gate 0.01 -o pairs.svg
says "has a panel for the gap and its band" '<text>95 % interval over 3 pairs</text>' cat pairs.svg
says "and in the terminal" '^gap   \. 0   - 2 x step noise   \* b1 - a1$' fp8-log --compare a1.jsonl b1.jsonl --plot loss
status "a gate that is not met gives status 1 with --plot too" 1 fp8-log --compare run-a.jsonl run-b.jsonl --gate 0.0000001 --plot loss -o gate.svg
says "the plot is written" '</svg>' tail -2 gate.svg
says "the verdict is printed with --plot" '^gate not met: ' fp8-log --compare run-a.jsonl run-b.jsonl --gate 0.0000001 --plot loss -o gate.svg --force
says "the svg file is complete" '</svg>' tail -2 loss.svg
is "the png file has the magic number" "$(head -c 4 loss.png | tail -c 3)" PNG
status "an existing plot without --force gives status 2" 2 fp8-log run-a.jsonl --plot lr -o loss.svg
ok "--force replaces a plot" fp8-log run-a.jsonl --plot lr -o loss.svg --force
says "a plot with another suffix is refused" '^fp8-log: a.pdf: the name of a plot must end in .svg or .png$' fp8-log run-a.jsonl --plot lr -o a.pdf
python3 - <<'END'
import json, math
with open("spike.jsonl", "w") as out:
    out.write(json.dumps({"type": "run", "config": {"seed": 1}}) + "\n")
    for i in range(1, 1001):
        out.write(json.dumps({"type": "step", "step": i, "tokens": 8 * i, "loss": 9.0 if i == 500 else 2 + 0.05 * math.sin(1.7 * i * i)}) + "\n")
END
is "a spike is one column of the terminal" "$(fp8-log spike.jsonl --plot loss | sed -n '4,15p' | sed 's/.*[│┤]//' | tr -d ' \n' | wc -m)" 12
says "--ylim sets the axis" '^ *2\.1 .' fp8-log spike.jsonl --plot loss --ylim 1.9:2.1
says "--from and --to" '^ +6\.4 k +7\.2 k tokens$' fp8-log spike.jsonl --plot loss --from 800 --to 900
says "--log" '^4\.[0-9]+ ┤' fp8-log spike.jsonl --plot loss --log
for image in svg png; do
  ok "with -o as $image" fp8-log spike.jsonl --plot loss --log --ylim 1: --from 10 --to 900 -o axis.$image
done
says "limits without a colon" '^fp8-log: --ylim: expected LOW:HIGH, LOW: or :HIGH$' fp8-log spike.jsonl --plot loss --ylim 3
says "limits that are exchanged" '^fp8-log: --ylim: LOW must be less than HIGH$' fp8-log spike.jsonl --plot loss --ylim 3:2
says "a negative limit of a logarithmic axis" '^fp8-log: --ylim: must be positive with --log$' fp8-log spike.jsonl --plot loss --ylim=-1: --log
says "steps that a run does not have" '^fp8-log: spike.jsonl: has no steps from --from to --to$' fp8-log spike.jsonl --plot loss --from 2000
says "--log without a plot" '^fp8-log: --log: only with --plot$' fp8-log spike.jsonl --log
says "--from after --to" '^fp8-log: --from: greater than --to$' fp8-log spike.jsonl --plot loss --from 3 --to 2
for i in $(seq 12); do sed "s/\"seed\": 1/\"seed\": $i, \"lr\": 0.00$((i % 3 + 1))/" spike.jsonl >"many-$i.jsonl"; done
ok "twelve runs" fp8-log many-*.jsonl --plot loss -o many.svg
is "are coloured by a setting and ranked" "$(grep -oE '>(lr 0\.00[123]|lowest at the end|many-12)<' many.svg | sort -u | wc -l)" 4
says "an unknown metric is refused; the message lists the metrics" '^fp8-log: no metric "los"; available: loss, grad_norm, lr, .*, eval_loss$' fp8-log run-a.jsonl --plot los
status "an unknown metric gives status 2" 2 fp8-log run-a.jsonl --plot los
ln -s "$BIN/fp8-log" fp8-log
says "a missing gnuplot is named" '^fp8-log: gnuplot: not installed' env PATH=/nowhere ./fp8-log run-a.jsonl --plot lr -o b.svg
mkdir bin
printf '#!/bin/sh\necho "line 1: no such terminal" >&2\nexit 3\n' >bin/gnuplot
chmod +x bin/gnuplot
says "a failure of gnuplot shows its status and its message" '^fp8-log: gnuplot: status 3: line 1: no such terminal$' \
  env PATH="$work/bin:$PATH" fp8-log run-a.jsonl --plot lr -o b.svg
printf '#!/bin/sh\necho "<svg>"\n' >bin/gnuplot # gnuplot exits with status 0 when its output cannot be written
says "truncated output of gnuplot is refused" '^fp8-log: gnuplot: the image is truncated$' env PATH="$work/bin:$PATH" fp8-log run-a.jsonl --plot lr -o b.svg
for e in svg png csv; do
  what="--plot lr"
  [ $e != csv ] || what="--export csv"
  # shellcheck disable=SC2086 # words on purpose
  (ulimit -f 1 && exec fp8-log run-a.jsonl $what -o b.$e) >out 2>err
  is "a full disk while writing $e gives status 2 and one line" "$? $(wc -l <err)" "2 1"
done
is "no temporary file of a plot or an export is left" "$(find . -name '*b.[spc]*')" ""

# Exports.
ok "--export csv succeeds" fp8-log run-a.jsonl run-b.jsonl --export csv -o runs.csv
is "the csv has one line per step and a header" "$(wc -l <runs.csv)" 25
is "the csv has a header" "$(head -1 runs.csv | cut -d, -f1-6)" run,step,tokens,precision,recipe,loss
is "--export without -o writes to standard output" "$(fp8-log run-a.jsonl run-b.jsonl --export csv | cksum)" "$(cksum <runs.csv)"
says "--export prometheus prints metrics" '^fp8_loss\{run="run-b"\} 2\.209652$' fp8-log run-a.jsonl run-b.jsonl --export prometheus
says "--export prometheus has base units" '^fp8_step_seconds\{run="run-b"\} [0-9.]+$' fp8-log run-b.jsonl --export prometheus
fp8-log run-a.jsonl run-b.jsonl --export prometheus >runs.prom
python3 - runs.prom <<'EOF'
# The rules of OpenMetrics 1.0 and of the text format 0.0.4 for gauges: HELP and TYPE once before the samples of a name, which are together,
# numbers, unique labels, and the last line # EOF.
import re, sys
name, seen, samples = None, set(), set()
lines = open(sys.argv[1], encoding="utf-8").read().split("\n")
assert lines[-2:] == ["# EOF", ""], lines[-2:]
for line in lines[:-2]:
    if match := re.fullmatch(r"# HELP (\w+) ([^\\\"]|\\[\\n\"])*", line):
        name = match[1]
        assert name not in seen and re.fullmatch(r"fp8_(?!fp8_)[a-z0-9_]+", name), line
        assert not name.endswith(("_count", "_sum", "_bucket", "_created", "_info", "_total", "_s", "_share", "_tflops")), line
        seen.add(name)
    elif line.startswith("# "):
        assert line == f"# TYPE {name} gauge", line
    else:
        match = re.fullmatch(r'(\w+)\{run="((?:[^\\"\n]|\\[\\n"])*)"\} (-?[0-9.]+(?:e[-+][0-9]+)?)', line)
        assert match and match[1] == name and (name, match[2]) not in samples, line
        float(match[3])
        samples.add((name, match[2]))
assert {"fp8_loss", "fp8_eval_loss", "fp8_memory_peak_bytes", "fp8_tokens_per_second"} <= seen, seen
EOF
result $? "--export prometheus follows the rules of OpenMetrics"
mkdir -p x/run y/run
cp run-a.jsonl x/run/log.jsonl
cp run-b.jsonl y/run/log.jsonl
is "prometheus: runs of the same name have their paths as names" "$(fp8-log x/run y/run --export prometheus | grep '^fp8_step{')" "$(printf 'fp8_step{run="x/run"} 12\nfp8_step{run="y/run"} 12')"
is "csv: runs of the same name have their paths as names" "$(fp8-log x/run y/run --export csv | cut -d, -f1 | uniq | tr '\n' ' ')" "run x/run y/run "
is "JSON: runs of the same name have their paths as names" "$(fp8-log x/run y/run run-a.jsonl --json | while read -r line; do echo "$line" | field name; done | tr '\n' ' ')" "x/run y/run run-a "
says "the table: runs of the same name have their paths as names" '^run +x/run +y/run$' fp8-log x/run y/run
says "--compare: runs of the same name have their paths as names" '^metric +x/run +y/run +difference$' fp8-log --compare x/run y/run
ok "tensorboard: runs of the same name are exported" fp8-log x/run y/run --export tensorboard -o same
is "tensorboard: runs of the same name get numbered folders" "$(ls same)" "$(printf 'run\nrun-2')"
ok "tensorboard: one run is exported" fp8-log run-a.jsonl --export tensorboard -o board
is "tensorboard: one run is a folder with an event file" "$(ls board)" events.out.tfevents.0.fp8
is "the event file names its version" "$(head -c 36 board/* | tail -c 13)" brain.Event:2
ok "tensorboard: several runs are exported" fp8-log run-a.jsonl run-b.jsonl run-b.jsonl --export tensorboard -o boards
is "tensorboard: each run has a folder" "$(ls boards)" "$(printf 'run-a\nrun-b\nrun-b-2')"
ok "an output name in .tfevents makes an event file" fp8-log run-a.jsonl --export tensorboard -o one.tfevents
ok "the event file is the same as in the folder" cmp one.tfevents board/events.out.tfevents.0.fp8
status "tensorboard to standard output gives status 2" 2 fp8-log run-a.jsonl --export tensorboard
mkdir whole && cp run-a.jsonl whole/log.jsonl && cp run-a.jsonl kept.jsonl && ln whole/log.jsonl linked.svg && echo '{}' >whole/tensors.jsonl
# replaces OUTPUT WORDS...: fp8-log refuses to replace an input, with one line and status 2
replaces() {
  output=$1
  shift
  fp8-log "$@" -o "$output" -f >out 2>err
  is "an output that is an input is refused: $*" "$? $(cat err) $(cat out)" "2 fp8-log: $output: is also an input "
}
for format in csv prometheus trace; do replaces whole/log.jsonl whole --export $format; done
replaces whole/log.jsonl run-b.jsonl whole --export csv
replaces whole/tensors.jsonl whole --export csv
replaces whole/tensors.jsonl whole --export csv --tensors
replaces whole/../run-a.jsonl run-a.jsonl --export csv
replaces linked.svg whole --plot loss
replaces linked.svg --compare run-b.jsonl whole --plot loss
cmp -s whole/log.jsonl kept.jsonl
result $? "the logs are unchanged"
ok "an export into the folder of the run" fp8-log whole --export csv -o whole/log.csv
status "an existing export without --force gives status 2" 2 fp8-log run-a.jsonl --export csv -o runs.csv
says "an unknown format is refused" '^fp8-log: --export: ' fp8-log run-a.jsonl --export parquet
ok "--export trace succeeds" fp8-log run-a.jsonl run-b.jsonl --export trace -o trace.json
is "the trace has an event for each step" "$(python3 -c '
import collections, json
events = json.load(open("trace.json"))["traceEvents"]
print(sorted(collections.Counter(e["ph"] + " " + e["name"].split()[0] for e in events if e["pid"] == 1).items()))')" \
  "[('C grad_norm', 12), ('C loss', 12), ('C tokens_per_s', 12), ('M process_name', 1), ('M thread_name', 4), ('X bf16', 1), ('X save', 2), ('X step', 12), ('X waiting', 12), ('i evaluation', 2)]"
says "a trace of a log without durations is refused" '^fp8-log: notime.jsonl: has no step durations' \
  sh -c "sed 's/step_s/x_s/' run-a.jsonl >notime.jsonl; fp8-log notime.jsonl --export trace"
fp8-log run-a.jsonl --export csv >/dev/full 2>err
is "a full standard output gives status 2" $? 2
sh -c 'trap "" XFSZ; ulimit -f 1; exec fp8-log run-a.jsonl --export csv -o full.csv' >out 2>err
is "a full disk gives status 2" $? 2
is "no temporary file of the export is left" "$(find . -name '*full.csv*')" ""

# The live view: a run that does not exist yet, a record written in two parts, a restart, a replaced log, the end.
shown() { # PATTERN: waits until a line of the view matches
  i=0
  until grep -Eqs -e "$1" live || [ $i = 200 ]; do sleep 0.05; i=$((i + 1)); done
  grep -Eq -e "$1" live
  result $? "the view shows $1"
}
fp8-log --follow new --interval 0.05 >live 2>live.err &
view=$!
shown '^new: no log yet$'
mkdir new
head -1 run-a.jsonl >new/log.jsonl
shown '^new: no step yet$'
sed -n 2,4p run-a.jsonl >>new/log.jsonl
shown '^new: step 3 of 12 \(25 %\), loss 2.6068, 19.9 k tokens/s, 0.21 s/step, 1.9 s left$'
sed -n 5p run-a.jsonl | head -c 30 >>new/log.jsonl
sleep 0.2
sed -n 5p run-a.jsonl | tail -c +31 >>new/log.jsonl
shown '^new: step 4 of 12 '
{ printf '{"type":"st\n' && sleep 0.2 && sed -n '1p;3,6p' run-a.jsonl; } >>new/log.jsonl
shown '^new: step 5 of 12 .* 1 restart$'
head -3 run-a.jsonl >new/log.jsonl
shown '^new: step 2 of 12 \(16 %\), loss [0-9.]*, [^r]*$'
cp run-a.jsonl other && mv other new/log.jsonl
wait "$view"
is "the view ends with the run, with status 0 and no message" "$?$(cat live.err)" 0
is "the view ends with the last state" "$(tail -1 live | cut -d" " -f2-)" \
  "step 12 of 12 (100 %), loss 2.2039, evaluation 2.2539, 19.6 k tokens/s, 0.21 s/step, saved at 12, ended: done"
says "a pipe is followed to its end" '^step 6 of 12 .*, no end record$' sh -c "head -8 run-a.jsonl | fp8-log --follow"
sed 's/"reason":"done"/"reason":"until-step"/; s/"steps":12/"steps":24/' run-a.jsonl >phase.jsonl
says "the view ends at the end of a phase when nothing follows" 'ended: until-step$' fp8-log --follow phase.jsonl --interval 0.05
is "SIGINT ends the view without a message" "$(python3 - <<'END'
import signal, subprocess, time
view = subprocess.Popen(["fp8-log", "--follow", "run-b.jsonl.not", "--interval", "0.05"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
view.stdout.readline()
view.send_signal(signal.SIGINT)
print(set(view.stdout.read().decode().splitlines()) - {"run-b.jsonl.not: no log yet"}, view.wait() == -signal.SIGINT)
END
)" "set() True"
says "the view is redrawn in place on a terminal" "$(printf '\033')\[J" script -qec "fp8-log --follow run-a.jsonl" /dev/null
says "the view on a terminal has the loss curve" '^loss .* run-a' script -qec "fp8-log --follow run-a.jsonl" /dev/null
says "--follow of a damaged log names the line" '^fp8-log: bad1.jsonl: line 2 column 1: ' sh -c '{ head -1 run-a.jsonl; echo x y; head -2 run-a.jsonl | tail -1; } >bad1.jsonl; fp8-log --follow bad1.jsonl'
mkdir -p named/run-x && cp run-a.jsonl named/run-x/log.jsonl
says "--follow names the run by its folder" '^run-x: step 12 of 12' fp8-log --follow named/run-x
says "--follow of a log in this folder too" '^run-x: step 12 of 12' sh -c 'cd named/run-x && fp8-log --follow log.jsonl'
says "a plot of evaluations that do not exist names the flags" '^fp8-log: eval_loss: no run has evaluations, see eval-every in fp8-step\(1\)$' \
  sh -c 'grep -v eval run-a.jsonl >none.jsonl; fp8-log none.jsonl --plot eval_loss'
says "--follow of two runs is refused" '^fp8-log: --follow: needs one run, found 2$' fp8-log --follow run-a.jsonl run-b.jsonl
says "--interval without --follow is refused" '^fp8-log: --interval: only with --follow$' fp8-log run-a.jsonl --interval 3
says "--follow with --compare is refused" '^fp8-log: --follow: not together with --compare$' fp8-log --follow --compare run-a.jsonl run-b.jsonl

# Statistics of tensors.
tensor() { # STEP LINEAR OPERAND SQNR UNDERFLOW
  printf '{"type":"operand","linear":"model.layers.%s.weight","gemm":"forward","operand":"%s","recipe":"rowwise","format":"e4m3","nonfinite":0,"amax":1.5,"scale":298.6,"underflow_share":%s,"saturated_share":0.0,"sqnr_db":%s,"step":%s}\n' "$2" "$3" "$5" "$4" "$1"
}
product() { # STEP LINEAR ERROR
  printf '{"type":"gemm","linear":"model.layers.%s.weight","gemm":"wgrad","recipe":"rowwise","relative_error":%s,"step":%s}\n' "$2" "$3" "$1"
}
for step in 10 20 30; do
  for layer in 0 1; do
    tensor $step $layer.mlp.up_proj input 31.5 0.001
    tensor $step $layer.mlp.up_proj weight $((step / 10 + layer + 20)).5 0.0$layer
    product $step $layer.mlp.up_proj 0.0$layer$((step / 10))
  done
done >run/tensors.jsonl
ok "--tensors succeeds" fp8-log run --tensors
is "--tensors counts steps and records" "$(head -1 out)" "3 steps, 10 to 30, 18 records"
is "the lowest SQNR is first, with its step and the last value" "$(sed -n 5p out | tr -s ' ')" "model.layers.0.mlp.up_proj.weight forward weight 21.5 10 23.5"
is "the largest error is first" "$(tail -4 out | sed -n 3p | tr -s ' ')" "model.layers.1.mlp.up_proj.weight wgrad 1.3 30 1.3"
is "what does not occur is a line" "$(grep -c '^nothing saturates$' out)" 1
is "--json has the worst of each" "$(fp8-log run --tensors --json | sed -n 2p)" '{"type":"tensor","linear":"model.layers.0.mlp.up_proj.weight","gemm":"forward","operand":"weight","recipe":"rowwise","steps":3,"amax":1.5,"amax_step":10,"scale":298.6,"scale_step":10,"underflow_share":0.0,"underflow_share_step":10,"saturated_share":0.0,"saturated_share_step":10,"sqnr_db":21.5,"sqnr_db_step":10,"finite":true}'
is "--export csv has a line for each record" "$(fp8-log run --tensors --export csv | wc -l) $(fp8-log --tensors --export csv <run/tensors.jsonl | tail -1)" "19 30,model.layers.1.mlp.up_proj.weight,wgrad,,rowwise,,,,,,,,,0.013"
{ cat run/tensors.jsonl; tensor 20 0.mlp.up_proj input 9.0 0.5 | head -c 70; echo; tensor 20 0.mlp.up_proj input 12.5 0.5; } >again.jsonl
is "a resumed run replaces later steps" "$(fp8-log again.jsonl --tensors | sed -n '1p;5p' | tr -s ' ' | tr '\n' ' ')" "2 steps, 10 to 20, 7 records model.layers.0.mlp.up_proj.weight forward input 12.5 20 12.5 "
{ cat run/tensors.jsonl; tensor 40 0.mlp.up_proj input 9.0 0.5 | head -c 70; } >cut.jsonl
is "an incomplete last line of statistics is ignored" "$(fp8-log cut.jsonl --tensors | head -1)" "3 steps, 10 to 30, 18 records"
for image in svg png; do
  ok "a heatmap is drawn as $image" fp8-log run --tensors --plot sqnr_db -o heat.$image
  ok "the heatmap of products is drawn as $image" fp8-log run --tensors --plot relative_error -o error.$image
done
says "a heatmap is drawn in the terminal" '^0 ' fp8-log run --tensors --plot sqnr_db
is "an SVG has the names of the linears and the steps" "$(grep -c -E '>(0 up_proj|1 up_proj|10|20|30)<' heat.svg)" 8
says "a heatmap is 1200 pixels wide" 'viewBox="0 0 1200 ' cat heat.svg
is "the labels of an SVG are inside" "$(sed -n 's/.*viewBox="0 0 [0-9]* \([0-9]*\)".*/height \1/p; s/.*translate([0-9.]*,\([0-9.]*\)).*/label \1/p' heat.svg |
  awk '$1 == "height" { height = $2 } $1 == "label" && $2 > low { low = $2 } END { print (height > 0 && low > 0 && low + 6 < height) }')" 1
tensor 10 0.self_attn.q_proj grad_output 21.5 0.01 >narrow.jsonl
says "a terminal that is too narrow for whole names has what tells them apart" '^0\.q_proj  *forward  *grad_output  *1' on_terminal fp8-log narrow.jsonl --tensors
says "a pipe has whole names" '^model\.layers\.0\.self_attn\.q_proj\.weight  *forward  *grad_output  *1$' fp8-log narrow.jsonl --tensors
for sqnr in 20 30; do
  tensor 10 0.mlp.up_proj input $sqnr.5 0.001 >one-$sqnr.jsonl
  for image in svg png; do fp8-log one-$sqnr.jsonl --tensors --plot sqnr_db -o one-$sqnr.$image; done
done
for image in svg png; do
  status "one step of one linear has the colour of its value as $image" 1 cmp one-20.$image one-30.$image
done
# A single cell is four rectangles.
is "an SVG has a rectangle for each of 6 cells, and no image" "$(grep -c '<image' error.svg) $(($(grep -c '<polygon' error.svg) - $(grep -c '<polygon' one-20.svg)))" "0 2"
refuses() { # NAME REGEX WORDS...
  name=$1 pattern=$2
  shift 2
  fp8-log "$@" >out 2>err </dev/null
  got=$?
  [ $got = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -Eq -e "^fp8-log: $pattern" err && [ ! -s out ]
  result $? "$name"
}
mkdir bare && cp run-a.jsonl bare/log.jsonl
refuses "a run without statistics" 'bare: contains no tensors.jsonl; fp8-step --tensor-stats-every writes it$' bare --tensors
refuses "a log as statistics" 'run-a.jsonl: line 1: no record of an operand, a GEMM, experts or routes$' run-a.jsonl --tensors
refuses "empty statistics" 'standard input: contains no statistics of tensors$' --tensors
refuses "two runs with --tensors" '--tensors: needs one run, found 2$' run run --tensors
refuses "--tensors with --compare" '--tensors: not together with --compare$' run run --tensors --compare
refuses "--tensors for TensorBoard" '--tensors: exports only csv$' run --tensors --export tensorboard -o board2
refuses "a metric that tensors do not have" 'no metric "loss" of tensors; available: amax, ' run --tensors --plot loss -o x.svg
refuses "a metric without values" 'run: no record has a value of subnormal_share$' run --tensors --plot subnormal_share -o x.svg
refuses "a heatmap with another extension" 'x.gif: the name of a plot must end in' run --tensors --plot sqnr_db -o x.gif
refuses "a heatmap that exists" 'heat.svg: exists' run --tensors --plot sqnr_db -o heat.svg

# Errors.
says "a missing file is refused" '^fp8-log: gone.jsonl: No such file' fp8-log gone.jsonl
status "a missing file gives status 2" 2 fp8-log gone.jsonl
mkdir empty
says "a folder without a log is refused" '^fp8-log: empty: contains no log.jsonl$' fp8-log empty
says "an empty log is refused" '^fp8-log: /dev/null: contains no record of a run$' fp8-log /dev/null
{ head -3 run-a.jsonl; echo 'not json'; tail -3 run-a.jsonl; } >bad.jsonl
says "a line that is not JSON is named" '^fp8-log: bad.jsonl: line 4 column 2: ' fp8-log bad.jsonl
printf '{"type":"step"}\n' >nostep.jsonl
says "a step record without a step is named" '^fp8-log: nostep.jsonl: line 1: "step" is missing$' fp8-log nostep.jsonl
says "a program is refused" '^fp8-log: .*: is a program, not the log of a run; give a run.s folder or its log.jsonl$' fp8-log "$BIN/fp8-log"
says "a checkpoint is refused" '^fp8-log: one.h5: is a checkpoint, not the log of a run; ' fp8-log one.h5
says "so is a folder that is a checkpoint" '^fp8-log: free/step-00000004: is a checkpoint, not a run; give the folder of its run' fp8-log free/step-00000004
says "a token file is refused" '^fp8-log: data.h5: is a token file, ' fp8-log --compare run-a.jsonl data.h5
says "--follow of a checkpoint too" '^fp8-log: one.h5: is a checkpoint, ' fp8-log --follow one.h5
says "statistics of tensors are no log" '^fp8-log: run/tensors.jsonl: contains no record of a run, but statistics of tensors, which --tensors shows$' fp8-log run/tensors.jsonl
status "standard input twice gives status 2" 2 fp8-log - -
says "--gate without --compare is refused" '^fp8-log: --gate: only with --compare$' fp8-log run-a.jsonl --gate 1
says "a negative gate is refused" '^fp8-log: --gate: ' fp8-log --compare run-a.jsonl run-b.jsonl --gate=-1
says "-o without --plot or --export is refused" '^fp8-log: --output: only with --plot or --export$' fp8-log run-a.jsonl -o x
says "--json with --plot is refused" '^fp8-log: --json: not together' fp8-log run-a.jsonl --plot loss --json
sed 's/"reason":"done"/"reason":"\\u001b[31m"/' run-a.jsonl >escape.jsonl
is "control characters in a log are escaped" "$(fp8-log escape.jsonl | grep -c "$(printf '\033')")" 0
cp run-a.jsonl "$(printf 'a\033[31m.jsonl')"
is "control characters in names are escaped" "$(fp8-log "$(printf 'a\033[31m.jsonl')" --plot loss | grep -c "$(printf '\033')")" 0

says "the help begins with an example" '^Example: fp8-log ' fp8-log --help
says "--version prints the version" '^fp8-log [0-9]' fp8-log --version
ok "bash accepts the completion script" bash -n -c "$(fp8-log --completion bash)"
done_testing
