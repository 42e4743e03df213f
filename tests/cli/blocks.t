#!/bin/sh
# Checkpoints in blocks that are split in several dimensions, as other meshes write them, and checkpoints of version 1 of the format.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
O=${O:-$SRC/build}
train="fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 2 --out run --save-every 2 -q"
ok "a run of two steps" $train --steps 2
cp -r run begun && mv begun/step-00000002 rows
fp8-convert rows --merge -o rows.h5 >table
ok "the run goes on" $train --steps 4
mv run rows-run

for ranks in 2 4 7; do
  boxes=boxes-$ranks/step-00000002
  cp -r begun boxes-$ranks && "$O/test/forge" rows $boxes $ranks
  ok "$ranks: blocks of $ranks ranks verify" fp8-info $boxes --verify
  ok "$ranks: their tensors are those of the rows" fp8-info $boxes --diff rows
  ok "$ranks: they merge" fp8-convert $boxes --merge -o boxes.h5 -f
  ok "$ranks: into the same weights and moments" fp8-info boxes.h5 --diff rows.h5
  mv boxes-$ranks run
  ok "$ranks: a run goes on from them" $train --steps 4
  is "$ranks: with the bytes of the run that had rows" "$(diff -r run/step-00000004 rows-run/step-00000004 && echo equal)" equal
  mv run boxes-$ranks
done
is "two dimensions are split" \
  "$(grep -c '"blocks":\[\[0,\[0,0\],\[[0-9]*,[0-9]*\]\],\[1,\[0,[1-9]' boxes-4/step-00000002/manifest.json | sed 's/[1-9][0-9]*/many/')" many

while read -r name reason; do
  mkdir "$name" && cp "$SRC/tests/fuzz/corpus/manifest/boxes-$name.json" "$name/manifest.json"
  fp8-info "$name" >out 2>err
  is "$name: blocks that are no tensor are refused" "$? $(cat out err)" "2 fp8-info: $name/manifest.json: b: $reason"
done <<TABLE
overlap element [3,2] is in two blocks
hole element [4,3] is in no block
rank offset and extent of a block have lengths 1 and 2, the shape of the tensor 2
far a block with offset 9223372036854775807 and extent 9223372036854775807 is outside dimension 0, which has 7
TABLE

mkdir -p old run-1/step-00000001
cp "$SRC/tests/fuzz/corpus/manifest/version-1.json" old/manifest.json
cp old/manifest.json run-1/step-00000001
cp "$SRC/tests/fuzz/corpus/checkpoint/version-1.h5" old.h5
while read -r tool words; do
  for old in old.h5 old; do
    in=$old && [ -d $old ] && in=$old/manifest.json
    $tool $old $words >out 2>err </dev/null
    is "$tool refuses version 1 of ${in#old/}" "$? $(cat out err)" "2 $tool: $in: version 1 of the checkpoint format is not known (2 is)"
  done
done <<TABLE
fp8-info
fp8-info --verify
fp8-convert -o x.h5
fp8-convert --merge -o x.h5
fp8-quantize --scaling tensor -o x.h5
fp8-export -o x
fp8-eval --data d.h5
fp8-generate a
fp8-inspect --data d.h5
fp8-step --data d.h5 --out x --steps 1
TABLE
fp8-resume run-1 --print >out 2>err
is "a run of version 1 has no checkpoint to resume from" "$? $(tail -1 err)" \
  "1 fp8-resume: run-1: no checkpoint to resume from; the newest: run-1/step-00000001/manifest.json: version 1 of the checkpoint format is not \
known (2 is)"
is "the refused commands leave no file" "$(ls -d x x.h5 2>/dev/null)" ""
done_testing
