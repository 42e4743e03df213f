#!/bin/sh
# Ranks on several machines, whose names a preloaded library gives: messages and records name the machine beside the rank, and the rank for which the
# others wait is named.
# shellcheck disable=SC2016,SC2086 # each rank's shell expands the variables; lists of words
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"

# NODES machines have the ranks in turns, so that the first rank of a machine is not the first of its neighbours; rank SLOW sleeps for a moment before
# each parallel loop
cat >hosts.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static int number(const char *name) { return getenv(name) ? atoi(getenv(name)) : -1; }
int gethostname(char *name, size_t size) {
  int nodes = number("NODES");
  snprintf(name, size, "node-%d", number("OMPI_COMM_WORLD_RANK") % (nodes > 0 ? nodes : 1) + 1);
  return 0;
}
void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags) {
  static void (*next)(void (*)(void *), void *, unsigned, unsigned);
  const struct timespec moment = {0, 200000};
  if (!next) next = (void (*)(void (*)(void *), void *, unsigned, unsigned))dlsym(RTLD_NEXT, "GOMP_parallel");
  if (number("OMPI_COMM_WORLD_RANK") == number("SLOW")) nanosleep(&moment, NULL);
  next(body, data, threads, flags);
}
END
cc -shared -fPIC -o hosts.so hosts.c -ldl || result 1 "hosts.so"
# on NODES RANKS LOG WORDS...: runs the words on the ranks of so many machines
on() {
  nodes=$1 ranks=$2 log=$3
  shift 3
  NODES=$nodes mpirun -n "$ranks" sh -c 'LD_PRELOAD=$PWD/hosts.so exec "$@"' sh "$@" >"$log" 2>err </dev/null
}
train="fp8-step m.h5 --data d.h5 --seq-length 32 --batch-size 2 --timeout 60"
slow() { fp8-log "$1" | grep ' waits least: ' | sed 's/: [1-9][0-9]* %/: N %/'; }

# --- the rank for which the others wait
export SLOW=2
on 2 3 two $train --steps 12 --profile 2-11 --out run.two
is "a slow rank and its machine are named" "$? $(slow two)" "0 rank 2 on node-1 waits least: N % slower than the median"
is "the run record has the machines" "$(grep -o '"hosts":.*}\],"' two)" '"hosts":[{"host":"node-1","ranks":"0,2"},{"host":"node-2","ranks":"1"}],"'
is "the profile names the rank" "$(grep -Ec '^fp8-step:   rank 2 on node-1 waits least: [1-9][0-9]* % slower than the median$' err)" 1
is "its trace has the machines" "$(grep -c '"name":"rank [02] (node-1)"\|"name":"rank 1 (node-2)"' run.two/profile-2-11.json)" 3
on 1 3 one $train --steps 12 --log-every 1 --out run.one -q
is "with one machine the rank alone is named" "$(slow one)" "rank 2 waits least: N % slower than the median"
is "records have no machine" "$(grep -c '"slowest_lag":' one) $(grep -c '"hosts"\|"slowest_host"' one)" "12 0"
same_bits "the losses do not depend on the machines" one two
SLOW=1
on 2 4 stages $train --steps 24 --log-every 3 --pp 2 --grad-accumulation 2 --out run.stages -q
is "ranks of a stage are compared" "$(grep -c '"slowest_lag":' stages) $(slow stages)" \
  "8 rank 1 on node-2 waits least: N % slower than the median"
is "a table of runs names the rank of each, and a run in progress its own" \
  "$(fp8-log two one stages | grep -o '^[a-z]*: rank [0-9]' | paste -s -d ' '), $(fp8-log --follow two | grep -c ', rank 2 on node-1 waits least: ')" \
  "two: rank 2 one: rank 2 stages: rank 1, 1"
on 2 2 alone $train --steps 2 --pp 2 --grad-accumulation 2 --out run.alone -q
is "a stage of one rank is not compared" "$(grep -c '"type":"step"' alone) $(grep -c '"slowest' alone)" "2 0"
SLOW=

# --- messages
on 2 3 out sh -c '[ $OMPI_COMM_WORLD_RANK != 1 ] || set -- "$@" --lr 1; exec "$@"' sh $train --steps 1 --out x -q
is "flags that differ" "$(grep '^fp8-' err)" \
  "fp8-step: rank 1 (node-2): started with another --lr (3e-04 on rank 0, 1.0); all ranks need the same"
on 2 3 out sh -c '[ $OMPI_COMM_WORLD_RANK != 1 ] || set -- "$@" --data no.h5; exec "$@"' sh $train --steps 1 --out x -q
is "a file that one rank lacks" "$(grep '^fp8-' err)" "fp8-step: rank 1 (node-2): no.h5: No such file or directory"
on 2 3 out sh -c '[ $OMPI_COMM_WORLD_RANK != 1 ] || kill -STOP $$; exec "$@"' sh \
  env OMPI_COMM_WORLD_LOCAL_SIZE=2 $train --timeout 2 --steps 1 --out x -q
is "a rank that does not start" \
  "$(grep -c '^fp8-step: rank [02] (node-1): MPI_Init did not end within 2 s: another rank has not started or is stopped$' err)" 1
on 2 3 lost sh -c '[ $OMPI_COMM_WORLD_RANK != 1 ] || echo $$ >pid; exec "$@"' sh $train --timeout 2 --steps 100000 --out run.lost -q &
job=$!
soon grep -q '"type":"step"' lost
kill -STOP "$(cat pid)"
wait $job
is "a rank that is lost" "$(grep '^fp8-' err | sed 's/in all-[a-z -]* [0-9]* (step [0-9]*)/in C/; s/in reduce-scatter [0-9]* (step [0-9]*)/in C/')" \
  "fp8-step: rank 1 (node-2) did not answer in C within 2 s"
done_testing
