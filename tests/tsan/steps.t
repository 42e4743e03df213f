#!/bin/sh
# Complete jobs built with ThreadSanitizer (make check-tsan): asynchronous saves that overlap, that fail and are retried, that run together with
# evaluations and the stall detector; a request to stop; a lost rank; a log that several threads parse.
# shellcheck disable=SC2016,SC2086 # each rank's shell expands the variables; words without blanks
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1

# step RANKS RUN FLAGS...: runs a job that saves asynchronously after each step
step() {
  ranks=$1 run=$2
  shift 2
  mpirun -n "$ranks" fp8-step m.h5 --data d.h5 --eval-data d.h5 --eval-batches 1 --seq-length 16 --batch-size 1 --steps 6 --out "$run" \
    --save-every 1 --async-save --timeout 100 --quiet "$@" >"$run.log" 2>"$run.err" </dev/null
}
quiet() { is "$1: ThreadSanitizer reports nothing" "$(grep -c ThreadSanitizer "$2")" 0; }

for ranks in 1 2; do
  step $ranks beside$ranks --keep 2 --keep-best --eval-every 2 --precision fp8
  is "$ranks ranks: a run with asynchronous saves succeeds" $? 0
  quiet "$ranks ranks" beside$ranks.err
  is "$ranks ranks: each checkpoint is committed" "$(grep '"type":"checkpoint"' beside$ranks.log | field step - | tr '\n' ' ')" "1 2 3 4 5 6 "
  ok "$ranks ranks: the last checkpoint verifies" fp8-info beside$ranks/step-00000006 --verify
done

# The files of one rank are limited: each save fails and is retried.
mpirun -n 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || ulimit -f 100; exec "$@"' sh fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 1 \
  --steps 6 --out fails --save-every 1 --async-save --timeout 100 --quiet >fails.log 2>fails.err </dev/null
is "a last save that fails gives status 2" $? 2
quiet "failing saves" fails.err
is "each failed save has a warning record" "$(grep -c '"type":"warning"' fails.log)" "$(grep -c 'is not saved' fails.err)"
[ "$(grep -c 'is not saved' fails.err)" -ge 2 ]
result $? "the failed saves are reported on standard error"

# A request to stop while a save is under way.
mpirun -n 2 sh -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK; exec "$@"' sh fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 1 --steps 100000 \
  --out stops --save-every 1 --async-save --timeout 100 --quiet >stops.log 2>stops.err </dev/null &
job=$!
seen() { until grep -qs "$1" "$2" || [ "$((waited = waited + 1))" = 600 ]; do sleep 0.1; done; }
waited=0
seen '"step":3,' stops/log.jsonl
kill -USR1 "$(cat pid1)"
wait $job
is "a request to stop gives status 75" $? 75
quiet "a request to stop" stops.err

# A rank that is stopped.
mpirun -n 2 sh -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK; exec "$@"' sh fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 1 --steps 100000 \
  --out lost --save-every 1 --async-save --timeout 4 --quiet >lost.log 2>lost.err </dev/null &
job=$!
waited=0
seen '"step":3,' lost/log.jsonl
kill -STOP "$(cat pid1)"
wait $job
is "a lost rank gives status 1" $? 1
kill -KILL "$(cat pid1)" 2>/dev/null
quiet "a lost rank" lost.err
grep -q '^fp8-step: rank 1 did not answer in ' lost.err
result $? "the lost rank is named"

# Several megabytes, so that fp8-log parses the log with several threads.
python3 -c '
for i in range(60000):
    print("{\"type\":\"step\",\"step\":%d,\"tokens\":%d,\"loss\":%.6f,\"step_s\":0.5,\"tokens_per_s\":100.5}"
          % (i + 1, 64 * (i + 1), 3 + 1 / (i + 1)))' >long.jsonl
ok "fp8-log reads a long log" fp8-log long.jsonl --json
quiet "a long log" err
is "all its records are counted" "$(field steps out)" 60000
done_testing
