#!/bin/sh
# The examples, with ten steps each.
. "${SRC:-.}/tests/cli/lib.sh"
head -c 12000 "$SRC/share/text/tinyshakespeare.txt" >text.txt
export STEPS=10 TEXT=text.txt
status "the demo succeeds" 0 "$SRC/examples/1-demo/run.sh" demo
is "the demo runs to its last command" "$(grep -c '^gate met: ' out) $(grep -c '^Done in ' out)" "1 1"
is "the demo prints a line for each tenth of both runs" "$(grep -c '^  step .* of 10 ' out)" 20
is "the demo leaves two runs" "$(ls -d demo/*/step-00000010)" "demo/bf16/step-00000010
demo/fp8/step-00000010"
status "the example of precision phases succeeds" 0 "$SRC/examples/2-precision-phases/run.sh" phases
is "the run by plan and the run by hand are equal" "$(grep 'equal$' out)" "planned/step-00000010 and byhand/step-00000010: equal"
is "the run has three phases" "$(sed -n 's/^precision  *//p' out)" "bf16, from 2 fp8 tensorwise, emulated, from 10 bf16"
mkdir mine
touch mine/file
for example in 1-demo 2-precision-phases; do
  status "$example: a folder with other files gives status 2" 2 "$SRC/examples/$example/run.sh" mine
  is "$example: a folder with other files is named" "$(cut -d' ' -f2- err)" "mine: holds other files; name a new folder"
done
is "the folder with other files is unchanged" "$(ls -A mine)" "file"
done_testing
