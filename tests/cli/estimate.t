#!/bin/sh
# tests/bench/estimate.py: the table in fp8-bench(1) is what it prints, and its figures change the times as they should.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
estimate() { "$SRC/tests/bench/estimate.py" "$@"; }
row() { # NAME COLUMN ARGUMENTS...: a figure of the table
  name=$1 column=$2
  shift 2
  estimate "$@" | awk -v name="$name" -v column="$column" 'index($0, name) == 1 { sub(name, ""); print $column }'
}
ok 'prints a table' estimate
estimate >now
sed -n '/^Computed, not measured:/,/^\.Ed/p' "$SRC/man/man1/fp8-bench.1" | sed '/^\.Ed/d' >page
ok 'the table in fp8-bench(1) is that of now' diff now page
ok 'a faster memory' test "$(row 'other kernels' 1 --memory 6.7 | tr -d .)" -lt "$(row 'other kernels' 1 | tr -d .)"
ok 'slower FP8 GEMMs' test "$(row 'GEMMs of linears' 2 --fp8 989 | tr -d .)" -gt "$(row 'GEMMs of linears' 2 | tr -d .)"
is 'bf16 GEMMs do not depend on FP8' "$(row 'GEMMs of linears' 1 --fp8 989)" "$(row 'GEMMs of linears' 1)"
is 'one rank communicates nothing' "$(row 'communication not hidden' 1 --ranks 1 --link 1)" 0.0
status 'an unknown figure is status 2' 2 estimate --speed 3
done_testing
