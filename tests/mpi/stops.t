#!/bin/sh
# fp8-step under mpirun: resuming on other numbers of ranks, signals, and errors of a single rank.
# shellcheck disable=SC2086,SC2016 # lists of words on purpose; each rank's shell expands the variables
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
few="--data d.h5 --seq-length 16 --steps 6 --lr 1e-2 -q"

# --- a resumed run is equal to an uninterrupted run
n=0
for way in "long: --precision fp32" "--precision bf16 --moments bf16 --master bf16" "--precision fp8 --grad-accumulation 2" \
  "--precision fp8 --recipe rowwise --zero 2"; do
  chosen "$way" || continue
  n=$((n + 1))
  mkdir a$n b$n
  for at in a$n b$n; do
    [ $at = a$n ] || { cp -r a$n/run b$n/run && rm -r b$n/run/step-00000006; }
    (cd $at && mpirun -n 2 fp8-step ../m.h5 --data ../d.h5 --seq-length 16 --steps 6 --lr 1e-2 --batch-size 3 --save-every 3 --out run -q $way \
      >log 2>err </dev/null)
  done
  is "$way: the run resumes at step 4" "$(story b$n/log)" "run step4 step5 step6 checkpoint6 end6 "
  for f in manifest.json rank-00000-of-00002.h5 rank-00001-of-00002.h5; do
    cmp a$n/run/step-00000006/$f b$n/run/step-00000006/$f
    result $? "$way: $f is equal"
  done
done

# --- other numbers of ranks
fp8-step m.h5 $few --batch-size 6 --precision fp32 --out whole >whole.log 2>err
at=0
for ranks in 2 3 1 3 2 1; do
  at=$((at + 1))
  mpirun -n $ranks fp8-step m.h5 $few --batch-size $((6 / ranks)) --precision fp32 --out moving --until-step $at >>moving.log 2>err </dev/null
done
near "2, 3, 1, 3, 2, 1 ranks in turn have the losses of one rank" moving.log whole.log 1e-6
is "each checkpoint has as many files as ranks" "$(for s in moving/step-*; do find "$s" -name 'rank-*' | wc -l; done | tr '\n' ' ')" "2 3 1 3 2 1 "
ok "the last checkpoint verifies" fp8-info --verify moving/step-00000006
mpirun -n 3 fp8-step m.h5 $few --batch-size 3 --precision fp32 --steps 7 --out moving >out 2>err </dev/null
is "another global batch is refused" "$? $(grep '^fp8-step: ' err)" \
  "2 fp8-step: moving: this run was started with another global batch (ranks x --batch-size x --grad-accumulation) (6, now 9); use another --out, \
or the same settings to resume, or --change batch to go on with the new ones"
printf '\001' | dd of=moving/step-00000005/rank-00001-of-00002.h5 bs=1 seek=100000 conv=notrunc 2>/dev/null
rm -r moving/step-00000006 && mkdir moving/step-00000006.tmp
mpirun -n 2 fp8-step m.h5 --data d.h5 --seq-length 16 --steps 6 --lr 1e-2 --batch-size 3 --precision fp32 --out moving >out 2>err </dev/null
is "a damaged shard: the run resumes from the checkpoint before" "$? $(story out)" "0 run warning step5 step6 checkpoint6 end6 "
is "a damaged shard gives one line" \
  "$(grep -c '^fp8-step: moving/step-00000005: damaged, trying an older one: moving/step-00000005/rank-00001-of-00002.h5' err)" 1
is "a temporary folder is removed with one line" "$(grep -c '^fp8-step: moving/step-00000006.tmp: left over' err) $(ls -d moving/*.tmp 2>/dev/null)" \
  "1 "
mpirun -n 2 fp8-step m.h5 --data d.h5 --seq-length 16 --steps 6 --lr 1e-2 --batch-size 3 --precision fp32 --out moving >out 2>err </dev/null
is "a completed run prints one line" "$? $(cat out err)" "0 fp8-step: moving: already at step 6 of 6, nothing to do"

