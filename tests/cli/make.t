#!/bin/sh
# What make prints and how many jobs it runs. The compiler is a script that writes empty files and counts those that run at the same time.
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
    */parse.cc) echo "$1: warning: what the compiler says" >&2 ;;
  esac
  shift
done
rm "running.$$"
END
chmod +x cxx
# json [ARGUMENT...]: makes the library of one crate in a new folder.
json() { rm -rf o counts && make --no-print-directory -C "$SRC" CUDA=0 CXX="$work/cxx" O="$work/o" "$@" "$work/o/lib/json.a"; }
most() { sort -n counts | tail -1; }
sources=$(cd "$SRC" && for f in lib/json/src/*.cc; do echo "CXX  $f"; done)
cores=$(OMP_NUM_THREADS='' nproc)

ok "make succeeds" json
is "it prints one line a file" "$(sort out)" "$(printf 'AR   lib/json.a\n%s' "$sources")"
is "and what the compiler says" "$(grep -c warning: err)" 1
parallel() { [ "$cores" = 1 ] || [ "$(most)" -gt 1 ]; }
parallel
result $? "it runs several jobs where there are several cores"
is "and none above their number" "$(sort -n counts | awk -v n="$cores" '$1 > n')" ""
OMP_NUM_THREADS=1 ok "with OMP_NUM_THREADS=1" json
parallel
result $? "several jobs too"
ok "with -j1" json -j1
is "one job" "$(most)" 1
MAKEFLAGS=-j1 ok "with MAKEFLAGS=-j1" json
is "one job as well" "$(most)" 1
# shellcheck disable=SC2016 # make expands these
printf 'all:\n\t@$(MAKE) --no-print-directory -C "$(SRC)" CUDA=0 CXX="$(work)/cxx" O="$(work)/o" "$(work)/o/lib/json.a"\n' >outer.mk
rm -rf o counts
ok "started by another make with -j1" make SRC="$SRC" work="$work" -f outer.mk -j1
is "one job again" "$(most)" 1
ok "with several goals of which one removes files" json clean
is "one job, so that they follow one another" "$(most)" 1

says "make -n prints commands" "^$work/cxx .* -c -o $work/o/lib/json/src/value.o lib/json/src/value.cc\$" json -n
[ ! -e o ]
result $? "and makes nothing"
says "make V=1 prints commands" "^$work/cxx .* -c -o $work/o/lib/json/src/value.o lib/json/src/value.cc\$" json V=1
is "and nothing else" "$(grep -c '^CXX' out)" 0
ok "make -s" json -s
is "prints nothing" "$(cat out)" ""
done_testing
