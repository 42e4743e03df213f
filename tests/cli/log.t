#!/bin/sh
# fp8-log on the command line: summaries, comparison and its status, plots, exports, and what it refuses.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

curves=$SRC/tests/golden/curves
cp "$SRC"/tests/man/fixtures/run-a.jsonl "$SRC"/tests/man/fixtures/run-b.jsonl .
mkdir run
cp run-a.jsonl run/log.jsonl
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# Summaries.
says "a folder" '^run +run$' fp8-log run
says "its loss" '^final loss +2\.2039$' fp8-log run
says "several side by side" '^precision +bf16 +fp8 tensorwise$' fp8-log run run-b.jsonl
ok "JSON" fp8-log run run-b.jsonl --json
is "an object a run, a line each" "$(wc -l <out)" 2
is "with the values of the log" "$(head -1 out | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(r["path"], r["steps"], r["tokens"], r["final_loss"], r["precision"], r["checkpoints"], r["restarts"], r["finished"], r["reason"])')" \
  "run 12 49152 2.203938 bf16 2 0 True done"
is "standard input" "$(fp8-log --json <run-a.jsonl | field path)" "-"
is "and by its name" "$(fp8-log - --json <run-a.jsonl | field steps)" 12
is "steps from 0 and fewer fields are fine" "$(fp8-log "$curves/llama3-fp32.jsonl" --json | field tokens)" 51200
{ head -8 run-a.jsonl; printf '{"type":"step","st'; } >torn.jsonl
is "an incomplete last line is ignored" "$(fp8-log torn.jsonl --json | field steps)" 6
{ cat run-a.jsonl; sed -n '1p;5,8p' run-a.jsonl; } >resumed.jsonl
is "a resumed run goes on from its step" "$(fp8-log resumed.jsonl --json | field steps)" 6
is "is counted" "$(fp8-log resumed.jsonl --json | field restarts)" 1
is "and is not finished" "$(fp8-log resumed.jsonl --json | field finished)" False
is "no colour in a pipe" "$(fp8-log run-a.jsonl | grep -c "$(printf '\033')")" 0

# Comparison. The README of the curves gives the gaps: +4.7e-3, +2.2e-3, +1.7e-3 over the last 50 steps.
for pair in tensorwise:0.0047 rowwise:0.0022 rowwise_with_gw_hp:0.0017; do
  fp8-log --compare "$curves/llama3-bf16.jsonl" "$curves/llama3-${pair%:*}.jsonl" --json >out 2>err
  is "the gap of ${pair%:*}" "$(python3 -c 'import json; print(round(json.load(open("out"))["gap"], 4))')" "${pair#*:}"
done
status "a gate that is met" 0 fp8-log --compare run-a.jsonl run-b.jsonl --gate 0.01
says "says so" '^gate met: the loss gap of \+0\.0024 nats is within 0\.01$' fp8-log --compare run-a.jsonl run-b.jsonl --gate 0.01
status "one that is not" 1 fp8-log --compare run-a.jsonl run-b.jsonl --gate 0.0000001
says "says so" '^gate not met: ' fp8-log --compare run-a.jsonl run-b.jsonl --gate 0.0000001
status "nor with the runs exchanged" 1 fp8-log --compare run-b.jsonl run-a.jsonl --gate 0.0000001
status "in JSON too" 1 fp8-log --compare run-a.jsonl run-b.jsonl --gate 0.0000001 --json
is "with the verdict" "$(field met <out)" False
status "a run equals itself" 0 fp8-log --compare run run-a.jsonl --gate 0
says "speed and memory" '^peak memory .* 0\.778 x$' fp8-log --compare run-a.jsonl run-b.jsonl
{ head -1 run-a.jsonl; sed -n '2,9s/"loss":[0-9.]*/"loss":null/p' run-a.jsonl; sed -n '10,99p' run-a.jsonl; } >nulls.jsonl
{ head -8 run-a.jsonl; sed -n '9,99s/"loss":[0-9.]*/"loss":null/p' run-a.jsonl; } >diverged.jsonl
status "losses that are not finite at the beginning" 0 fp8-log --compare run-a.jsonl nulls.jsonl --gate 1
status "non-finite losses at the end fail every gate" 1 fp8-log --compare run-a.jsonl diverged.jsonl --gate 1000
sed 's/"tokens":/&9/' run-a.jsonl >far.jsonl
says "no tokens in common" '^fp8-log: no tokens in common: run-a.jsonl has 4096 to 49152, far.jsonl has ' fp8-log --compare run-a.jsonl far.jsonl
status "is an error" 2 fp8-log --compare run-a.jsonl far.jsonl
status "one run is not two" 2 fp8-log --compare run-a.jsonl
is "it says" "$(cat err)" "fp8-log: --compare: needs two runs, found 1"

