#!/bin/sh
# Stages of a run (--pp) that are killed at random moments, in turn: no checkpoint is lost, and the run goes on.
# KILLS is the number of kills, 3 unless it is
# set. make check-kills runs 50.
# shellcheck disable=SC2154 # tests/cli/train.sh sets kept and there
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
fp8-init tiny --set num_hidden_layers=4 -o u.h5 -q >out 2>err
result $? "a model of four layers is made"

kills=${KILLS:-3} number=0 seed=$(date +%s)
while [ $number -lt "$kills" ]; do
  rank=$((number % 3)) way=
  [ $((number % 2)) = 0 ] || way=--async-save
  number=$((number + 1))
  # A second is the time of several steps, each of which saves.
  pause=$(awk -v seed=$((seed + number)) 'BEGIN { srand(seed); rand(); printf "%.3f", rand() }')
  # shellcheck disable=SC2086 # no flag or one
  kill_rank "kill $number, rank $rank, $pause s after a checkpoint${way:+, $way}" 3 $rank "sleep $pause" u.h5 --batch-size 2 --grad-accumulation 4 \
    --pp 3 $way
done
echo "# ${0##*/}: $kept of $kills kills lost nothing" >&2
at=$(echo "${there##*-}" | sed 's/^0*//')
fp8-step u.h5 --data d.h5 --seq-length 32 --batch-size 2 --grad-accumulation 4 --steps 100000 --lr 1e-3 --precision fp8 --recipe delayed \
  --amax-history 3 --save-every 1 --keep 2 --until-step $((at + 1)) --out killed -q >log 2>err </dev/null
is "one rank goes on, and removes what the kills left" "$? $(find killed -name '*.tmp') $(losses log | cut -d' ' -f1)" "0  $((at + 1))"
done_testing
