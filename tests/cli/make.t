#!/bin/sh
# The output of make and its number of jobs. The compiler is a script that writes empty files and counts its concurrent instances.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

unset MAKEFLAGS MFLAGS MAKELEVEL V
cat >cxx <<'END'
#!/bin/sh
cd "${0%/*}" || exit
touch "running.$$"
sleep 0.1
set -- running.* "$@"
for file; do case $file in running.*) echo . ;; *) break ;; esac; done | wc -l >>counts
while [ $# -gt 0 ]; do
  case $1 in
    -o) echo >"$2" ;;
    */parse.cc) echo "$1: warning: a compiler warning" >&2 ;;
  esac
  shift
done
rm "running.$$"
END
chmod +x cxx
# json [ARGUMENT...]: builds the library of one crate in a new folder.
json() { rm -rf o counts && make --no-print-directory -C "$SRC" CUDA=0 CXX="$work/cxx" O="$work/o" "$@" "$work/o/lib/json.a"; }
most() { sort -n counts | tail -1; }
sources=$(cd "$SRC" && for f in lib/json/src/*.cc; do echo "CXX  $f"; done)
cores=$(OMP_NUM_THREADS='' nproc)

ok "make succeeds" json
is "make prints one line per file" "$(sort out)" "$(printf 'AR   lib/json.a\n%s' "$sources")"
is "compiler warnings are printed" "$(grep -c warning: err)" 1
parallel() { [ "$cores" = 1 ] || [ "$(most)" -gt 1 ]; }
parallel
result $? "make runs several jobs on several cores"
is "make runs at most one job per core" "$(sort -n counts | awk -v n="$cores" '$1 > n')" ""
OMP_NUM_THREADS=1 ok "make succeeds with OMP_NUM_THREADS=1" json
parallel
result $? "OMP_NUM_THREADS=1 does not limit the jobs"
ok "make -j1 succeeds" json -j1
is "make -j1 runs one job" "$(most)" 1
MAKEFLAGS=-j1 ok "MAKEFLAGS=-j1 make succeeds" json
is "MAKEFLAGS=-j1 runs one job" "$(most)" 1
# shellcheck disable=SC2016 # make expands the variables
printf 'all:\n\t@$(MAKE) --no-print-directory -C "$(SRC)" CUDA=0 CXX="$(work)/cxx" O="$(work)/o" "$(work)/o/lib/json.a"\n' >outer.mk
rm -rf o counts
ok "make called by make -j1 succeeds" make SRC="$SRC" work="$work" -f outer.mk -j1
is "make called by make -j1 runs one job" "$(most)" 1
ok "make with the goals of a build and clean succeeds" json clean
is "make with a build and clean runs one job" "$(most)" 1

says "make -n prints commands" "^$work/cxx .* -c -o $work/o/lib/json/src/value.o lib/json/src/value.cc\$" json -n
[ ! -e o ]
result $? "make -n builds nothing"
says "make V=1 prints commands" "^$work/cxx .* -c -o $work/o/lib/json/src/value.o lib/json/src/value.cc\$" json V=1
is "make V=1 prints no short lines" "$(grep -c '^CXX' out)" 0
ok "make -s" json -s
is "make -s prints nothing" "$(cat out)" ""
done_testing