# --- errors of one rank: all ranks end, and one line is printed
cp d.h5 d_0.h5
alone() { # NAME STATUS REGEX WORDS: runs WORDS on two ranks; $OMPI_COMM_WORLD_RANK in WORDS is the rank
  name=$1 wanted=$2 pattern=$3
  shift 3
  start=$(date +%s)
  timeout 60 mpirun -n 2 sh -c "exec $*" >out 2>err </dev/null
  got=$?
  [ $got = "$wanted" ] && [ "$(grep -c '^fp8-' err)" = 1 ] && grep -Eq -e "^fp8-[a-z]*: $pattern" err && [ ! -s out ] && [ ! -e x ]
  result $? "$name: status $wanted and one line"
  [ $(($(date +%s) - start)) -lt 30 ]
  result $? "$name: the job ends within 30 s"
  rm -rf x
}
two="fp8-step m.h5 --data d.h5 --seq-length 16 --steps 2 --batch-size 2 --out x -q"
alone "data missing on one rank" 2 'rank 1: d_1.h5: No such file or directory' "$two" '--data d_$OMPI_COMM_WORLD_RANK.h5'
head -c 9000 text.txt >other.txt && fp8-tokenize other.txt -o d_1.h5 >out 2>err
alone "ranks with other data" 2 'rank 1: started with another --data; all ranks need the same' "$two" '--data d_$OMPI_COMM_WORLD_RANK.h5'
alone "ranks with other data to evaluate on" 2 'rank 1: started with another --eval-data;' "$two" \
  '--eval-every 1 --eval-data d_$OMPI_COMM_WORLD_RANK.h5'
alone "ranks with other steps" 2 'rank 1: started with another --steps \(1 on rank 0, 2\)' "$two" '--steps $((OMPI_COMM_WORLD_RANK + 1))'
alone "ranks with other batches" 2 'rank 1: started with another --batch-size \(2 on rank 0, 1\)' "$two" '--batch-size $((2 - OMPI_COMM_WORLD_RANK))'
alone "a dry run on one rank alone" 2 'rank 1: started with another --dry-run' "$two" '$([ $OMPI_COMM_WORLD_RANK = 0 ] || echo --dry-run)'
alone "ranks with other models" 2 'rank 1: started with another MODEL; all ranks need the same' \
  fp8-step 'm$((OMPI_COMM_WORLD_RANK + 1)).h5 --data d.h5 --out x --steps 2'
alone "fp8-eval: ranks with other models" 2 'rank 1: started with another MODEL;' fp8-eval 'm$((OMPI_COMM_WORLD_RANK + 1)).h5 --data d.h5'
alone "fp8-eval: ranks with other data" 2 'rank 1: started with another --data' fp8-eval 'm.h5 --data d_$OMPI_COMM_WORLD_RANK.h5'
cp m.h5 bad.h5 && printf '\001' | dd of=bad.h5 bs=1 seek=300000 conv=notrunc 2>/dev/null
alone "a model with a changed byte" 2 '(rank 0: )?bad.h5: /weights/.*damaged' fp8-step bad.h5 --data d.h5 --out x --steps 2 --seq-length 16
alone "contradicting flags on all ranks" 2 '--activations: f32 needs' "$two" --activations f32
alone "an unknown flag on all ranks" 2 '--nope' "$two" --nope
alone "a batch larger than the memory" 2 'out of memory: .* on each rank' "$two" --seq-length 512 --batch-size 4194303
fp8-init tiny --set hidden_size=72 --set head_dim=18 -o odd.h5 >out 2>err
alone "FP8 that cannot run" 3 'odd.h5: no linear of this model can run in FP8' fp8-step odd.h5 --data d.h5 --out x --steps 2 --seq-length 16 \
  --precision fp8
: >afile
alone "an output that is a file" 2 '(rank 0: )?afile: exists and is not a folder' fp8-step m.h5 --data d.h5 --out afile --steps 2 --seq-length 16

