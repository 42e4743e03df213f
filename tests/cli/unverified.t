#!/bin/sh
# tests/gpu/UNVERIFIED.md: each line has a command that would test it; each test, file and flag that it names exists, and each training can be planned.
# shellcheck source=tests/cli/lib.sh disable=SC2086 # words of commands
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
list=$SRC/tests/gpu/UNVERIFIED.md
grep '^- ' "$list" >lines
# shellcheck disable=SC2016 # the backquotes are those of Markdown
command='`([A-Za-z0-9]+Gpu\.[A-Za-z0-9*]+|([A-Z_]+=[^ `]+ )*(build/(bin|test)/|mpirun |nsys |nvidia-smi |make |sh tests/)[^`]+)`'
is "each line has a command" "$(grep -vE "$command" lines)" ""
grep -oE '[A-Za-z0-9]+Gpu\.[A-Za-z0-9*]+' "$list" | sort -u >named
sed -n 's/^TEST\(_F\)\{0,1\}(\([A-Za-z0-9]*\), \([A-Za-z0-9]*\)).*/\2.\3\n\2.*/p' "$SRC"/tests/gpu/*.cc | sort -u >tests
ok "tests are named" test -s named
is "each named test exists" "$(awk 'NR == FNR { all[$0]; next } !($0 in all)' tests named)" ""
# shellcheck disable=SC2016
grep -oE '`(lib|tests)/[^` ]+`' "$list" | tr -d '`' | sort -u >files
ok "files are named" test -s files
while read -r file; do [ -e "$SRC/$file" ] || echo "$file"; done <files >missing
is "each named file exists" "$(cat missing)" ""
{ fp8-step --help && fp8-inspect --help && fp8-bench --help && fp8-info --help; } >help 2>err
grep -oE 'fp8-(step|inspect|bench|info) [^`]*' "$list" | grep -oE ' --[a-z-]+' | tr -d ' ' | sort -u >flags
ok "flags are named" test -s flags
while read -r flag; do grep -q -e "$flag\b" help || echo "$flag"; done <flags >missing
is "each flag of a command exists" "$(cat missing)" ""

mixture
cuda=cuda
[ -x "$(dirname "$BIN")/test/device-step" ] || cuda=cpu # a build without CUDA plans for no GPU
# shellcheck disable=SC2016
grep -oE '`[^`]*fp8-step [^-][^`]*`' "$list" | tr -d '`' | sort -u >trainings
ok "trainings are named" test -s trainings
while read -r training; do
  ranks=$(echo "$training" | sed -n 's/.*mpirun -n \([0-9]*\) .*/\1/p')
  words=$(echo "${training#*build/bin/fp8-step }" | sed "s/MODEL\.h5/m.h5/; s/MOE\.h5/x.h5/; s/DATA\.h5/d.h5/; s/--device cuda/--device $cuda/")
  mpirun -n "${ranks:-1}" fp8-step $words -n -q >out 2>err </dev/null || echo "$training: $(cat err)"
done <trainings >missing
is "each training can be planned" "$(cat missing)" ""
done_testing
