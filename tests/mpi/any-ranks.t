#!/bin/sh
# A run that resumes with another number of ranks or another mesh at each step has the losses of a run on one rank.
# lib/state/tests/state_test.cc checks that the checkpoints are equal.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
mixture

# moves NAME MODEL FLAGS: takes the number of ranks and the flags of each step from the input
moves() {
  name=$1 all="$2 --data d.h5 --seq-length 8 --precision fp32 -q $3"
  cat >walk
  rm -rf whole moving moving.log
  all="$all --steps $(wc -l <walk)"
  fp8-step $all --batch-size 60 --out whole >whole.log 2>err
  at=0
  while read -r ranks mesh; do
    at=$((at + 1)) parts=$ranks
    case $mesh in *"--tp 2"*) parts=$((ranks / 2)) ;; *"--tp 4"*) parts=$((ranks / 4)) ;; esac
    mpirun -n $ranks fp8-step $all --batch-size $((60 / parts)) $mesh --out moving --until-step $at --keep 1 >>moving.log 2>err </dev/null || break
  done <walk
  is "$name: each step runs once" "$(losses moving.log | cut -d' ' -f1)" "$(seq $at)"
  near "$name: the losses are those of a run on one rank" moving.log whole.log 1e-6
}

numbers="1 2 1 3 1 4 1 5 2 3 2 4 2 5 3 4 3 5 4 5 1"
is "the sequence of numbers of ranks contains all ordered pairs" \
  "$(echo $numbers | tr ' ' '\n' | awk 'NR > 1 && $1 != last { seen[last $1] } { last = $1 } END { for (i in seen) n++; print n }')" 20
moves "all pairs of numbers of ranks" m.h5 "--lr 3e-3" <<END
$(echo $numbers | tr ' ' '\n')
END
is "the records have the numbers of ranks" "$(grep -o '"dp_shard":[0-9]*' moving.log | cut -d: -f2 | tr '\n' ' ')" "$numbers "

moves "replicas" m.h5 "--lr 1e-3 --async-save" <<'END'
4 --dp-replicate 2
2 --dp-replicate 2
6 --dp-replicate 3
1
4 --dp-replicate 4
3
END

cat >divided <<'END'
4 --tp 2
2 --tp 2
1
4 --tp 4
2
4 --tp 2 --dp-replicate 2
END
moves "divided linears" x.h5 "--lr 1e-3" <divided
long && moves "divided linears, adapters" m.h5 "--lr 1e-3 --lora-rank 4" <divided

cat >shared <<'END'
4 --ep 2
2 --ep 2
1
4 --ep 4
1
6 --ep 3 --dp-replicate 2
END
moves "shared experts" x.h5 "--lr 1e-3 --aux-loss 0.1" <shared
is "shared experts: the starts name each change of the mesh" \
  "$(grep -o '"name":"mesh","old":[^}]*' moving.log)" '"name":"mesh","old":"dp_shard=4 ep=2","new":"dp_shard=2 ep=2"
"name":"mesh","old":"dp_shard=2 ep=2","new":"1 rank"
"name":"mesh","old":"1 rank","new":"dp_shard=4 ep=4"
"name":"mesh","old":"dp_shard=4 ep=4","new":"1 rank"
"name":"mesh","old":"1 rank","new":"dp_replicate=2 dp_shard=3 ep=3"'
long && moves "shared experts, adapters" x.h5 "--lr 1e-3 --lora-rank 4" <shared
done_testing
