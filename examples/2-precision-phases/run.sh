#!/usr/bin/env bash
# One run in three phases, bf16 -> FP8 -> bf16: by a plan and fp8-resume, and the same by hand with fp8-resume --print in a loop of shell. Every
# command is shown before it runs, so that it can be typed as well. Less than a minute on two cores.
#   examples/2-precision-phases/run.sh [FOLDER]      FOLDER, build/precision-phases by default, is emptied if an earlier start of this example made
#                                                    it, and is otherwise to be new or empty
# BIN is the folder of the programs, build/bin by default; STEPS trains as many steps, 120 unless told, 10 at least. Besides that every command
# succeeds it checks that both ways come to the same bits.
set -euo pipefail
export LC_ALL=C.UTF-8
root=$(cd "$(dirname "$0")/../.." && pwd)
BIN=${BIN:-$root/build/bin}
folder=${1:-$(dirname "$BIN")/precision-phases}
steps=${STEPS:-120}

# Two ranks of one thread each, wherever this runs: as root in a container, or on fewer cores than ranks.
export PATH=$BIN:$PATH FP8_SHARE=$root/share OMP_NUM_THREADS=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi

bold='' plain=''
if [ -t 1 ] && [ -n "${TERM:-}" ] && [ "${TERM:-}" != dumb ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' plain=$'\e[0m'; fi
say() { printf '\n%s%s%s\n\n' "$bold" "$1" "$plain"; }
show() { printf '$ %s\n' "$*"; }
run() {
  show "$@"
  "$@"
}

mark=.fp8-precision-phases
if [ -e "$folder" ] && [ ! -d "$folder" ]; then
  echo "example: $folder: exists and is not a folder" >&2
  exit 2
fi
if [ -n "$(ls -A "$folder" 2>/dev/null)" ] && [ ! -e "$folder/$mark" ]; then
  echo "example: $folder: holds other files; name a new folder" >&2
  exit 2
fi
rm -rf -- "$folder"
mkdir -p -- "$folder"
cd -- "$folder"
touch "$mark"
SECONDS=0
printf '%s\n' "${bold}A run in three precision phases$plain" "in $(pwd)"

say "1  Data, a small model, one configuration"
run fp8-tokenize "$root/share/text/tinyshakespeare.txt" -o data.h5
run fp8-init tiny --seed 1 -o model.h5
cat >run.json <<EOF
{"data": "data.h5", "seq-length": 128, "batch-size": 8, "steps": $steps, "lr": 3e-3, "warmup-steps": $((steps / 20))}
EOF
run cat run.json

say "2  The plan: a phase a line, the step where it ends and its flags"
cat >warmup.plan <<EOF
$((steps / 10))   --precision bf16
$((steps - steps / 10))  --precision fp8 --recipe tensorwise
$steps  --precision bf16
EOF
run cat warmup.plan

say "3  fp8-resume runs it to the end, a start for each phase"
show fp8-resume planned --plan warmup.plan -- mpirun -n 2 fp8-step model.h5 --config run.json --quiet ">planned.jsonl"
fp8-resume planned --plan warmup.plan -- mpirun -n 2 fp8-step model.h5 --config run.json --quiet >planned.jsonl

say "4  Its decisions are records between those of the steps"
show "grep '\"type\":\"resume\"' planned.jsonl | cut -c -100"
grep '"type":"resume"' planned.jsonl | cut -c -100

say "5  The same by hand: while the newest checkpoint is short of the phase's end, start the phase"
cat >byhand.sh <<'EOF'
while read -r until flags; do
  until newest=$(fp8-resume byhand --print) && [ "${newest##*-}" -ge "$until" ]; do
    mpirun -n 2 fp8-step model.h5 --config run.json --out byhand --until-step "$until" $flags </dev/null || exit
  done
done <warmup.plan
EOF
run cat byhand.sh
show "sh byhand.sh >byhand.jsonl 2>byhand.txt"
sh byhand.sh >byhand.jsonl 2>byhand.txt

say "6  Both are the same run, bit for bit"
printf -v last 'step-%08d' "$steps"
show "fp8-info planned/$last --diff byhand/$last | tail -n 1"
fp8-info "planned/$last" --diff "byhand/$last" | tail -n 1

say "7  What ran in which precision, and the loss"
run fp8-log planned
run fp8-log --plot loss planned

printf '\nDone in %d s. The runs are in %s\n' "$SECONDS" "$(pwd)"
echo "Next: man fp8-resume, man fp8-plan, and a plan to start from in $root/share/plans"