# --- values that are not finite: all ranks skip the step
cp -r "$SRC/tests/golden/models/llama3/hf" nan && chmod -R u+w nan
size=$(wc -c <nan/model.safetensors)
printf '\177\177' | dd of=nan/model.safetensors bs=1 seek=$((size - 2)) conv=notrunc 2>/dev/null # in rank 1's shard of the last norm
fp8-convert nan -o nan.h5 >out 2>err
number=0
for way in 2 3 "2 --pp 2 --grad-accumulation 2" "2 --tp 2"; do # ranks and their mesh
  number=$((number + 1))
  mpirun -n ${way%% *} fp8-step nan.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 20 --save-every 4 --out nan$number -q ${way#[0-9]} \
    >out 2>err </dev/null
  is "$way: status 4 and one line after ten skipped steps" \
    "$? $(grep -c '"skipped":true' out) $(grep -c '^fp8-step: the loss or the gradient was not finite in 10 steps' err) $(grep -c '^fp8-' err)" \
    "4 10 1 1"
done

# --- signals
stopped() { # NAME FLAGS: waits for $job, with the log sig.log, and resumes the run, which had FLAGS
  wait $job
  is "$1: status 75" $? 75
  is "$1: the log ends with a checkpoint" "$(tail -2 sig.log | grep -c '"type":"checkpoint"\|stopped on request')" 2
  at=$(field step sig.log | tail -1)
  mpirun -n 2 fp8-step m.h5 --data d.h5 --seq-length 32 --batch-size 8 --steps 4000 --out sig -q ${2:-} --until-step $((at + 1)) >out 2>err </dev/null
  is "$1: the run resumes" "$? $(losses out | cut -d' ' -f1)" "0 $((at + 1))"
  rm -r sig
}
begin() {
  rm -f sig.log pid0 pid1 # files of the previous job
  env --default-signal=INT mpirun -n 2 \
    sh -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK; exec fp8-step m.h5 --data d.h5 --seq-length 32 --batch-size 8 --steps 4000 --out sig -q "$@"' sh "$@" \
    >sig.log 2>err </dev/null &
  job=$!
  until grep -q '"type":"step"' sig.log 2>/dev/null; do sleep 0.1; done
}
begin
# A signal handler on the stack of oneDNN's kernels corrupts the heap; one run in twenty crashed. Hence all signals are blocked.
for rank in 0 1; do
  task=/proc/$(cat pid$rank)/task
  is "rank $rank: each thread blocks USR1, TERM, INT and HUP" "$(grep -LE '^SigBlk:.*[4-7c-f][2367abef].[37bf]$' "$task"/*/status)" ""
  is "rank $rank: no thread has a handler for them" "$(grep -LE '^SigCgt:.*[0-389ab][014589cd].[048c]$' "$task"/*/status)" ""
done
kill -USR1 $job
stopped "USR1 to mpirun"
begin
kill -TERM "$(cat pid1)"
stopped "TERM to one rank"
for mesh in "--pp 2 --grad-accumulation 4" "--tp 2"; do
  begin $mesh
  kill -TERM "$(cat pid1)"
  stopped "$mesh: TERM to one rank" "$mesh"
done
for signal in INT HUP; do
  [ $signal = INT ] || long || continue
  begin
  kill -$signal "$(cat pid1)"
  stopped "$signal to one rank"
done

# --- a signal before the first step: no checkpoint is saved
mkfifo fifo
for signal in USR1 TERM; do
  rm -rf early
  rm -f pid0 pid1
  mpirun -n 2 sh -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK; exec fp8-step "$@"' sh m.h5 --data d.h5 --seq-length 32 --steps 4000 --out early \
    --config fifo >out 2>err </dev/null &
  job=$!
  for rank in 0 1; do
    until grep -Eqs '^SigBlk:.*[4-7c-f][2367abef]..$' "/proc/$(cat pid$rank 2>/dev/null)/status"; do sleep 0.1; done
  done
  sleep 1 # until both ranks read the configuration
  start=$(date +%s)
  kill -$signal $job
  wait $job
  is "$signal to mpirun before the first step ends the job without a run folder" "$? $([ -e early ] && echo written) $(($(date +%s) - start < 5))" \
    "$([ $signal = USR1 ] && echo 75 || echo 1)  1"
done

# --- TERM, HUP and INT to mpirun: mpirun kills its ranks within a second, and committed checkpoints stay
for signal in TERM HUP INT; do
  [ $signal = TERM ] || long || continue
  begin --save-every 1
  until grep -q '"type":"checkpoint","step":3' sig.log; do sleep 0.1; done
  kill -$signal $job
  wait $job
  is "$signal to mpirun: status 1" $? 1
  newest=$(fp8-resume sig --print)
  committed=$(field path sig/log.jsonl | tail -1 | tr -d '"')
  ok "$signal to mpirun: the newest checkpoint verifies" fp8-info --verify "$newest"
  [ "$(printf '%s\n%s\n' "$committed" "$newest" | sort | tail -1)" = "$newest" ]
  result $? "$signal to mpirun: the newest checkpoint is not older than the last in the log"
  at=$(($(echo "${newest##*-}" | sed 's/^0*//') + 1))
  mpirun -n 2 fp8-step m.h5 --data d.h5 --seq-length 32 --batch-size 8 --steps 4000 --out sig -q --until-step $at >out 2>err </dev/null
  is "$signal to mpirun: the run resumes from the newest checkpoint" "$? $(losses out | cut -d' ' -f1)" "0 $at"
  rm -r sig
done

done_testing
