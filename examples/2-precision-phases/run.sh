#!/usr/bin/env bash
# Trains one run in three phases, bf16, FP8, bf16: first with fp8-resume and a phases file, then with a shell loop around fp8-resume --print. Each command is
# printed before it runs. Takes less than a minute on two cores.
#   examples/2-precision-phases/run.sh [FOLDER]      FOLDER (default: build/precision-phases) must be new, empty, or made by an earlier run of this
#                                                    example, which is then deleted
# BIN is the folder of the programs (default: build/bin), STEPS the number of steps (default: 120, at least 10). The script checks the exit status of
# each command, and that both runs end with identical weights and moments.
set -euo pipefail
export LC_ALL=C.UTF-8
root=$(cd "$(dirname "$0")/../.." && pwd)
BIN=${BIN:-$root/build/bin}
folder=${1:-$(dirname "$BIN")/precision-phases}
steps=${STEPS:-120}

. "$root/examples/common.sh"

begin "$folder" "A run in three precision phases"

say "1  Make the data, a small model and a configuration"
run fp8-tokenize "$root/share/text/tinyshakespeare.txt" -o data.h5
run fp8-init tiny --seed 1 -o model.h5
cat >run.json <<EOF
{"data": "data.h5", "seq-length": 128, "batch-size": 8, "steps": $steps, "lr": 3e-3, "warmup-steps": $((steps / 20))}
EOF
run cat run.json

say "2  Write the phases file: one line per phase, with its last step and its flags"
cat >warmup.phases <<EOF
$((steps / 10))   --precision bf16
$((steps - steps / 10))  --precision fp8 --recipe tensorwise
$steps  --precision bf16
EOF
run cat warmup.phases

say "3  Run all phases with fp8-resume, which starts fp8-step once per phase"
show fp8-resume supervised --phases warmup.phases -- mpirun -n 2 fp8-step model.h5 --config run.json --quiet ">supervised.jsonl"
fp8-resume supervised --phases warmup.phases -- mpirun -n 2 fp8-step model.h5 --config run.json --quiet >supervised.jsonl

say "4  Show the records of fp8-resume among the step records"
show "grep '\"type\":\"resume\"' supervised.jsonl | cut -c -100"
grep '"type":"resume"' supervised.jsonl | cut -c -100

say "5  Do the same in a shell loop: start each phase until the newest checkpoint is at its last step"
cat >byhand.sh <<'EOF'
while read -r until flags; do
  until newest=$(fp8-resume byhand --print) && [ "${newest##*-}" -ge "$until" ]; do
    mpirun -n 2 fp8-step model.h5 --config run.json --out byhand --until-step "$until" $flags </dev/null || exit
  done
done <warmup.phases
EOF
run cat byhand.sh
show "sh byhand.sh >byhand.jsonl 2>byhand.txt"
sh byhand.sh >byhand.jsonl 2>byhand.txt

say "6  Check that both runs are identical, bit for bit"
printf -v last 'step-%08d' "$steps"
show "fp8-info supervised/$last --diff byhand/$last | tail -n 1"
fp8-info "supervised/$last" --diff "byhand/$last" | tail -n 1

say "7  Show the precision of each phase and the loss"
run fp8-log supervised
run fp8-log --plot loss supervised

printf '\nDone in %d s. The runs are in %s\n' "$SECONDS" "$(pwd)"
echo "Next: man fp8-resume, man fp8-phases, and a phases file to start from in $root/share/phases"
