#!/bin/sh
# State of ranks that divide linears (--tp): checkpoints that experts, replicas and shards share, saves that are killed, evaluations of
# them, adapters. equal.t compares steps, and mesh.t has the refusals.
# shellcheck disable=SC2086,SC2016,SC2046 # lists of words on purpose; each rank's shell expands the variables
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
mixture

# train MODEL RANKS PARTS FLAGS: runs steps of 24 sequences, which PARTS ranks divide; prints the records
train() {
  m=$1 n=$2 parts=$3
  shift 3
  mpirun -n "$n" fp8-step $m.h5 --batch-size $((24 / parts)) --lr 1e-3 -q "$@" 2>err </dev/null
}

# --- a checkpoint of ranks that share it in every way
watched="--data d.h5 --seq-length 16 --steps 3 --precision fp32 --aux-loss 0.1 --z-loss 0.01"
train x 1 1 $watched --out run.one >one
train x 8 4 $watched --tp 2 --ep 2 --dp-replicate 2 --expert-rows 1 --out run.way >way
head -c 4000 text.txt >some.txt && fp8-tokenize some.txt -o some.h5 -q >out 2>err
evaluate() {
  mpirun -n $1 fp8-eval $2/step-00000003 --data some.h5 --seq-length 16 --batch-size 4 --precision fp32 -q 2>err | field loss - | tail -n 1
}
near_values "fp8-eval reads the checkpoint, on one rank" "$(evaluate 1 run.way)" "$(evaluate 1 run.one)"
near_values "and on three ranks" "$(evaluate 3 run.way)" "$(evaluate 1 run.one)"
mesh='"mesh":\{"dp_replicate":2,"dp_shard":2,"pp":1,"ep":2,"tp":2\}'
says "the run record has the mesh" "$mesh" head -n 1 way
says "the checkpoint has the mesh" "$mesh" head -n 1 run.way/step-00000003/manifest.json
is "a checkpoint has a file for each rank" "$(find run.way/step-00000003 -name 'rank-0000?-of-00008.h5' | wc -l)" 8
ok "the checkpoint verifies" fp8-info --verify run.way/step-00000003
fp8-convert run.way --merge -o merged.h5 -q >out 2>err
ok "its files merge into one" fp8-info run.way --diff merged.h5
for rank in 1 6; do
  rm -rf damaged && cp -r run.way/step-00000003 damaged
  printf x | dd of=damaged/rank-0000$rank-of-00008.h5 bs=1 seek=3000 conv=notrunc 2>/dev/null
  says "a damaged file of rank $rank is named" "^fp8-info: damaged/rank-0000$rank-of-00008.h5: " fp8-info --verify damaged
done

# --- the memory plan is that of the rank that needs the most: units of 16 of 48 columns, of which rank 1 has two
fp8-init tiny --set intermediate_size=48 -o w.h5 -q >out
of() { grep -o "\"$1\":{[^}]*}" $3 | grep -o "\"$2\":[0-9]*" | cut -d: -f2; }
few="--data d.h5 --seq-length 16 --steps 1 --precision fp32"
train w 1 24 $few --out plan.one >one
train w 2 24 $few --tp 2 --out plan.two >two
is "of two uneven ranks the plan has at least half of all master weights" \
  "$((2 * $(of memory_plan 'master weights' two) >= $(of memory_plan 'master weights' one)))" 1
train w 4 24 $few --tp 2 --pp 2 --lora-rank 1 --out plan.four >four
is "the plan of several stages is that of the largest" "$(of memory_plan total four)" \
  "$(grep -o '"memory":[0-9]*' four | cut -d: -f2 | sort -n | tail -n 1)"

