#!/bin/sh
# A save of several ranks under mpirun, which shard parameters or also divide linears (--tp), with one rank killed at each counted call: no committed
# checkpoint is lost.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
. "$SRC/tests/fault/lib.sh"
# mpirun ends the other ranks at once. By default it gives them a second, in which they wait for the rank that was killed.
export OMPI_MCA_odls_base_sigkill_timeout=0
begin() { rm -rf run && cp -r ../base run; }
start() { # RANKS FLAGS: saves the checkpoints of an uninterrupted run
  unset FAULT_RANK
  rm -rf run ../base ../full
  train="mpirun -n $1 fp8-step ../m.h5 --data ../d.h5 --seq-length 16 --batch-size 2 --steps 3 --save-every 1 --out run -q ${2:-}"
  ok "$1 ranks${2:+, $2}: a run of one step" $train --until-step 1
  cp -r run ../base
  ok "the run resumes without a fault" $train
  mv run ../full
}

for way in "2 0" "2 1" "4 0 --tp 2" "4 3 --tp 2"; do
  rank=${way#* } rank=${rank%% *} flags=${way#"${way%% *} $rank"}
  [ "${way%% *}$flags" = "${started:-}" ] || start ${way%% *} "${flags# }"
  started=${way%% *}$flags
  export FAULT_RANK=$rank
  begin
  calls $train --until-step 2 >/dev/null
  at_all=$(STRIDE=200 some "mkdir fsync rename unlink")
  [ "$faults" != all ] || at_all=$(awk '$1 != "write" || NR % 8 == 0 { print NR }' ../calls)
  number=0
  for at in $at_all; do
    begin
    kill_at kill $at $train --until-step 2
    whole run 1
    number=$((number + 1))
    [ $((number % 10)) = 1 ] || continue
    $train >../out 2>../err </dev/null || complain "the run does not resume"
    same run/step-00000003 ../full/step-00000003
  done
  tally "${way%% *} ranks$flags, rank $rank killed"
done
finish
