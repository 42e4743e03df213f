#!/bin/sh
# Saves under mpirun: synchronous and asynchronous, killed during a save, with a full disk on one rank.
# shellcheck disable=SC2086,SC2016,SC2046 # lists of words on purpose; each rank's shell expands the variables
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1

# --- synchronous and asynchronous saves write equal files
for ranks in 2 3; do
  for way in false true; do # the flag is in a file, so that the command lines recorded in the checkpoints are equal
    mkdir $ranks.$way && echo "{\"async-save\": $way}" >$ranks.$way/way.json
    (cd $ranks.$way && mpirun -n $ranks fp8-step ../m.h5 --data ../d.h5 --seq-length 16 --batch-size $((6 / ranks)) --steps 5 --save-every 2 \
      --lr 1e-2 --config way.json --out run -q >log 2>err </dev/null)
  done
  is "$ranks ranks, --async-save: each checkpoint has a record" "$(grep '"type":"checkpoint"' $ranks.true/log | field step - | tr '\n' ' ')" "2 4 5 "
  (cd $ranks.false/run && for f in step-*/*; do cmp "$f" ../../$ranks.true/run/$f || exit 1; done &&
    [ "$(echo step-*/* | wc -w)" = $((3 * ranks + 3)) ])
  result $? "$ranks ranks, --async-save: the files are those of synchronous saves"
done

# --- one file of the weights alone
ok "fp8-convert --weights-only accepts a checkpoint of several files" fp8-convert 3.false/run/step-00000005 --weights-only -o weights.h5
is "the file is a model" "$(fp8-info weights.h5 --json | grep -o '"kind":"[a-z]*"' | head -1)" '"kind":"model"'
is "its weights are those of the checkpoint" "$(fp8-info 3.false/run/step-00000005 --diff weights.h5 | grep -Ec '^weights/[a-z0-9_.]+ +0 +0$')" 21
says "without it the message names it" 'use --merge for one file, or --weights-only' fp8-convert 3.false/run/step-00000005 -o x.h5

# --- SIGKILL during a save
# begin FOLDER FLAGS: starts a job of two ranks, $job, with process ids in pid0 and pid1 and records in log
begin() {
  rm -f pid0 pid1 log notes
  run=$1
  shift
  mpirun -n 2 sh -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK; exec fp8-step "$@"' fp8-step m.h5 --data d.h5 --seq-length 32 --batch-size 2 --steps 100000 \
    --lr 1e-3 --out "$run" "$@" >log 2>notes </dev/null &
  job=$!
}
for kill in 1 2 3 4; do
  begin killed --async-save --save-every 1 --keep 2 -q
  soon grep -q '"type":"checkpoint"' log
  soon unfinished
  kill -9 $(cat pid0 pid1)
  wait $job
  for rank in 0 1; do soon vanished "$(cat pid$rank)"; done # mpirun(1) may end before its ranks, which hold the folder
  told=$(grep '"type":"checkpoint"' killed/log.jsonl | field step - | tail -1)
  there=$(find killed -name 'step-????????' | sort | tail -1)
  [ "$there" ] && [ "1${there##*-}" -ge "1$(printf '%08d' "$told")" ] && [ "$told" -gt $newest ]
  result $? "kill $kill: the checkpoints in the log exist"
  ok "kill $kill: all checkpoints verify" sh -c 'for s in killed/step-????????; do fp8-info --verify $s || exit 1; done'
  newest=$told
done
begin killed --save-every 1 --keep 2
soon grep -q '"type":"checkpoint"' log
kill -USR1 $job
wait $job
rc=$?
cp notes err # a failure shows them
is "leftovers of the kills are removed and the run resumes" "$rc $(find killed -name '*.tmp') $(grep -c "resuming from $there" notes)" "75  1"

# --- a full disk on one rank: no rank commits the save
limit() { prlimit --fsize="$1": --pid "$(cat pid1)"; }
warnings() { [ "$(grep -c '"type":"warning"' full/log.jsonl)" -ge "$1" ]; }
recovered() { tail -n 5 full/log.jsonl | grep -q '"type":"checkpoint"'; }
for way in "" --async-save; do
  rm -rf full
  begin full --save-every 5 $way -q
  soon grep -q '"type":"checkpoint"' log
  limit 4096
  soon warnings 3
  result $? "full disk ${way:+with }$way: the run continues and writes warnings"
  ok "${way:+$way: }the message names rank and file" soon grep -Eq \
    '^fp8-step: step [0-9]+ is not saved: rank 1: full/step-[0-9]+.tmp/rank-00001-of-00002.h5: cannot write: File too large' notes
  limit unlimited
  soon recovered
  result $? "${way:+$way: }the next save succeeds after space is freed"
  limit 4096
  kill -USR1 $job
  wait $job
  is "${way:+$way: }a stop that cannot save gives status 2" $? 2
  ok "${way:+$way: }all checkpoints verify" sh -c 'for s in full/step-*; do fp8-info --verify $s || exit 1; done'
done
says "the last line names the step" '^fp8-step: rank 1: full/step-[0-9]+.tmp/.*; the last step is not saved, earlier checkpoints are unchanged$' \
  grep 'the last step' notes
done_testing