# Pipes: read as any file, and told of when nothing comes.
mkfifo pipe.jsonl
: >err
fp8-log pipe.jsonl --json >out 2>err &
job=$!
tries=0
until [ -s err ] || [ $((tries = tries + 1)) = 200 ]; do sleep 0.05; done
is "a pipe to which nothing is written is named" "$(cat err)" "fp8-log: pipe.jsonl: is a pipe to which nothing has been written yet; waiting"
cat run-a.jsonl >pipe.jsonl
wait $job
is "and read when something comes" "$? $(field steps <out)" "0 12"
cat run-a.jsonl >pipe.jsonl &
ok "a pipe with a writer" fp8-log pipe.jsonl --json
is "is read without a note" "$(cat err) $(field steps <out)" " 12"
status "a pipe cannot be followed" 2 timeout 10 fp8-log --follow pipe.jsonl
is "it says" "$(cat err)" "fp8-log: pipe.jsonl: is a named pipe, which cannot be followed; redirect it to standard input and follow -"

# Names that come from files.
cp run-a.jsonl "$(printf 'a\033[31mb.jsonl')"
for format in csv prometheus trace; do
  is "$format holds no control characters" "$(fp8-log a*b.jsonl --export $format | tr -d '\n' | tr -cd '\000-\037\177' | wc -c)" 0
done
fp8-log a*b.jsonl --export csv >out
is "a name comes back from CSV" "$(python3 -c '
import csv, re
name = list(csv.reader(open("out")))[1][0]
print(re.sub(r"\\x(..)|\\(.)", lambda m: chr(int(m[1], 16)) if m[1] else m[2], name) == "a\x1b[31mb")')" True

# Plots.
says "in the terminal" '^loss +.* run-a$' fp8-log run-a.jsonl --plot loss
for e in svg png; do
  ok "$e" fp8-log run-a.jsonl run-b.jsonl --plot loss -o "loss.$e"
  is "says nothing" "$(cat out err)" ""
done
says "the svg is one" '</svg>' tail -2 loss.svg
is "the png is one" "$(head -c 4 loss.png | tail -c 3)" PNG
status "an output that exists is refused" 2 fp8-log run-a.jsonl --plot lr -o loss.svg
ok "but replaced with --force" fp8-log run-a.jsonl --plot lr -o loss.svg --force
says "another kind of file" '^fp8-log: a.pdf: the name of a plot must end in .svg or .png$' fp8-log run-a.jsonl --plot lr -o a.pdf
says "a metric that is not there" '^fp8-log: no metric "los"; available: loss, grad_norm, lr, .*, eval_loss$' fp8-log run-a.jsonl --plot los
status "is an error" 2 fp8-log run-a.jsonl --plot los
ln -s "$BIN/fp8-log" fp8-log
says "gnuplot missing" '^fp8-log: gnuplot: not installed' env PATH=/nowhere ./fp8-log run-a.jsonl --plot lr -o b.svg
mkdir bin
printf '#!/bin/sh\necho "line 1: no such terminal" >&2\nexit 3\n' >bin/gnuplot
chmod +x bin/gnuplot
says "gnuplot failing" '^fp8-log: gnuplot: status 3: line 1: no such terminal$' \
  env PATH="$work/bin:$PATH" fp8-log run-a.jsonl --plot lr -o b.svg
printf '#!/bin/sh\necho "<svg>"\n' >bin/gnuplot # as it does, with status 0, where what it writes to is full
says "truncated output of gnuplot" '^fp8-log: gnuplot: the image is truncated$' env PATH="$work/bin:$PATH" fp8-log run-a.jsonl --plot lr -o b.svg
for e in svg png csv; do
  what="--plot lr"
  [ $e != csv ] || what="--export csv"
  # shellcheck disable=SC2086 # words on purpose
  (ulimit -f 1 && exec fp8-log run-a.jsonl $what -o b.$e) >out 2>err
  is "no room for a $e" "$? $(wc -l <err)" "2 1"
done
is "no temporary file of either is left" "$(find . -name '*b.[spc]*')" ""

