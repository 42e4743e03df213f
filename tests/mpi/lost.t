#!/bin/sh
# A rank that stops without a crash: the job ends within --timeout, with one line that names the rank and the collective.
# shellcheck disable=SC2016,SC2086 # words on purpose; each rank's shell expands the variables
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
limit=3 # seconds
cleanup() { for p in pid?; do [ -f "$p" ] && kill -KILL "$(cat "$p")" 2>/dev/null; done; cd / && rm -rf "$work"; }
trap cleanup EXIT

sleeping init.c <<'END'
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
  int (*next)(int *, char ***, int, int *) = (int (*)(int *, char ***, int, int *))dlsym(RTLD_NEXT, "MPI_Init_thread");
  int status = next(argc, argv, required, provided);
  if (getenv("STOPPED") && atoi(getenv("OMPI_COMM_WORLD_RANK")) == atoi(getenv("STOPPED"))) raise(SIGSTOP);
  return status;
}
END
cc -shared -fPIC -o init.so init.c -ldl || result 1 "init.so"
# begin RANKS COMMAND...: starts the command on RANKS ranks, which write their process ids to pid0, pid1, ...
begin() {
  ranks=$1
  shift
  rm -f pid? log
  mpirun -n "$ranks" sh -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK; LD_PRELOAD=$PWD/init.so exec "$@"' sh "$@" >log 2>err </dev/null &
  job=$!
}
until_says() { # REGEX: waits at most a minute until a line of the log matches
  tries=0
  until grep -q "$1" log 2>/dev/null || [ $((tries += 1)) = 600 ]; do sleep 0.1; done
}
# lost NAME RANK REGEX: stops RANK with SIGSTOP and waits for the end of the job; REGEX matches the collective
lost() {
  kill -STOP "$(cat pid"$2")"
  start=$(date +%s)
  wait $job
  got=$?
  took=$(($(date +%s) - start))
  is "$1: status 1 and one line" "$got $(grep -c '^fp8-' err) $(grep -Ec "^fp8-[a-z]*: rank $2 did not answer in $3 within $limit s$" err)" "1 1 1"
  [ $took -le $((limit + 5)) ] || echo "# $took s" >&2
  [ $took -le $((limit + 5)) ]
  result $? "$1: the job ends in time"
  left=1 tries=0
  while [ $left = 1 ] && [ $((tries += 1)) -le 30 ]; do
    left=0
    for p in pid?; do ps -o stat= -p "$(cat "$p")" | grep -qv '^Z' && left=1; done
    [ $left = 0 ] || sleep 0.1
  done
  result $left "$1: no process is left"
}

train="fp8-step m.h5 --data d.h5 --seq-length 32 --batch-size 4 --steps 4000 --save-every 2 --out run -q --timeout $limit"
# shellcheck disable=SC2086 # words on purpose
begin 3 $train
until_says '"type":"checkpoint","step":2'
kill -STOP "$(cat pid2)"
sleep 1
kill -CONT "$(cat pid2)"
at=$(field step log | tail -1)
until_says "\"type\":\"step\",\"step\":$((at + 2))"
is "a rank that is stopped for less than --timeout gives no message" "$(grep -c . err)" 0
lost "a rank lost during training" 1 '(all-reduce|all-gather|all-gather of lengths|reduce-scatter) [0-9]+ \(step [0-9]+\)'
newest=$(fp8-resume run --print)
ok "a lost rank: the newest checkpoint verifies" fp8-info --verify "$newest"
next=$(($(echo "${newest##*-}" | sed "s/^0*//") + 1))
logged=$(grep -o 'run/step-[0-9]*' log | tail -1 | sed 's/.*-0*//') # a checkpoint may be committed and not yet logged
is "a lost rank: the newest checkpoint is the last in the log, or the next" \
  "$([ $((next - 1 - logged)) -ge 0 ] && [ $((next - 1 - logged)) -le 2 ]; echo $?)" 0
mpirun -n 3 fp8-step m.h5 --data d.h5 --seq-length 32 --batch-size 4 --steps 4000 --until-step $next --out run -q >out 2>err </dev/null
is "a lost rank: the run resumes from the newest checkpoint" "$? $(losses out | cut -d' ' -f1)" "0 $next"

# --- copies of the parameters: a rank that is lost is missing in a group of each of two others, of which one reports
rm -rf run
begin 4 $train --dp-replicate 2
until_says '"type":"step","step":3'
lost "a rank of a copy lost during training" 3 \
  '(all-reduce|all-gather|all-gather of lengths|reduce-scatter) [0-9]+( of dp_(shard|replicate))? \(step [0-9]+\)'

# --- ranks that divide linears
rm -rf run
begin 4 $train --tp 2
until_says '"type":"step","step":3'
lost "a rank that divides linears lost during training" 3 \
  '(all-reduce|all-gather|all-gather of lengths|reduce-scatter|all-to-all|message) [0-9]+( of .*)? \(step [0-9]+\)'

rm -rf run
# shellcheck disable=SC2086
begin 2 $train
until_says '"type":"step","step":3'
lost "rank 0 lost during training" 0 '(all-reduce|all-gather|all-gather of lengths|reduce-scatter) [0-9]+ \(step [0-9]+\)'

# --- a rank stopped before MPI_Init, or between MPI_Init and the first collective
# early NAME RANK POINT WORDS...: RANK of 2 stops itself; the other rank ends the job and names POINT
early() {
  name=$1 export STOPPED="$2" point=$3
  shift 3
  start=$(date +%s)
  timeout 60 mpirun -n 2 sh -c "$@" >log 2>err </dev/null
  is "$name: status 1 and one line" \
    "$? $(grep -c '^fp8-' \
    err) $(grep -c "^fp8-[a-z]*: rank $((1 - STOPPED)): $point did not end within $limit s: another rank has not started or is stopped\$" err)" \
    "1 1 1"
  [ $(($(date +%s) - start)) -le $((limit + 8)) ]
  result $? "$name: the job ends in time"
}
for rank in 0 1; do
  early "rank $rank is stopped before MPI_Init" $rank MPI_Init \
    '[ $OMPI_COMM_WORLD_RANK != $STOPPED ] || kill -STOP $$; LD_PRELOAD=$PWD/init.so exec "$@"' sh $train
  early "rank $rank is stopped after MPI_Init" $rank "the first exchange" 'LD_PRELOAD=$PWD/init.so exec "$@"' sh $train
done
early "an evaluation whose rank is stopped before MPI_Init" 1 MPI_Init \
  '[ $OMPI_COMM_WORLD_RANK != $STOPPED ] || kill -STOP $$; LD_PRELOAD=$PWD/init.so exec "$@"' sh \
  fp8-eval m.h5 --data d.h5 --seq-length 16 --timeout $limit

fp8-tokenize "$FP8_SHARE/text/tinyshakespeare.txt" -o long.h5 >out 2>err
unset STOPPED
begin 2 fp8-eval m.h5 --data long.h5 --seq-length 16 --per-token --timeout $limit
until_says '"type":"sequence"'
lost "a rank lost during an evaluation" 1 '(all-reduce|all-gather|all-gather of lengths) [0-9]+'

done_testing
