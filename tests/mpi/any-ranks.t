#!/bin/sh
# A run that resumes with another number of ranks at each step, over all pairs of 1 to 5, has the losses of a run on one
# rank. lib/state/tests/state_test.cc checks that the checkpoints are equal.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
walk="1 2 1 3 1 4 1 5 2 3 2 4 2 5 3 4 3 5 4 5 1"
is "the sequence of numbers of ranks contains all ordered pairs" "$(echo $walk | tr ' ' '\n' | awk 'NR > 1 && $1 != last { seen[last $1] } { last = $1 } END { for (i in seen) n++; print n }')" 20
all="m.h5 --data d.h5 --seq-length 8 --precision fp32 --lr 3e-3 --steps 21 -q"
fp8-step $all --batch-size 60 --out whole >whole.log 2>err
at=0
for ranks in $walk; do
  at=$((at + 1))
  mpirun -n $ranks fp8-step $all --batch-size $((60 / ranks)) --out moving --until-step $at --keep 1 >>moving.log 2>err </dev/null || break
done
is "each step runs once" "$(losses moving.log | cut -d' ' -f1 | tr '\n' ' ')" "$(seq 21 | tr '\n' ' ')"
near "the losses are those of a run on one rank" moving.log whole.log 1e-6
is "the records have the numbers of ranks" "$(grep -o '"dp_shard":[0-9]*' moving.log | cut -d: -f2 | tr '\n' ' ')" "$walk "
done_testing
