#!/bin/sh
# A run that is killed after N of 2N steps and resumed has the weights, moments, counters and records of an uninterrupted
# run, bit for bit. The command lines cover all pairs of values of stage, recompute, stored types, async-save
# and replicas, and each precision and recipe; with FP8_LONG also each recipe with each value of the others.
# shellcheck disable=SC2086,SC2016,SC2046 # lists of words on purpose; each rank's shell expands the variables
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
half=6 # N

# train FOLDER FLAGS: runs fp8-step in FOLDER on two ranks
train() {
  (cd "$1" && shift && mpirun -n 2 sh -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK; exec fp8-step "$@"' fp8-step ../m.h5 --data ../d.h5 --seq-length 32 \
    --batch-size 2 --steps $((2 * half)) --save-every $half --warmup-steps 2 --lr 1e-2 --out run -q "$@" 2>>err </dev/null)
}
# killed FOLDER FLAGS: sends SIGKILL to all ranks at the record of the checkpoint of step N. Rank 0 gets no further than the save of step 2N:
# mkdir(2) does not return there.
killed() {
  (
    FAULT_UNDER=$(pwd -P)/$1 FAULT_PATH=step-000000$((2 * half)).tmp
    export FAULT_UNDER FAULT_PATH FAULT_IN=fp8-step FAULT_RANK=0 FAULT_DO=hang FAULT_CALLS=mkdir FAULT_AT=1
    LD_PRELOAD=$O/test/fault.so train "$@"
  ) | while read -r record; do
    case $record in '{"type":"checkpoint","step":'$half,*) kill -9 $(cat "$1/pid0" "$1/pid1") ;; esac
  done
}
# records FOLDER: prints the sorted records of the log without repeated steps, times,
# memory and bytes that were sent, which are fewer after an evaluation
records() {
  awk '/^{"type":"run"/ { match($0, /"first_step":[0-9]+/); first = substr($0, RSTART + 13, RLENGTH - 13) + 0
         for (i in line) if (at[i] >= first) delete line[i]; next }
       { match($0, /"step":[0-9]+/); at[NR] = substr($0, RSTART + 7, RLENGTH - 7) + 0; line[NR] = $0 }
       END { for (i in line) print line[i] }' "$1/run/log.jsonl" |
    sed 's/"\(step_s\|data_wait_s\|tokens_per_s\|model_tflops\|mfu\|memory_peak_bytes\|sent_bytes[a-z0-9_]*\|seconds\|wait_s\|time\|slowest_rank\|slowest_lag\)":[^,}]*//g; '\
's/"memory_used":{[^}]*}//' | sort
}

python3 "$SRC/tests/mpi/pairwise.py" fp8-step >ways
left=$(($(FP8_LONG=1 python3 "$SRC/tests/mpi/pairwise.py" fp8-step | wc -l) - $(wc -l <ways)))
n=0
while read -r way; do
  n=$((n + 1))
  mkdir $n.whole $n.killed
  train $n.whole $way >/dev/null
  killed $n.killed $way
  train $n.killed $way >/dev/null
  is "$way: the killed run resumes and ends" \
    "$? $(grep -c '"type":"run"' $n.killed/run/log.jsonl) $(grep -c '"type":"end"' $n.killed/run/log.jsonl)" "0 2 1"
  (cd $n.whole/run && for f in step-*/*; do cmp "$f" ../../$n.killed/run/$f || exit 1; done && [ "$(echo step-*/* | wc -w)" = 6 ])
  result $? "$way: weights, moments and counters are equal"
  records $n.whole >whole.records && records $n.killed >killed.records
  is "$way: the records are equal" "$(cat killed.records)" "$(cat whole.records)"
  is "$way: the log has all steps" "$(grep -c '"loss"' whole.records)" $((2 * half))
  rm -r $n.whole $n.killed
  echo "$way" >>ran
done <ways
ok "the command lines cover all pairs of settings" sh -c 'python3 "$SRC/tests/mpi/pairwise.py" fp8-step --check <ran'
is "no command line repeats" "$(sort -u ran | wc -l)" "$(wc -l <ways)"
grep -v tensorwise ran >less
status "without tensorwise, pairs are missing" 1 sh -c 'python3 "$SRC/tests/mpi/pairwise.py" fp8-step --check <less'
done_testing
