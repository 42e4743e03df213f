#!/bin/sh
# The examples, with ten steps each.
. "${SRC:-.}/tests/cli/lib.sh"
head -c 12000 "$SRC/share/text/tinyshakespeare.txt" >text.txt
export STEPS=10 TEXT=text.txt
# Trains a model on a text in bf16 and in FP8, three pairs of runs, and compares them. `make demo` runs this script after the build. Each command is
# printed before it runs. Takes two to six minutes on two cores.
#   examples/1-demo/run.sh [FOLDER]      FOLDER (default: build/demo) must be new, empty, or made by an earlier demo, which is then deleted
# BIN is the folder of the programs (default: build/bin), STEPS the number of steps of a run (at least 10), TEXT the text file. The script checks only
# the exit status of each command.
mkdir mine
touch mine/file
for example in 1-demo 2-precision-phases; do
  status "$example: a folder with other files gives status 2" 2 "$SRC/examples/$example/run.sh" mine
  is "$example: a folder with other files is named" "$(cut -d' ' -f2- err)" "mine: holds other files; name a new folder"
done
is "the folder with other files is unchanged" "$(ls -A mine)" "file"
done_testing
