#!/usr/bin/env bash
# Trains a small model on a text in bf16 and in five FP8 recipes, with three seeds each, and shows which recipe costs how much: the gaps of the
# training loss and of the loss on held-out text to bf16, with their intervals. Each command is printed before it runs. Takes about five minutes on
# two cores.
#   examples/4-recipes/run.sh [FOLDER]      FOLDER (default: build/recipes) must be new, empty, or made by an earlier run of this example, which is
#                                           then deleted
# BIN is the folder of the programs (default: build/bin), STEPS the number of steps of a run (default: 240, at least 10), TEXT the text file, whose
# last tenth is held out, PRESET the model (default: demo), JOBS the number of runs at the same time (default: one for each core, at most 4). The script
# checks only the exit status of each command.
set -euo pipefail
export LC_ALL=C.UTF-8
root=$(cd "$(dirname "$0")/../.." && pwd)
BIN=${BIN:-$root/build/bin}
folder=${1:-$(dirname "$BIN")/recipes}
steps=${STEPS:-240}
preset=${PRESET:-demo}
text=$(realpath "${TEXT:-$root/share/text/tinyshakespeare.txt}")
held_bytes=$((($(wc -c <"$text") + 9) / 10))
cores=$(env -u OMP_NUM_THREADS nproc)
jobs=${JOBS:-$((cores < 4 ? cores : 4))}

. "$root/examples/common.sh"

begin "$folder" "Which recipe costs how much"

say "1  Tokenize the text; hold out the last tenth for evaluation"
head -c "-$held_bytes" "$text" >train.txt
tail -c "$held_bytes" "$text" >held.txt
run fp8-tokenize train.txt -o train.h5
run fp8-tokenize held.txt -o held.h5

say "2  Make a model, and write the configuration of all runs"
run fp8-init "$preset" --seed 1 -o model.h5
cat >run.json <<END
{
  "data": "train.h5", "seq-length": 128, "batch-size": 8,
  "eval-data": "held.h5", "eval-every": $steps,
  "steps": $steps, "lr": 1e-3, "min-lr": 5e-5, "warmup-steps": $((steps / 25))
}
END
run cat run.json

say "3  Write the sweep: what is compared, and the seeds"
cat >recipes.sweep <<'END'
seed = 1, 2, 3

side bf16:        --precision bf16
side tensorwise:  --precision fp8 --recipe tensorwise
side rowwise:     --precision fp8 --recipe rowwise
side delayed:     --precision fp8 --recipe delayed
side blockwise:   --precision fp8 --recipe blockwise
side mxfp8:       --precision fp8 --recipe mxfp8
END
run cat recipes.sweep

say "4  Run every side with every seed, $jobs at a time; the same command again would continue a stopped sweep"
run fp8-sweep recipes.sweep --jobs "$jobs" -- fp8-step model.h5 --config run.json --quiet

say "5  Compare each recipe with bf16, paired by seed, and draw the gaps"
run fp8-log --compare recipes
run fp8-log --compare recipes --plot gaps -o gaps.svg

printf '\nDone in %d s. The runs are in %s\n' "$SECONDS" "$(pwd)"
echo "Next: man fp8-sweep, and TEXT=... $root/examples/4-recipes/run.sh for another text"
