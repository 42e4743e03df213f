#!/bin/sh
# fp8-step and fp8-eval under mpirun: records and files of several ranks, profiles, counts of GEMMs, more ranks than rows.
# equal.t compares steps.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"

# train RANKS BATCH LOG FLAGS: trains four steps of twelve sequences in the folder run.LOG
train() {
  n=$1 batch=$2 log=$3
  shift 3
  mpirun -n "$n" fp8-step "$@" --data d.h5 --seq-length 16 --batch-size "$batch" --steps 4 --lr 1e-2 --out "run.$log" -q >"$log" 2>err </dev/null
}

train 3 4 three m.h5
is "standard output of mpirun is JSON Lines" "$(grep -vc '^{"type":"[a-z]*",.*}$' three)" 0
cmp three run.three/log.jsonl
result $? "log.jsonl is equal to standard output"
is "a checkpoint has a file for each rank and a manifest" "$(cd run.three/step-00000004 && echo ./*)" \
  "./manifest.json ./rank-00000-of-00003.h5 ./rank-00001-of-00003.h5 ./rank-00002-of-00003.h5"
ok "the checkpoint verifies" fp8-info --verify run.three/step-00000004
says "the run record has the mesh" '"mesh":\{"dp_replicate":1,"dp_shard":3,"pp":1,"ep":1,"tp":1\}' head -1 three

# --- --profile: the trace has all ranks
train 2 6 profiled m.h5 --profile 2-3
trace=run.profiled/profile-2-3.json
is "the trace has two steps of each rank" "$(grep -c '"name":"step".*"pid":0' $trace) $(grep -c '"name":"step".*"pid":1' $trace)" "2 2"
says "the trace has the collectives" '"name":"reduce-scatter","cat":"communication"' cat $trace

for n in 1 3; do train $n $((12 / n)) fp8.$n m.h5 --precision fp8 --recipe delayed --master bf16; done
is "the FP8 GEMMs of three ranks are counted" "$(field fp8_gemms fp8.3)" "$(field fp8_gemms fp8.1 | awk '{ print 3 * $1 }')"
ok "a checkpoint of three ranks with delayed scales verifies" fp8-info --verify run.fp8.3/step-00000004

# --- fewer rows than ranks
fp8-init "$SRC/tests/golden/models/qwen3/hf/config.json" --set head_dim=2 --set num_attention_heads=4 --set num_key_value_heads=1 -o few.h5 >out 2>err
train 4 3 few few.h5 --precision fp32
ok "fewer rows than ranks: the checkpoint verifies" fp8-info --verify run.few/step-00000004
mpirun -n 4 fp8-step few.h5 --data d.h5 --seq-length 16 --batch-size 3 --steps 5 --lr 1e-2 --precision fp32 --out run.few -q >out 2>err
is "fewer rows than ranks: the run resumes" "$? $(losses out | cut -d' ' -f1)" "0 5"
ok "fewer rows than ranks: the run resumes on one rank" \
  fp8-step few.h5 --data d.h5 --seq-length 16 --batch-size 12 --steps 6 --lr 1e-2 --precision fp32 --out run.few -q

# --- evaluation
fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 12 --steps 4 --lr 1e-2 --precision fp32 --out e1 -q >log 2>err
head -c 4000 text.txt >some.txt && fp8-tokenize some.txt -o some.h5 -q >out 2>err
fp8-eval e1/step-00000004 --data some.h5 --seq-length 16 --precision fp32 --per-token --batch-size 7 >eval1 2>err
for n in 2 4; do
  [ $n = 4 ] || long || continue
  mpirun -n $n fp8-eval e1/step-00000004 --data some.h5 --seq-length 16 --precision fp32 --per-token --batch-size 7 >evaln 2>err
  is "fp8-eval on $n ranks: the sequences are in order" "$(field index evaln)" "$(seq 0 248)"
  paste -d" " eval1 evaln | sed 's/,"time":"[^"]*"//g; s/[^0-9.e+-]\{1,\}/ /g' |
    awk '{ n = NF / 2; for (i = 1; i <= n; i++) { d = $i - $(i + n); if (d > 1e-5 || d < -1e-5) bad = 1 } } END { exit bad }'
  result $? "fp8-eval on $n ranks: the token losses are those of one rank"
  near_values "fp8-eval on $n ranks: the loss is that of one rank" "$(tail -1 evaln | field loss -)" "$(tail -1 eval1 | field loss -)"
done
head -c 200 text.txt >short.txt && fp8-tokenize short.txt -o short.h5 -q >out 2>err
mpirun -n 3 fp8-eval few.h5 --data short.h5 --seq-length 100 --precision fp8 >out 2>err
is "fp8-eval with fewer sequences than ranks succeeds" "$? $(field tokens out)" "0 100"

# --- two ranks on one core, which mpirun takes for two slots: they yield by themselves as if Open MPI were told to; without it a step takes 100 times
# as long
on_core() {
  mpirun --host localhost:2 -n 2 taskset -c "$core" fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 1 --steps 8 --out "run.$1" -q >"$1" 2>err
}
core=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
on_core told
(unset OMPI_MCA_mpi_yield_when_idle && on_core untold)
median() { field step_s "$1" | sort -g | sed -n 4p; }
is "ranks that share a core yield it while they wait" "$(median untold | awk -v told="$(median told)" '{ print ($1 < 10 * told) }')" 1

done_testing
