#!/usr/bin/env bash
# Trains a model on a text in bf16 and in FP8, three pairs of runs, compares them, and generates text with one. `make demo` runs this script after
# the build. Each command is printed before it runs. Takes half a minute to two minutes on two cores.
#   examples/1-demo/run.sh [FOLDER]      FOLDER (default: build/demo) must be new, empty, or made by an earlier demo, which is then deleted
# BIN is the folder of the programs (default: build/bin), STEPS the number of steps of a run (default: 200, at least 10), SEEDS the number of pairs (default: 3),
# TEXT the text file, PRESET the model (default: demo). The script checks only the exit status of each command.
set -euo pipefail
export LC_ALL=C.UTF-8
root=$(cd "$(dirname "$0")/../.." && pwd)
BIN=${BIN:-$root/build/bin}
folder=${1:-$(dirname "$BIN")/demo}
steps=${STEPS:-200}
seeds=${SEEDS:-3}
preset=${PRESET:-demo}
text=$(realpath "${TEXT:-$root/share/text/tinyshakespeare.txt}")
held_bytes=$((($(wc -c <"$text") + 9) / 10)) # the last tenth of the text

. "$root/examples/common.sh"

# Reads step records and prints a line for every fifth of the run; on a terminal it also shows the newest step.
watch_steps() {
  local record step loss speed line wipe=
  if [ -n "$terminal" ]; then wipe=$'\r\e[K'; fi
  while IFS= read -r record; do
    [[ $record == '{"type":"step",'* ]] || continue
    step='' loss='-' speed='-'
    if [[ $record =~ \"step\":([0-9]+) ]]; then step=${BASH_REMATCH[1]}; fi
    if [[ $record =~ \"loss\":([0-9.]+) ]]; then printf -v loss '%#.4g' "${BASH_REMATCH[1]}"; fi
    if [[ $record =~ \"tokens_per_s\":([0-9]+) ]]; then speed=${BASH_REMATCH[1]}; fi
    printf -v line '  step %4d of %d   loss %-5s   %6s tokens/s' "$step" "$steps" "$loss" "$speed"
    if ((step == 1 || step % (steps / 5) == 0)); then
      printf '%s%s\n' "$wipe" "$line"
    elif [ -n "$terminal" ]; then
      printf '%s%s' "$wipe" "$line"
    fi
  done
}

# train NAME FLAGS...: trains the run NAME and shows its progress.
train() {
  local command=(mpirun -n 2 fp8-step model.h5 --config demo.json --out "$@")
  show "${command[@]}"
  "${command[@]}" | watch_steps
}

begin "$folder" "Small programs that train language models in FP8"

say "1  Tokenize the text, one token per byte; hold out the last tenth for evaluation"
head -c "-$held_bytes" "$text" >train.txt
tail -c "$held_bytes" "$text" >held.txt
run fp8-tokenize train.txt -o train.h5
run fp8-tokenize held.txt -o held.h5

say "2  Make a new model and select the linear layers that can run in FP8"
run fp8-init "$preset" --seed 1 -o fresh.h5
run fp8-convert fresh.h5 -o model.h5

say "3  Write one configuration for all runs"
cat >demo.json <<EOF
{
  "data": "train.h5", "seq-length": 128, "batch-size": 4,
  "eval-data": "held.h5", "eval-every": $steps,
  "steps": $steps, "lr": 1e-3, "min-lr": 5e-5, "warmup-steps": $((steps / 25))
}
EOF
run cat demo.json

say "4  Train in bf16 and in FP8 on the same tokens, on two ranks. What runs in FP8 is printed first"
train bf16-1 --seed 1 --precision bf16 --quiet
train fp8-1 --seed 1 --precision fp8 --recipe tensorwise

say "5  More pairs, with other seeds: one pair alone does not show how much is chance"
for ((seed = 2; seed <= seeds; ++seed)); do
  train bf16-$seed --seed $seed --precision bf16 --quiet
  train fp8-$seed --seed $seed --precision fp8 --recipe tensorwise --quiet
done

say "6  Evaluate a run in FP8 on the text that was held out"
printf -v last 'step-%08d' "$steps"
run mpirun -n 2 fp8-eval "fp8-1/$last" --data held.h5 --seq-length 128 --precision fp8

say "7  All runs, and the gap between FP8 and bf16 with its interval"
bf16=(bf16-1) fp8=(fp8-1)
for ((seed = 2; seed <= seeds; ++seed)); do bf16+=("bf16-$seed") fp8+=("fp8-$seed"); done
sides=("$(IFS=, && echo "${bf16[*]}")" "$(IFS=, && echo "${fp8[*]}")")
run fp8-log "${bf16[@]}" "${fp8[@]}" --sort loss
echo
run fp8-log --plot loss bf16-1 fp8-1
if command -v gnuplot >/dev/null; then run fp8-log --compare "${sides[@]}" --plot loss -o loss.svg; fi
echo
run fp8-log --compare "${sides[@]}" --gate 0.05 || [ $? = 1 ] # 1: not met, or cannot tell

say "8  Let the model that was trained in FP8 speak"
run fp8-generate "fp8-1/$last" ROMEO: --max-tokens 100 --temperature 0.8 --seed 1 --precision fp8

printf '\nDone in %d s. The runs are in %s\n' "$SECONDS" "$(pwd)"
echo "Next: mandoc -a $root/man/man7/fp8-tutorial.7"
