#!/bin/sh
# Stages of layers (--pp): records and profiles, checkpoints that move between meshes, a stage that stops, refusals. equal.t compares steps.
# shellcheck disable=SC2086,SC2016,SC2046 # lists of words on purpose; each rank's shell expands the variables
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
mixture
fp8-init tiny --set num_hidden_layers=4 -o u.h5 -q >out 2>err
fp8-init tiny --set num_hidden_layers=4 --set tie_word_embeddings=true -o t.h5 -q >out 2>err
fp8-init qwen3-moe-tiny --set num_experts=7 --set num_hidden_layers=4 -o y.h5 -q >out 2>err
result $? "models of four layers are made"

# train MODEL RANKS FLAGS: runs steps of sequences of 16 tokens; prints the records
train() {
  m=$1 n=$2
  shift 2
  mpirun -n "$n" fp8-step $m.h5 --seq-length 16 --lr 1e-3 -q "$@" 2>err </dev/null
}

# --- records and profiles
train u 4 --data d.h5 --batch-size 4 --grad-accumulation 2 --steps 3 --precision bf16 --pp 4 --out run.way >way
is "the record has the expected bubble" "$(field bubble_expected way | head -n 1 | cut -c1-3)" 0.6
says "the run record has the mesh" '"mesh":\{"dp_replicate":1,"dp_shard":1,"pp":4,"ep":1,"tp":1\}' head -n 1 way
says "and the stages with their memory" '"stages":\[\{"layers":1,"memory":[0-9]+\},\{"layers":1,' head -n 1 way

mpirun -n 2 fp8-step u.h5 --data d.h5 --seq-length 16 --batch-size 2 --grad-accumulation 4 --steps 2 --pp 2 --profile 2 --out profiled \
  >log 2>notes </dev/null
is "the table of a profile has a line for each stage" "$? $(grep -c -E '^fp8-step: +[01] +[0-9.]+ +[0-9.]+$' notes)" "0 2"
is "and the file the stage of each rank" \
  "$(grep -o '"name":"rank [01], stage [01]"' profiled/profile-2-2.json | tr '\n' ' ')" '"name":"rank 0, stage 0" "name":"rank 1, stage 1" '

