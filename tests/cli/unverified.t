#!/bin/sh
# tests/gpu/UNVERIFIED.md: each line has a command that would test it, each test of a GPU that it names exists, and so does each flag.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
list=$SRC/tests/gpu/UNVERIFIED.md
grep '^- ' "$list" >lines
# shellcheck disable=SC2016 # the backquotes are those of Markdown
command='`([A-Za-z0-9]+Gpu\.[A-Za-z0-9*]+|([A-Z_]+=[^ `]+ )*(build/(bin|test)/|mpirun |nsys |nvidia-smi |make |sh tests/|fp8-)[^`]+)`'
is "each line has a command" "$(grep -vE "$command" lines)" ""
grep -oE '[A-Za-z0-9]+Gpu\.[A-Za-z0-9]+' "$list" | grep -v '\.md' | sort -u >named
sed -n 's/^TEST\(_F\)\{0,1\}(\([A-Za-z0-9]*\), \([A-Za-z0-9]*\)).*/\2.\3/p' "$SRC"/tests/gpu/*.cc | sort -u >tests
ok "tests are named" test -s named
is "each named test exists" "$(awk 'NR == FNR { all = all "\n" $0; next } { if (index(all, "\n" $0) == 0) print }' tests named)" ""
{ fp8-step --help && fp8-inspect --help && fp8-bench --help; } >help 2>err
grep -oE 'fp8-(step|inspect|bench) [^`]*' "$list" | grep -oE ' --[a-z-]+' | tr -d ' ' | sort -u >flags
ok "flags are named" test -s flags
while read -r flag; do grep -q -e "$flag\b" help || echo "$flag"; done <flags >missing
is "each flag of a command exists" "$(cat missing)" ""
done_testing
