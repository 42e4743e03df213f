#!/bin/sh
# tests/bench/estimate.py: the table in fp8-bench(1) is what it prints, and its figures change the times as they should.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
estimate() { "$SRC/tests/bench/estimate.py" "$@"; }
row() { # NAME COLUMN ARGUMENTS...: a range of the first table
  name=$1 column=$2
  shift 2
  estimate "$@" | awk -v name="$name" -v column="$column" 'index($0, name) == 1 && !seen++ { sub(name, ""); print $column }'
}
most() { row "$@" | sed 's/.*-//'; }
ok 'prints a table' estimate
estimate >now
sed -n '/^Computed, not measured:/,/^\.Ed/p' "$SRC/man/man1/fp8-bench.1" | sed '/^\.Ed/d' >page
ok 'the table in fp8-bench(1) is that of now' diff now page
ok 'a faster memory' test "$(most 'other kernels' 1 --memory 6.7)" -lt "$(most 'other kernels' 1)"
ok 'slower FP8 GEMMs' test "$(most 'GEMMs of linears' 2 --fp8 989)" -gt "$(most 'GEMMs of linears' 2)"
ok 'fast accumulation counts in recipes that have it' test "$(most 'GEMMs of linears' 2 --fast-share 0.3)" -gt "$(most 'GEMMs of linears' 2)"
is 'and not in blockwise' "$(row 'GEMMs of linears' 6 --fast-share 0.3)" "$(row 'GEMMs of linears' 6)"
ok 'scores that are stored cost more than those that are not' test "$(most attention 1 --length 8192 --score-passes 2)" -gt \
  "$(most attention 1 --length 8192 --score-passes 0)"
ok 'a slow clock bounds casts by their instructions' test "$(most 'casts and scales' 2 --clock 0.1)" -gt "$(most 'casts and scales' 2)"
is 'at the boost clock counted codes cost no time' "$(row 'casts and scales' 2 --clock 1.755)" "$(row 'casts and scales' 2 --clock 9)"
# counting RECIPE-COLUMN: milliseconds that counting adds to a step at 1.4 GHz
counting() { echo $(($(most 'a step' "$1") - $(most 'a step' "$1" --counting 0))); }
is 'at 1.4 GHz counting in each step costs what fp8-bench(1) states' "$(counting 2) ms $(counting 3) ms" \
  "$(sed -n 's/^GHz counting adds \([0-9]* ms\) of a step.* and \([0-9]* ms\) with one for each$/\1 \2/p' "$SRC/man/man1/fp8-bench.1")"
ok 'communication slows the compute beside it' test "$(most 'beside communication' 1 --contention 0.5)" -gt "$(most 'beside communication' 1)"
is 'one figure for both cases gives one result' "$(row 'GEMMs of linears' 1 --bf16-share 0.7 --launch 3)" 497
is 'a shape has one table' "$(estimate --sequences 2 --length 4096 | grep -c '^Computed')" 1
ok 'without --sequences and --length there are two, the second beside published numbers' \
  sh -c "'$SRC/tests/bench/estimate.py' | tail -n 1 | grep -q '^torchao, published  *1.25  *1.10$'"
is 'bf16 GEMMs do not depend on FP8' "$(row 'GEMMs of linears' 1 --fp8 989)" "$(row 'GEMMs of linears' 1)"
is 'one rank communicates nothing' "$(row 'communication not hidden' 1 --ranks 1 --link 1)" 0
status 'an unknown figure is status 2' 2 estimate --speed 3
done_testing
