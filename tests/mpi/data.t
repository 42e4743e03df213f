#!/bin/sh
# Damaged training data: training, evaluation and resuming give status 2 on any rank and name the damaged block.
# lib/data/tests/tokens_test.cc tests damage in each dataset and block.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
step="--seq-length 16 --batch-size 4 --steps 4 -q"

# spoil FILE COPY PATTERN BYTES: copies FILE and overwrites BYTES bytes from the first match of the Perl regular expression
spoil() {
  place=$(LC_ALL=C grep -aboP "$3" "$1" | head -1 | cut -d: -f1)
  cp "$1" "$2" && head -c "$4" /dev/zero | tr '\0' 'Z' | dd of="$2" bs=1 seek="$place" conv=notrunc 2>/dev/null
}
spoil d.h5 tokens.h5 'First Citizen' 20000
spoil d.h5 documents.h5 '\x00{8}\x20\x4e\x00{6}' 1
block='/tokens: damaged: block 0, bytes [0-9]* to [0-9]* of the file, differs from its digest; make the file again'
whole='/documents: damaged: its bytes differ from its digest'

# ends NAME LINE COMMAND...: passes if the command gives status 2, no step or evaluation record, and the one line LINE
ends() {
  name=$1 line=$2
  shift 2
  "$@" >out 2>err </dev/null
  is "$name: status 2, no loss, one line" \
    "$? $(losses out | wc -l) $(grep -c '"type":"eval"' out) $(grep -c '^fp8-' err) $(grep -cE "^fp8-[a-z]*: (rank [0-9]: )?$line\$" err)" "2 0 0 1 1"
}
ok "a run of two steps" fp8-step m.h5 --data d.h5 --out run $step --until-step 2
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
is "damaged evaluation data gives status 2 at the first evaluation" "$? $(losses out | wc -l) $(grep -cE "^fp8-step: tokens.h5: $block\$" err)" \
  "2 1 1"
ok "the run resumes with undamaged data" fp8-step m.h5 --data d.h5 --out run $step
is "the run resumes at step 3" "$(losses out | cut -d' ' -f1 | tr '\n' ' ')" "3 4 "
done_testing
