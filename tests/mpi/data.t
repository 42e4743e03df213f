#!/bin/sh
# Training data that was damaged: training, evaluation and resuming end with status 2 on any rank, and name what is damaged.
# Which datasets, and which block of them, is in lib/data/tests/tokens_test.cc.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
step="--seq-length 16 --batch-size 4 --steps 4 -q"

# spoil FILE COPY PATTERN BYTES: the copy differs in that many bytes from PATTERN, Perl's, on
spoil() {
  place=$(LC_ALL=C grep -aboP "$3" "$1" | head -1 | cut -d: -f1)
  cp "$1" "$2" && head -c "$4" /dev/zero | tr '\0' 'Z' | dd of="$2" bs=1 seek="$place" conv=notrunc 2>/dev/null
}
spoil d.h5 tokens.h5 'First Citizen' 20000
spoil d.h5 documents.h5 '\x00{8}\x20\x4e\x00{6}' 1
block='/tokens: damaged: block 0, bytes [0-9]* to [0-9]* of the file, differs from its digest; make the file again'
whole='/documents: damaged: its bytes differ from its digest'

# ends NAME LINE COMMAND...: with status 2, no step, and one line of its own
ends() {
  name=$1 line=$2
  shift 2
  "$@" >out 2>err </dev/null
  is "$name: status 2, no loss, one line" "$? $(losses out | wc -l) $(grep -c '"type":"eval"' out) $(grep -c '^fp8-' err) $(grep -cE "^fp8-[a-z]*: (rank [0-9]: )?$line\$" err)" "2 0 0 1 1"
}
ok "a run to go on with" fp8-step m.h5 --data d.h5 --out run $step --until-step 2
cp d.h5 good.h5
for n in 1 2; do
  ends "training, $n ranks" "tokens.h5: $block" mpirun -n $n fp8-step m.h5 --data tokens.h5 --out run.$n $step
  ends "evaluation, $n ranks" "tokens.h5: $block" mpirun -n $n fp8-eval m.h5 --data tokens.h5 --seq-length 16
  ends "documents, $n ranks" "documents.h5: $whole" mpirun -n $n fp8-step m.h5 --data documents.h5 --out run.$n $step
  ends "documents for an evaluation, $n ranks" "documents.h5: $whole" mpirun -n $n fp8-eval m.h5 --data documents.h5 --seq-length 16
  cp tokens.h5 d.h5
  ends "resuming, $n ranks" "d.h5: $block" mpirun -n $n fp8-step m.h5 --data d.h5 --out run --seq-length 16 --batch-size $((4 / n)) --steps 4 -q
  cp good.h5 d.h5
done
fp8-step m.h5 --data d.h5 --eval-data tokens.h5 --eval-every 1 --out run.eval $step >out 2>err
is "data to evaluate on during a run" "$? $(losses out | wc -l) $(grep -cE "^fp8-step: tokens.h5: $block\$" err)" "2 1 1"
ok "with the data as it was the run goes on" fp8-step m.h5 --data d.h5 --out run $step
is "from where it was" "$(losses out | cut -d' ' -f1 | tr '\n' ' ')" "3 4 "
done_testing
