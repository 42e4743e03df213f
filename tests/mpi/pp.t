#!/bin/sh
# Stages of layers (--pp): bits of one rank, also of samples and statistics; other meshes within their bounds, checkpoints that move between meshes, a stage
# that stops, refusals.
# shellcheck disable=SC2086,SC2016,SC2046,SC2094 # lists of words on purpose; each rank's shell expands the variables; a flag and a log may be named way
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
  if [ "$n" = 1 ]; then
    fp8-step $m.h5 --data d.h5 --seq-length 16 --lr 1e-3 -q "$@" 2>err </dev/null
  else
    mpirun -n "$n" fp8-step $m.h5 --data d.h5 --seq-length 16 --lr 1e-3 -q "$@" 2>err </dev/null
  fi
}

# watched RUN LOG: the samples in the log and the statistics of the run, without times
watched() {
  grep '"type":"sample"' "$2" | sed 's/,"seconds".*//'
  if [ -e "$1/tensors.jsonl" ]; then cat "$1/tensors.jsonl"; fi
}
# --- stages alone, untied: losses, norms, gradients and the checkpoint after five steps have the bits of one rank, and so have samples and statistics
usual="--batch-size 2 --grad-accumulation 4 --steps 5 --sample-every 5 --sample-prompt king --sample-tokens 6"
number=0
# (the mpi test of pipelines has these and the recipes that are left out here)
for way in "--precision fp32" "long: --precision bf16 --recompute selective" "--precision fp8 --recipe tensorwise --fuse-projections" "--precision fp8 --recipe current --fp8-lm-head --tensor-stats-every 5" \
  "long: --precision fp8 --recipe delayed --amax-history 3 --tensor-stats-every 5" "long: --precision fp8 --recipe rowwise --recompute full" "long: --precision fp8 --recipe rowwise_with_gw_hp" \
  "long: --precision fp8 --recipe blockwise" "long: --precision fp8 --recipe mxfp8 --tensor-stats-every 5" "--precision fp8 --recipe rowwise --accumulate hopper" \
  "--precision fp8 --recipe rowwise --recipe *.self_attn.*=tensorwise --recipe *.down_proj=delayed --fp8-gemms *.o_proj=forward,wgrad --fp8-lm-head --tensor-stats-every 5" \
  "--precision fp8 --recipe tensorwise --lora-rank 4 --lora-dropout 0.25 --paranoid 2 --tensor-stats-every 4"; do
  number=$((number + 1))
  chosen "$way" || continue
  rm -rf run.one
  train u 1 $usual $way --out run.one --gradients one.safetensors -f >one
  for pp in 2 3 4; do
    [ $pp = $((number % 3 + 2)) ] || long || continue
    rm -rf run.way
    train u $pp $usual $way --pp $pp --out run.way --gradients way.safetensors -f >way
    same_bits "$way, $pp stages: losses and norms have the bits of one rank" way one
    ok "$way, $pp stages: and so have the gradients" fp8-info one.safetensors --diff way.safetensors
    same_step "$way, $pp stages: and the checkpoint" run.one/step-00000005 run.way/step-00000005
    is "$way, $pp stages: and the sample and the statistics" "$(watched run.way way)" "$(watched run.one one)"
  done
  says "$way: a sample was written" '"type":"sample","step":5,"prompt":"king"' cat one
  case $way in *stats*) is "$way: statistics were written" "$(grep -c -E '"type":"(operand|gemm)"' run.one/tensors.jsonl | awk '{ print ($1 > 100) }')" 1 ;; esac
done
rm -rf run.one
train u 1 $usual --precision fp32 --out run.one --eval-data d.h5 --eval-every 5 --eval-batches 2 >one
for way in "2 --stages 1,3" "long: 2 --stages 3,1" "3 --stages 2,1,1 --save-every 2 --async-save" "long: 4 --zero 1"; do
  chosen "$way" || continue
  rm -rf run.way
  train u ${way%% *} $usual --precision fp32 --pp $way --out run.way --eval-data d.h5 --eval-every 5 --eval-batches 2 >way
  same_bits "--pp $way: losses and norms have the bits of one rank" way one
  same_step "--pp $way: and the checkpoint" run.one/step-00000005 run.way/step-00000005
  is "--pp $way: and the evaluation" "$(evaluations way)" "$(evaluations one)"
done
for few in 1 2; do
  [ $few = 2 ] || long || continue
  rm -rf run.one run.way
  train u 1 --batch-size 4 --grad-accumulation $few --steps 3 --precision bf16 --out run.one >one
  train u 4 --batch-size 4 --grad-accumulation $few --steps 3 --precision bf16 --pp 4 --out run.way >way
  same_bits "$few micro-batches in 4 stages: the bits of one rank" way one
done
is "the record has the expected bubble" "$(field bubble_expected way | head -n 1 | cut -c1-3)" 0.6
says "the run record has the mesh" '"mesh":\{"dp_replicate":1,"dp_shard":1,"pp":4,"ep":1,"tp":1\}' head -n 1 way
says "and the stages with their memory" '"stages":\[\{"layers":1,"memory":[0-9]+\},\{"layers":1,' head -n 1 way