# Exports.
ok "csv" fp8-log run-a.jsonl run-b.jsonl --export csv -o runs.csv
is "a line a step" "$(wc -l <runs.csv)" 25
is "with its heading" "$(head -1 runs.csv | cut -d, -f1-6)" run,step,tokens,precision,recipe,loss
is "to standard output without -o" "$(fp8-log run-a.jsonl run-b.jsonl --export csv | cksum)" "$(cksum <runs.csv)"
says "prometheus" '^fp8_loss\{run="run-b"\} 2\.209652$' fp8-log run-a.jsonl run-b.jsonl --export prometheus
mkdir -p x/run y/run
cp run-a.jsonl x/run/log.jsonl
cp run-b.jsonl y/run/log.jsonl
is "runs of one name are told apart: prometheus" "$(fp8-log x/run y/run --export prometheus | grep '^fp8_step{')" "$(printf 'fp8_step{run="x/run"} 12\nfp8_step{run="y/run"} 12')"
is "csv" "$(fp8-log x/run y/run --export csv | cut -d, -f1 | uniq | tr '\n' ' ')" "run x/run y/run "
is "JSON" "$(fp8-log x/run y/run run-a.jsonl --json | while read -r line; do echo "$line" | field name; done | tr '\n' ' ')" "x/run y/run run-a "
says "the table" '^run +x/run +y/run$' fp8-log x/run y/run
says "a comparison" '^metric +x/run +y/run +difference$' fp8-log --compare x/run y/run
ok "and tensorboard" fp8-log x/run y/run --export tensorboard -o same
is "with all folders inside" "$(ls same)" "$(printf 'run\nrun-2')"
ok "tensorboard, one run" fp8-log run-a.jsonl --export tensorboard -o board
is "is a folder with an event file" "$(ls board)" events.out.tfevents.0.fp8
is "that names its version" "$(head -c 36 board/* | tail -c 13)" brain.Event:2
ok "several runs" fp8-log run-a.jsonl run-b.jsonl run-b.jsonl --export tensorboard -o boards
is "are a folder each" "$(ls boards)" "$(printf 'run-a\nrun-b\nrun-b-2')"
ok "an event file by its name" fp8-log run-a.jsonl --export tensorboard -o one.tfevents
ok "has the same bytes" cmp one.tfevents board/events.out.tfevents.0.fp8
status "event files on standard output" 2 fp8-log run-a.jsonl --export tensorboard
status "an export that exists is refused" 2 fp8-log run-a.jsonl --export csv -o runs.csv
says "an unknown format" '^fp8-log: --export: ' fp8-log run-a.jsonl --export parquet
ok "a trace" fp8-log run-a.jsonl run-b.jsonl --export trace -o trace.json
is "has a bar for each step" "$(python3 -c '
import collections, json
events = json.load(open("trace.json"))["traceEvents"]
print(sorted(collections.Counter(e["ph"] + " " + e["name"].split()[0] for e in events if e["pid"] == 1).items()))')" \
  "[('C grad_norm', 12), ('C loss', 12), ('C tokens_per_s', 12), ('M process_name', 1), ('M thread_name', 4), ('X bf16', 1), ('X save', 2), ('X step', 12), ('X waiting', 12), ('i evaluation', 2)]"
says "a trace without times" '^fp8-log: notime.jsonl: has no step durations' \
  sh -c "sed 's/step_s/x_s/' run-a.jsonl >notime.jsonl; fp8-log notime.jsonl --export trace"
fp8-log run-a.jsonl --export csv >/dev/full 2>err
is "a full standard output is noticed" $? 2
sh -c 'trap "" XFSZ; ulimit -f 1; exec fp8-log run-a.jsonl --export csv -o full.csv' >out 2>err
is "so is a full disk" $? 2
is "and no temporary file is left" "$(find . -name '*full.csv*')" ""

