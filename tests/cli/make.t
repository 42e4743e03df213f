#!/bin/sh
# The output of make and its number of jobs. The compiler is a script that writes empty files and counts its concurrent instances.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

unset MAKEFLAGS MFLAGS MAKELEVEL V
cat >cxx <<'END'
#!/bin/sh
cd "${0%/*}" || exit
[ ! -e refuse ] || exit 1
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

# A tree of links in which the Makefile and one crate are files, to edit them.
mkdir -p tree/lib && for path in "$SRC"/*; do [ "$path" = "$SRC/lib" ] || ln -s "$path" tree; done
for crate in "$SRC"/lib/*; do [ "$crate" = "$SRC/lib/json" ] || ln -s "$crate" tree/lib; done
rm tree/Makefile && cp "$SRC/Makefile" tree && cp -r "$SRC/lib/json" tree/lib
# made: prints what make makes, in one line.
made() { make --no-print-directory -C tree CUDA=0 CXX="$work/cxx" O="$work/o" V=1 "$work/o/lib/json.a" | sed -n 's/.* -c -o .* //p; s/^ar .*/ar/p' | xargs; }
rm -rf o
is "a build compiles each source of a crate" "$(made | wc -w)" "$(printf '%s\n' "$sources" ar | wc -l)"
is "a second build makes nothing" "$(made)" ""
echo '# An edit' >>tree/Makefile
is "an edit of the Makefile that changes no command makes nothing" "$(made)" ""
# shellcheck disable=SC2016 # make expands the variables
echo '$O/lib/json/src/value.o: CXXFLAGS += -DEDITED' >>tree/Makefile
is "a changed flag of one source compiles this source" "$(made)" "lib/json/src/value.cc ar"
is "after it a build makes nothing" "$(made)" ""
rm tree/lib/json/src/trace.cc
is "a removed source leaves its archive" "$(made)" "ar"
# shellcheck disable=SC2016
echo '$O/lib/json/src/value.o: CXXFLAGS += -DAGAIN' >>tree/Makefile
touch refuse
is "a compiler that fails" "$(made 2>/dev/null)" "lib/json/src/value.cc"
rm refuse
is "what it failed to compile is compiled by the next build" "$(made)" "lib/json/src/value.cc ar"

# Precompiled headers, which GCC makes: here a script of its name. Clang, which compiles tests where it is installed, is the script too.
ln -s cxx g++ && ln -s cxx clang++ && ln -s cxx clang++-14
PATH=$work:$PATH
commands() { make --no-print-directory -C "$SRC" CUDA=0 UNITY=0 O="$work/p" -n "$@" "$work/p/lib/cli.a" "$work/p/test/cli_test" "$work/p/lib/quant/src/amax.o" "$work/p/lib/quant/src/cast_row.baseline.o"; }
ok "make with GCC" commands CXX="$work/g++"
is "it precompiles the headers of sources, of hot ones and of tests once" "$(sed -n 's/.* \(-O[0-9]\) .* -o .*\(share.pch.*\)/\2 \1/p' out | sort | xargs)" "share/pch/std.h -O1 share/pch/std.h -O3 share/pch/test.h -O0"
is "every source of a crate is compiled after them" "$(grep -c -- "-include $work/p/pch/std-O1.h .* -o $work/p/lib/cli/src/" out)" "$(printf '%s\n' "$SRC"/lib/cli/src/*.cc | wc -l)"
is "a hot source is compiled after that of hot ones" "$(grep -c -- "-include $work/p/pch/std-O3.h .* -o $work/p/lib/quant/src/amax.o" out)" 1
is "sources for one instruction set are compiled without" "$(grep -- "-o $work/p/lib/quant/src/cast_row[^ ]* " out | grep -c -e -include) $(grep -c -- "-o $work/p/lib/quant/src/cast_row[^ ]* " out)" "0 1"
for cxx in "ccache $work/g++" "$work/cxx" "$work/clang++"; do
  ok "make with $cxx" commands CXX="$cxx"
  is "$cxx precompiles nothing" "$(grep -c share/pch out)" 0
done
ok "make PCH=0" commands CXX="$work/g++" PCH=0
is "PCH=0 precompiles nothing" "$(grep -c share/pch out)" 0
compiled() { make --no-print-directory -C tree CUDA=0 UNITY=0 CXX="$work/g++" OPT=-O2 O="$work/p" V=1 "$work/p/lib/json.a" | sed -n 's/.* -o .* //p' | grep -c .; }
sources=$(printf '%s\n' tree/lib/json/src/*.cc | wc -l)
is "a build with GCC compiles the header and the sources" "$(compiled)" $((sources + 1))
is "after it a build compiles nothing" "$(compiled)" 0
# shellcheck disable=SC2016
echo '$O/lib/json/src/value.o: private CXXFLAGS += -DONE' >>tree/Makefile
is "a changed flag of one source leaves the header" "$(compiled)" 1
echo 'warnings += -Wnone' >>tree/Makefile
is "a changed flag of all compiles all" "$(compiled)" $((sources + 1))

# Groups of sources that are compiled at once: a line for each command, with the names of its sources.
sources_of() { grep -E -- " -c -o [^ ]*/$1/" | while read -r words; do printf '%s\n' "$words" | grep -Eo " $1/[^ ]*[.]cc" | xargs -r -n 1 basename -s .cc | xargs; done; }
grouped() { make --no-print-directory -C tree CUDA=0 CXX="$work/g++" O="$work/${o:-q}" V=1 "$@" "$work/${o:-q}/test/json_test" | sources_of lib/json/tests; }
names() { for f in tree/lib/json/tests/*.cc; do basename -s .cc "$f"; done | sort | xargs; }
grouped >groups
is "each source of a test is compiled once, by few commands" "$(xargs -n 1 <groups | sort | xargs) $(($(wc -l <groups) * 2 <= $(wc -w <groups)))" "$(names) 1"
is "after it a build compiles nothing" "$(grouped)" ""
first=$(names | cut -d' ' -f1) last=$(names | sed 's/.* //')
touch "tree/lib/json/tests/$first.cc"
is "an edited source is compiled with its group alone" "$(grouped)" "$(grep -w "$first" groups)"
rm "tree/lib/json/tests/$last.cc"
is "a removed source leaves its group" "$(grouped)" "$(sed -n "s/ $last\$//p" groups)"
is "after it a build compiles nothing" "$(grouped)" ""
echo "alone += tests/$first" >>tree/lib/json/crate.mk
is "a source that crate.mk names is compiled alone" "$(grouped | grep -x "$first")" "$first"
in_crate() { make --no-print-directory -C "$SRC" CUDA=0 UNITY="${2:-1}" CXX="$work/g++" O="$work/s" -n "$work/s/lib/$1.a" | sources_of "lib/$1/src" | sort | xargs -d '\n' printf '%s; '; }
is "sources of a crate are compiled at once, but for hot ones" "$(in_crate statistics)" "advice difference records routes; collector; figures; "
is "sources in aside are compiled apart" "$(in_crate hf | grep -o 'adapter adapter_targets;')" "adapter adapter_targets;"
is "UNITY=0 compiles each source of a crate alone" "$(in_crate statistics 0)" "advice; collector; difference; figures; records; routes; "
o=r grouped UNITY=0 >groups
is "UNITY=0 compiles each source alone" "$(wc -l <groups) $(grep -c ' ' groups)" "$(names | wc -w) 0"
done_testing