# --- the bytes of a checkpoint stay when a run moves from mesh to mesh
for way in "long: u --precision fp8 --recipe tensorwise --async-save" "long: t --precision fp8 --recipe delayed --amax-history 3" \
  "long: u --precision bf16 --master bf16 --moments bf16" \
  "y --precision fp8 --recipe delayed --amax-history 3 --moments bf16"; do
  chosen "$way" || continue
  rm -rf still still.log
  at=0
  for mesh in "2 24 --pp 2" "1 24" "4 24 --pp 4" "4 12 --pp 2 --dp-shard 2" "3 24 --pp 3 --stages 1,2,1" "4 24 --pp 2 --tp 2" \
    "2 12 --dp-shard 2" "8 6 --pp 2 --dp-replicate 2 --dp-shard 2 --zero 1"; do
    at=$((at + 1))
    rest=${mesh#* }
    train ${way%% *} ${mesh%% *} --data few.h5 --documents separate --sampler sequential --steps 8 --save-every 1 --until-step $at --out still \
      --batch-size ${rest%% *} $(printf '%s' "$rest" | cut -s -d' ' -f2-) ${way#* } >>still.log || break
  done
  is "$way: only the first step updates" "$(losses still.log | wc -l) $(grep -c '"masked":true' still.log)" "8 7"
  for step in 2 3 4 5 6 7 8; do
    ok "$way: the bytes of step 1 stay in step $step" fp8-info still/step-00000001 --diff still/step-0000000$step
  done
done

# --- a stage that stops before it sends is named, with the message that another stage waits for
sleeping stop.c <<'END'
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
typedef int (*Isend)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int MPI_Isend(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
  static int sent; // messages between stages, which are longer than those of the watchdog
  int size = 0;
  MPI_Type_size(type, &size);
  if (atoi(getenv("OMPI_COMM_WORLD_RANK")) == atoi(getenv("STOPPED")) && (long)count * size >= 4096 && ++sent == atoi(getenv("STOP_AT")))
    raise(SIGSTOP);
  return ((Isend)dlsym(RTLD_NEXT, "MPI_Isend"))(from, count, type, to, tag, comm, request);
}
END
mpicc -shared -fPIC -o stop.so stop.c -ldl || result 1 "stop.so"
# stops RANK N REGEX COMMAND...: stage RANK of 2 stops itself before it sends its Nth message; the other stage names the message that it waits for
stops() {
  rank=$1 at=$2 pattern=$3
  shift 3
  STOPPED=$rank STOP_AT=$at timeout 100 mpirun -n 2 sh -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK; LD_PRELOAD=$PWD/stop.so exec "$@"' sh "$@" \
    --data d.h5 --seq-length 32 --precision bf16 --pp 2 --timeout 3 -q >log 2>notes </dev/null
  kill -9 "$(cat pid$rank)" 2>/dev/null
  says "$1: stage $rank stops before its message $at and is named with what another stage waits for" \
    "rank $rank did not answer in message [0-9]+ from $pattern within 3 s" cat notes
}
# stops_in_step RANK N REGEX
stops_in_step() { stops "$1" "$2" "$3 \\(step 1\\)" fp8-step u.h5 --batch-size 2 --grad-accumulation 4 --steps 1 --out stopped$1$2; }
late='rank 0 to rank 1: input of micro-batch [1-4] from stage 0 to stage 1' # waited for by the stage that sends it
long && stops_in_step 0 1 "rank 0 to rank 1: input of micro-batch 1 from stage 0 to stage 1"
back='rank 1 to rank 0: gradient of micro-batch [12] from stage 1 to stage 0'
stops_in_step 0 3 "(rank 0 to rank 1: input of micro-batch 3 from stage 0 to stage 1|$back)"
stops_in_step 1 1 "($late|rank 1 to rank 0: gradient of micro-batch 1 from stage 1 to stage 0)"
long && stops_in_step 1 3 "($late|rank 1 to rank 0: gradient of micro-batch 3 from stage 1 to stage 0)"
stops 0 2 "rank 0 to rank 1: input of micro-batch 2 from stage 0 to stage 1" fp8-eval u.h5 --batch-size 4

# --- refusals
all="u.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 2 -q"
refused "more stages than layers" "--pp 5: u.h5 has 4 layers, and each stage needs one; --pp 1 fits" $all --out x --pp 5
refused "stages without ranks" "--pp 2: does not make 1 rank; start several ranks, as with mpirun -n 2 fp8-step" $all --out x --pp 2
refused "another number of stages" \
  "--stages 2,1,1: these are 3 stages, and --pp is 2; --pp 1 without --stages fits" $all --out x --pp 2 --stages 2,1,1
refused "another number of layers" "--stages 2,1: these are 3 layers, and u.h5 has 4; --pp 1 without --stages fits" $all --out x --pp 2 --stages 2,1
refused "a stage without layers" "--stages: 0 is below 1: each stage needs a layer" $all --out x --pp 2 --stages 0,4
refused "a number of layers that no model has" "--stages: 99999999999999999999 is above 2147483647" \
  $all --out x --pp 2 --stages 2,99999999999999999999
refused "a word as a number of layers" "--stages: '2x' is not a number of layers" $all --out x --pp 2 --stages 2x,2
fp8-init tiny -o m.h5 -q >out 2>err
mkdir z && cp -r run.way/step-0* z # a run of another model
refused "more stages than the checkpoint of the run has layers" \
  "--pp 5: $(find z/step-0* -prune | tail -n 1) has 4 layers, and each stage needs one; --pp 1 fits" m.h5 ${all#u.h5} --out z --pp 5
done_testing