# A live view: a run that is not there yet, a line that comes in two parts, a restart, a log that is replaced, the end.
shown() { # PATTERN: waits until a line of the view has it
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
shown '^no step yet$'
sed -n 2,4p run-a.jsonl >>new/log.jsonl
shown '^step 3 of 12 \(25 %\), loss 2.6068, 19.9 k tokens/s, 0.21 s/step, 1.9 s left$'
sed -n 5p run-a.jsonl | head -c 30 >>new/log.jsonl
sleep 0.2
sed -n 5p run-a.jsonl | tail -c +31 >>new/log.jsonl
shown '^step 4 of 12 '
{ printf '{"type":"st\n' && sleep 0.2 && sed -n '1p;3,6p' run-a.jsonl; } >>new/log.jsonl
shown '^step 5 of 12 .* 1 restart$'
head -3 run-a.jsonl >new/log.jsonl
shown '^step 2 of 12 \(16 %\), loss [0-9.]*, [^r]*$'
cp run-a.jsonl other && mv other new/log.jsonl
wait "$view"
is "ends with the run, quietly" "$?$(cat live.err)" 0
is "with a last line" "$(tail -1 live)" \
  "step 12 of 12 (100 %), loss 2.2039, evaluation 2.2539, 19.6 k tokens/s, 0.21 s/step, saved at 12, ended: done"
says "a pipe is followed to its end" '^step 6 of 12 .*, no end record$' sh -c "head -8 run-a.jsonl | fp8-log --follow"
sed 's/"reason":"done"/"reason":"until-step"/; s/"steps":12/"steps":24/' run-a.jsonl >phase.jsonl
says "the end of a phase is an end when nothing follows" 'ended: until-step$' fp8-log --follow phase.jsonl --interval 0.05
is "an interrupt ends it quietly" "$(python3 - <<'END'
import signal, subprocess, time
view = subprocess.Popen(["fp8-log", "--follow", "run-b.jsonl.not", "--interval", "0.05"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
view.stdout.readline()
view.send_signal(signal.SIGINT)
print(set(view.stdout.read().decode().splitlines()) - {"run-b.jsonl.not: no log yet"}, view.wait() == -signal.SIGINT)
END
)" "set() True"
says "a terminal is drawn in place" "$(printf '\033')\[J" script -qec "fp8-log --follow run-a.jsonl" /dev/null
says "with the curve" '^loss .* run-a' script -qec "fp8-log --follow run-a.jsonl" /dev/null
says "a damaged log" '^fp8-log: bad1.jsonl: line 2 column 1: ' sh -c '{ head -1 run-a.jsonl; echo x y; head -2 run-a.jsonl | tail -1; } >bad1.jsonl; fp8-log --follow bad1.jsonl'
says "one run is followed" '^fp8-log: --follow: needs one run, found 2$' fp8-log --follow run-a.jsonl run-b.jsonl
says "an interval without --follow" '^fp8-log: --interval: only with --follow$' fp8-log run-a.jsonl --interval 3
says "following a comparison" '^fp8-log: --follow: not together with --compare$' fp8-log --follow --compare run-a.jsonl run-b.jsonl

# What is refused.
says "a missing file" '^fp8-log: gone.jsonl: No such file' fp8-log gone.jsonl
status "its status" 2 fp8-log gone.jsonl
mkdir empty
says "a folder without a log" '^fp8-log: empty: contains no log.jsonl$' fp8-log empty
says "an empty log" '^fp8-log: /dev/null: contains no record of a run$' fp8-log /dev/null
{ head -3 run-a.jsonl; echo 'not json'; tail -3 run-a.jsonl; } >bad.jsonl
says "what is not JSON is named by its line" '^fp8-log: bad.jsonl: line 4 column 2: ' fp8-log bad.jsonl
printf '{"type":"step"}\n' >nostep.jsonl
says "a step without its number" '^fp8-log: nostep.jsonl: line 1: "step" is missing$' fp8-log nostep.jsonl
says "a file that is no log" '^fp8-log: .*: line 1 column [0-9]+: ' fp8-log "$BIN/fp8-log"
status "standard input twice" 2 fp8-log - -
says "a gate without a comparison" '^fp8-log: --gate: only with --compare$' fp8-log run-a.jsonl --gate 1
says "a gate below zero" '^fp8-log: --gate: ' fp8-log --compare run-a.jsonl run-b.jsonl --gate=-1
says "an output without a plot or an export" '^fp8-log: --output: only with --plot or --export$' fp8-log run-a.jsonl -o x
says "a plot with a comparison" '^fp8-log: --plot: not together with --compare$' fp8-log --compare run-a.jsonl run-b.jsonl --plot loss
says "JSON of a plot" '^fp8-log: --json: not together' fp8-log run-a.jsonl --plot loss --json
sed 's/"reason":"done"/"reason":"\\u001b[31m"/' run-a.jsonl >escape.jsonl
is "text from a log is escaped" "$(fp8-log escape.jsonl | grep -c "$(printf '\033')")" 0
cp run-a.jsonl "$(printf 'a\033[31m.jsonl')"
is "names too" "$(fp8-log "$(printf 'a\033[31m.jsonl')" --plot loss | grep -c "$(printf '\033')")" 0

says "help begins with an example" '^Example: fp8-log ' fp8-log --help
says "version" '^fp8-log [0-9]' fp8-log --version
ok "completion" bash -n -c "$(fp8-log --completion bash)"
done_testing