# --- a profile has a table of the stages, and names each rank's
mpirun -n 2 fp8-step u.h5 --data d.h5 --seq-length 16 --batch-size 2 --grad-accumulation 4 --steps 2 --pp 2 --profile 2 --out profiled >log 2>notes </dev/null
is "the table of a profile has a line for each stage" "$? $(grep -c -E '^fp8-step: +[01] +[0-9.]+ +[0-9.]+$' notes)" "0 2"
is "and the file the stage of each rank" "$(grep -o '"name":"rank [01], stage [01]"' profiled/profile-2-2.json | tr '\n' ' ')" '"name":"rank 0, stage 0" "name":"rank 1, stage 1" '

# --- tied embeddings, and other dimensions beside pp: the numbers of one rank
for way in "long: t: 2 24 --pp 2" "long: t: 4 24 --pp 4 --paranoid 1" "t:--documents separate 4 12 --pp 2 --dp-replicate 2 --paranoid 1" "long: t:--documents separate 8 6 --pp 2 --dp-replicate 2 --zero 2 --paranoid 1" "long: t: 8 12 --pp 2 --tp 2 --dp-shard 2 --zero 3" \
  "u: 4 24 --pp 2 --tp 2" "u: 4 12 --pp 2 --dp-shard 2 --zero 3" "long: u: 4 12 --pp 2 --dp-replicate 2" "long: u: 8 6 --pp 2 --dp-shard 4 --zero 2 --async-save --save-every 1" \
  "u:--lora-rank 4 --lora-dropout 0.25 4 12 --pp 2 --dp-shard 2" "long: y:--aux-loss 0.1 --z-loss 0.01 2 24 --pp 2" "y:--aux-loss 0.1 --z-loss 0.01 4 12 --pp 2 --ep 2" \
  "long: y:--aux-loss 0.1 --z-loss 0.01 8 12 --pp 2 --tp 2 --ep 4" "long: y:--aux-loss 0.1 --z-loss 0.01 6 12 --pp 3 --dp-replicate 2"; do
  chosen "$way" || continue
  task=${way%% [1-9] [1-9]* --pp*} mesh=${way#"${way%% [1-9] [1-9]* --pp*} "}
  model=${task%%:*} flags=${task#*:}
  if [ "$task" != "${before:-}" ]; then
    rm -rf run.one
    train $model 1 $flags --batch-size 24 --grad-accumulation 2 --steps 3 --precision fp32 --out run.one --gradients one.safetensors -f >one
    before=$task
  fi
  ranks=${mesh%% *} rest=${mesh#* }
  rm -rf run.way
  train $model $ranks $flags --batch-size ${rest%% *} --grad-accumulation 2 --steps 3 --precision fp32 ${rest#* } --out run.way --gradients way.safetensors -f >way
  near "$way: the losses are those of one rank" way one 1e-6
  near_values "$way: and so is the norm" "$(norm way)" "$(norm one)"
  ok "$way: the gradients are those of one rank" fp8-info one.safetensors --diff way.safetensors --bound 1e-5
  ok "$way: the checkpoint verifies" fp8-info --verify run.way/step-00000003
  [ $model = y ] || continue
  is "$way: the loads of experts are those of one rank" "$(field expert_load_max way) $(field expert_idle way)" "$(field expert_load_max one) $(field expert_idle one)"
  near_values "$way: and their losses" "$(field aux_loss way; field z_loss way)" "$(field aux_loss one; field z_loss one)"
done

# --- samples and statistics with other dimensions are those without stages
for way in "long: u 2 --dp-shard 2 --zero 2" "u 2 --tp 2" "y 2 --ep 2"; do
  chosen "$way" || continue
  rest=${way#* }
  for pp in 1 2; do
    rm -rf run.$pp
    train ${way%% *} $((pp * ${rest%% *})) --batch-size 4 --grad-accumulation 2 --steps 2 --precision fp8 --recipe rowwise --tensor-stats-every 2 --sample-every 2 --sample-prompt king \
      --sample-tokens 6 --pp $pp ${rest#* } --out run.$pp >log.$pp
  done
  is "$way: with two stages the sample and the statistics are the same" "$(watched run.2 log.2)" "$(watched run.1 log.1)"
  is "$way: and there are some" "$(watched run.1 log.1 | grep -c -E '"type":"(sample|operand|gemm)"' | awk '{ print ($1 > 100) }')" 1
done

# --- the bytes of a checkpoint stay when a run moves from mesh to mesh
for way in "long: u --precision fp8 --recipe tensorwise --async-save" "long: t --precision fp8 --recipe delayed --amax-history 3" "long: u --precision bf16 --master bf16 --moments bf16" \
  "y --precision fp8 --recipe delayed --amax-history 3 --moments bf16"; do
  chosen "$way" || continue
  rm -rf still still.log
  at=0
  for mesh in "2 24 --pp 2" "1 24" "4 24 --pp 4" "4 12 --pp 2 --dp-shard 2" "3 24 --pp 3 --stages 1,2,1" "4 24 --pp 2 --tp 2" "2 12 --dp-shard 2" "8 6 --pp 2 --dp-replicate 2 --dp-shard 2 --zero 1"; do
    at=$((at + 1))
    rest=${mesh#* }
    mpirun -n ${mesh%% *} fp8-step ${way%% *}.h5 --data few.h5 --documents separate --sampler sequential --seq-length 16 --lr 1e-3 --steps 8 --save-every 1 --until-step $at --out still -q \
      --batch-size ${rest%% *} $(printf '%s' "$rest" | cut -s -d' ' -f2-) ${way#* } >>still.log 2>err </dev/null || break
  done
  is "$way: only the first step updates" "$(losses still.log | wc -l) $(grep -c '"masked":true' still.log)" "8 7"
  for step in 2 3 4 5 6 7 8; do ok "$way: the bytes of step 1 stay in step $step" fp8-info still/step-00000001 --diff still/step-0000000$step; done
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
  if (atoi(getenv("OMPI_COMM_WORLD_RANK")) == atoi(getenv("STOPPED")) && (long)count * size >= 4096 && ++sent == atoi(getenv("STOP_AT"))) raise(SIGSTOP);
  return ((Isend)dlsym(RTLD_NEXT, "MPI_Isend"))(from, count, type, to, tag, comm, request);
}
END
mpicc -shared -fPIC -o stop.so stop.c -ldl || result 1 "stop.so"
# stops RANK N REGEX COMMAND...: stage RANK of 2 stops itself before it sends its Nth message; the other stage names the message that it waits for
stops() {
  rank=$1 at=$2 pattern=$3
  shift 3
  STOPPED=$rank STOP_AT=$at timeout 100 mpirun -n 2 sh -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK; LD_PRELOAD=$PWD/stop.so exec "$@"' sh "$@" --data d.h5 --seq-length 32 --precision bf16 --pp 2 \
    --timeout 3 -q >log 2>notes </dev/null
  kill -9 "$(cat pid$rank)" 2>/dev/null
  says "$1: stage $rank stops before its message $at and is named with what another stage waits for" "rank $rank did not answer in message [0-9]+ from $pattern within 3 s" cat notes
}
# stops_in_step RANK N REGEX
stops_in_step() { stops "$1" "$2" "$3 \\(step 1\\)" fp8-step u.h5 --batch-size 2 --grad-accumulation 4 --steps 1 --out stopped$1$2; }
late='rank 0 to rank 1: input of micro-batch [1-4] from stage 0 to stage 1' # waited for by the stage that sends it
long && stops_in_step 0 1 "rank 0 to rank 1: input of micro-batch 1 from stage 0 to stage 1"
stops_in_step 0 3 "(rank 0 to rank 1: input of micro-batch 3 from stage 0 to stage 1|rank 1 to rank 0: gradient of micro-batch [12] from stage 1 to stage 0)"
stops_in_step 1 1 "($late|rank 1 to rank 0: gradient of micro-batch 1 from stage 1 to stage 0)"
long && stops_in_step 1 3 "($late|rank 1 to rank 0: gradient of micro-batch 3 from stage 1 to stage 0)"
stops 0 2 "rank 0 to rank 1: input of micro-batch 2 from stage 0 to stage 1" fp8-eval u.h5 --batch-size 4

# --- refusals
all="u.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 2 -q"
refused "more stages than layers" "--pp 5: u.h5 has 4 layers, and each stage needs one; --pp 1 fits" $all --out x --pp 5
refused "stages without ranks" "--pp 2: does not make 1 rank; start several ranks, as with mpirun -n 2 fp8-step" $all --out x --pp 2
refused "another number of stages" "--stages 2,1,1: these are 3 stages, and --pp is 2; --pp 1 without --stages fits" $all --out x --pp 2 --stages 2,1,1
refused "another number of layers" "--stages 2,1: these are 3 layers, and u.h5 has 4; --pp 1 without --stages fits" $all --out x --pp 2 --stages 2,1
refused "a stage without layers" "--stages: 0 is below 1: each stage needs a layer" $all --out x --pp 2 --stages 0,4
refused "a number of layers that no model has" "--stages: 99999999999999999999 is above 2147483647" $all --out x --pp 2 --stages 2,99999999999999999999
refused "a word as a number of layers" "--stages: '2x' is not a number of layers" $all --out x --pp 2 --stages 2x,2
fp8-init tiny -o m.h5 -q >out 2>err
mkdir z && cp -r run.one/step-0* z # a run of another model
refused "more stages than the checkpoint of the run has layers" "--pp 5: $(find z/step-0* -prune | tail -n 1) has 4 layers, and each stage needs one; --pp 1 fits" m.h5 ${all#u.h5} --out z --pp 5
done_testing
