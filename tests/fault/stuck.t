#!/bin/sh
# Saves on a disk that hangs: the rank, and what it waits for, are named within --timeout, and the job ends with status 1. A disk that is slow and
# answers is waited for.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
. "$SRC/tests/fault/lib.sh"
export OMP_NUM_THREADS=1 FAULT_IN=fp8-step
limit=3 # seconds
train="fp8-step ../m.h5 --data ../d.h5 --seq-length 16 --batch-size 2 --steps 4 --save-every 2 --keep 1 --out run -q"

# stuck NAME RANK CALL PATH WHAT COMMAND...: the first CALL of that rank on a path that ends in PATH never returns
stuck() {
  name=$1 rank=$2 call=$3 path=$4 what=$5
  shift 5
  rm -rf run
  start=$(date +%s)
  FAULT_CALLS=$call FAULT_PATH=$path faulty hang 1 timeout 60 "$@" --timeout $limit
  is "$name: status 1, and one line" "$? $(grep -c '^fp8-' ../err) $(grep -c "^fp8-step: rank $rank: $what: no progress within $limit s\$" ../err)" \
    "1 1 1"
  [ $(($(date +%s) - start)) -le $((limit + 20)) ]
  result $? "$name: in time"
}
cases() { # FLAG...: with these flags
  export FAULT_RANK=
  stuck "a write${1:+, $1}" 0 write 'step-00000002.tmp/rank-00000-of-00001.h5' 'writing run/step-00000002.tmp' $train "$@"
  export FAULT_RANK=1
  stuck "two ranks, a sync of one${1:+, $1}" 1 fsync 'step-00000002.tmp/rank-00001-of-00002.h5' 'writing run/step-00000002.tmp' \
    mpirun -n 2 $train "$@"
}
# Each write takes a third of a second, the save several times --timeout.
slow() { # FLAG...: with these flags
  rm -rf run
  start=$(date +%s)
  faulty slow 1 $train --steps 1 --timeout $limit "$@"
  is "a disk that is slow${1:+, $1}: the run is done" "$? $(cat ../err)" "0 "
  [ $(($(date +%s) - start)) -ge $((3 * limit)) ]
  result $? "a disk that is slow${1:+, $1}: a save takes several times --timeout"
}
cases --async-save
if [ "$faults" = all ]; then
  cases
  export FAULT_RANK=0
  stuck "two ranks, the removal of an older checkpoint" 0 unlink 'rank-00000-of-00002.h5' 'removing checkpoints of run' mpirun -n 2 $train
  stuck "two ranks, the commit" 0 rename 'step-00000002' 'committing run/step-00000002.tmp' mpirun -n 2 $train --async-save
fi
limit=2
export FAULT_RANK="" FAULT_PATH="" FAULT_MS=300 FAULT_FOR=0 FAULT_CALLS=write
slow
[ "$faults" = all ] && slow --async-save
done_testing