# --- the bytes of a checkpoint stay when a run moves from mesh to mesh: a line has ranks, data-parallel parts and flags
cat >m.walk <<'END'
2 1 --tp 2
4 2 --tp 2 --dp-replicate 2
1 1
4 1 --tp 4
4 2 --tp 2 --dp-shard 2 --zero 2
3 3
8 4 --tp 2 --dp-replicate 2
2 1 --tp 2
END
cat >x.walk <<'END'
4 2 --tp 2 --ep 4
2 1 --tp 2
1 1
8 4 --tp 2 --dp-replicate 2 --ep 2
4 4 --ep 2
8 2 --tp 4 --ep 4
2 1 --tp 2 --ep 2
END
for way in "long: m --precision fp8 --recipe tensorwise --async-save" "m --precision fp8 --recipe delayed --amax-history 3 --fp8-lm-head" \
  "long: m --precision bf16 --master bf16 --moments bf16" "m --precision fp8 --recipe rowwise --rowwise-single-copy --lora-rank 4" \
  "long: m --precision fp8 --recipe mxfp8 --lora-rank 4 --lora-dropout 0.25" "x --precision fp32" \
  "long: x --precision fp8 --recipe delayed --amax-history 3 --moments bf16 --async-save"; do
  chosen "$way" || continue
  rm -rf still still.log
  at=0
  while read -r ranks parts flags; do
    at=$((at + 1))
    train ${way%% *} $ranks $parts --data few.h5 --documents separate --sampler sequential --seq-length 16 --steps 8 --save-every 1 \
      --until-step $at --out still $flags ${way#* } >>still.log || break
  done <${way%% *}.walk
  is "$way: only the first step updates" "$(losses still.log | wc -l) $(grep -c '"masked":true' still.log)" "$(wc -l <${way%% *}.walk) $((at - 1))"
  for step in $(seq 2 $at); do
    ok "$way: the bytes of step 1 stay in step $step" fp8-info still/step-00000001 --diff still/step-0000000$step
  done
done

# --- bitwise resume on the same mesh, and asynchronous saves of the same files
# same_files NAME A B N: passes if two checkpoints have the same N files
same_files() {
  (for f in "$2"/*; do cmp "$f" "$3/${f##*/}" || exit 1; done && [ "$(find "$2" -type f | wc -l)" = "$4" ]) >out 2>err
  result $? "$1"
}
for way in "long: m 2 1 --tp 2 --precision fp8 --recipe tensorwise" "long: m 4 2 --tp 2 --precision fp8 --recipe delayed --amax-history 3" \
  "m 4 2 --tp 2 --dp-replicate 2 --precision fp8 --recipe rowwise --master bf16 --moments bf16 --paranoid 1" \
  "m 4 2 --tp 2 --precision fp8 --recipe blockwise --master bf16 --moments bf16" \
  "long: m 4 1 --tp 4 --precision fp8 --recipe rowwise --rowwise-single-copy" \
  "long: m 2 1 --tp 2 --precision fp8 --recipe current --lora-rank 4 --lora-dropout 0.25" \
  "x 4 2 --tp 2 --ep 2 --precision fp8 --recipe delayed --amax-history 3 --grad-accumulation 2"; do
  chosen "$way" || continue
  rm -rf twice synchronous
  ranks=${way#* } ranks=${ranks%% *}
  # The flag is in a file, so that the command lines recorded in the checkpoints are equal.
  for async in false true; do
    echo "{\"async-save\": $async}" >way.json
    train $way --data d.h5 --seq-length 16 --steps 4 --save-every 2 --out twice --config way.json >twice.log
    if [ $async = false ]; then
      mv twice synchronous
      continue
    fi
    same_files "$way: the files of asynchronous saves are those of synchronous ones" \
      twice/step-00000004 synchronous/step-00000004 $((ranks + 1))
    rm -r twice/step-00000004
    train $way --data d.h5 --seq-length 16 --steps 4 --save-every 2 --out twice --config way.json >twice.log
    is "$way: the run resumes at step 3" "$(story twice.log)" "run step3 step4 checkpoint4 end4 "
    same_files "$way: the files are those of the uninterrupted run" twice/step-00000004 synchronous/step-00000004 $((ranks + 1))
  done
done

# --- SIGKILL to a rank during a save: no checkpoint is lost, and the run goes on, also on another mesh
number=0
for way in "long: 4 0 --tp 2 --batch-size 4" "4 3 --tp 2 --batch-size 4 --async-save" "long: 4 2 --tp 4 --batch-size 8 --async-save" \
  "4 1 --tp 2 --dp-replicate 2 --batch-size 4"; do
  chosen "$way" || continue
  number=$((number + 1)) rest=${way#* }
  kill_rank "kill $number, $way" ${way%% *} ${rest%% *} unfinished m.h5 ${rest#* }
done
at=$(echo "${there##*-}" | sed 's/^0*//')
fp8-step m.h5 --data d.h5 --seq-length 32 --steps 100000 --lr 1e-3 --precision fp8 --recipe delayed --amax-history 3 --batch-size 8 --save-every 1 \
  --keep 2 --until-step $((at + 1)) --out killed -q >log 2>err </dev/null
is "one rank goes on, and removes what the kills left" "$? $(find killed -name '*.tmp') $(losses log | cut -d' ' -f1)" "0  $((at + 1))"
done_testing
