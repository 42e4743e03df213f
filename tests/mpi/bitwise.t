#!/bin/sh
# A run that is killed and goes on is the run that was not: 2N steps and N, SIGKILL, N give the same weights, moments,
# counters and records, for command lines in which every two of precision, recipe, stage, recompute, stored types and
# way of saving meet.
# shellcheck disable=SC2086,SC2016,SC2046 # lists of words on purpose; what a rank's own shell expands
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
half=6 # N

# train FOLDER WORDS: from that folder, on two ranks
train() {
  (cd "$1" && shift && mpirun -n 2 sh -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK; exec fp8-step "$@"' fp8-step ../m.h5 --data ../d.h5 --seq-length 32 --batch-size 2 \
    --steps $((2 * half)) --save-every $half --warmup-steps 2 --lr 1e-2 --out run -q "$@" 2>>err </dev/null)
}
# killed FOLDER WORDS: SIGKILL to all ranks once the checkpoint of step N is told of; fails when that was too late
killed() {
  train "$@" | while read -r record; do
    case $record in '{"type":"checkpoint","step":'$half,*) kill -9 $(cat "$1/pid0" "$1/pid1") ;; esac
  done
  [ -d "$1/run/step-0000000$half" ] && ! grep -q '"type":"end"' "$1/run/log.jsonl"
}
# records FOLDER: what a reader of the log makes of it, but for times, memory and the order of saves
records() {
  awk '/^{"type":"run"/ { match($0, /"first_step":[0-9]+/); first = substr($0, RSTART + 13, RLENGTH - 13) + 0
         for (i in line) if (at[i] >= first) delete line[i]; next }
       { match($0, /"step":[0-9]+/); at[NR] = substr($0, RSTART + 7, RLENGTH - 7) + 0; line[NR] = $0 }
       END { for (i in line) print line[i] }' "$1/run/log.jsonl" |
    sed 's/"\(step_s\|data_wait_s\|tokens_per_s\|model_tflops\|mfu\|memory_peak_bytes\|seconds\|wait_s\)":[^,}]*//g' | sort
}

python3 "$SRC/tests/mpi/pairwise.py" fp8-step >ways
n=0
while read -r way; do
  n=$((n + 1))
  mkdir $n.whole
  train $n.whole $way >/dev/null
  for attempt in 1 2 3; do
    rm -rf $n.killed && mkdir $n.killed
    killed $n.killed $way && break
  done
  train $n.killed $way >/dev/null
  is "$way: went on after a kill" "$? $attempt $(grep -c '"type":"run"' $n.killed/run/log.jsonl) $(grep -c '"type":"end"' $n.killed/run/log.jsonl)" "0 $attempt 2 1"
  (cd $n.whole/run && for f in step-*/*; do cmp "$f" ../../$n.killed/run/$f || exit 1; done && [ "$(echo step-*/* | wc -w)" = 6 ])
  result $? "$way: weights, moments and counters have the same bytes"
  records $n.whole >whole.records && records $n.killed >killed.records
  is "$way: the same records" "$(cat killed.records)" "$(cat whole.records)"
  is "$way: which are all" "$(grep -c '"loss"' whole.records)" $((2 * half))
  rm -r $n.whole $n.killed
  echo "$way" >>ran
done <ways
ok "every two settings have met" sh -c 'python3 "$SRC/tests/mpi/pairwise.py" fp8-step --check <ran'
is "in lines of their own" "$(sort -u ran | wc -l)" "$(wc -l <ways)"
grep -v tensorwise ran >less
status "which fewer would not do" 1 sh -c 'python3 "$SRC/tests/mpi/pairwise.py" fp8-step --check <less'
done_testing
