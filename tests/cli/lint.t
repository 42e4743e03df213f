#!/bin/sh
# Each check of tests/lint/run accepts a correct tree and reports a violation. Checks whose program is not installed are skipped.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

ROOT=$work/tree
export ROOT
lint() { "$SRC/tests/lint/run" "$@"; }

# A small tree without violations: three crates, a tool, a manual page, a script.
mkdir -p tree/lib/base/src tree/lib/base/include/fp8/base tree/lib/json/src tree/lib/json/include/fp8/json tree/lib/cli/src \
  tree/lib/cli/include/fp8/cli tree/man/man1 tree/share tree/tests/golden tree/tools/x
cp "$SRC/Makefile" "$SRC/.clang-format" "$SRC/.clang-tidy" tree
cp "$SRC/share/VERSION" tree/share
printf 'about := base\n' >tree/lib/base/crate.mk
printf 'about := json\ndeps  := base\npkgs  := nlohmann\n' >tree/lib/json/crate.mk
printf 'about := cli\ndeps  := json\n' >tree/lib/cli/crate.mk
for folder in golden fault gpu fuzz kernels; do
  mkdir -p tree/tests/$folder && printf 'about := %s\n' $folder >tree/tests/$folder/crate.mk
done
printf 'about := x\ndeps  := base\n' >tree/tools/x/crate.mk
cat >tree/lib/base/include/fp8/base/good.h <<'END'
/// Each declaration has a comment or needs none.
#pragma once

namespace fp8 {

struct Later;

/// How often.
enum class Count { one, two };

/// A type with one of everything.
template <class T, int N = (3 > 2 ? 1 : 0)>
class Good {
 public:
  /// Makes one.
  explicit Good(T value) : value_{value}, other_(N) {}
  Good(const Good&) = default;
  Good& operator=(const Good&) = default;
  ~Good();
  /// Less.
  bool operator<(const Good& other) const { return value_ < other.value_; }
  /// Both forms.
  T get() const { return value_; }
  T get(int plus) const { return value_ + plus; }
  int width = 1;  ///< in bytes
  /// In characters: '{' and "}" are two.
  static constexpr int kWidths[] = {1'000, '{', sizeof("} // {")};

 private:
  T value_;
  int other_;
};

/// Declared here.
int later(const Good<int>& good);

inline int later(const Good<int>& good) { return good.get(); }

namespace detail {
int hidden();
}

}  // namespace fp8
END
printf '// Empty.\n#include "fp8/base/good.h"\n' >tree/lib/base/src/good.cc
printf '#!/bin/sh\necho hello\n' >tree/script
printf '.Dd November 1, 2026\n.Dt X 1\n.Os\n.Sh NAME\n.Nm x\n.Nd a page\n.Sh DESCRIPTION\nText.\n' >tree/man/man1/x.1

has() { command -v "$1" >/dev/null; }
clean() { # CHECK
  says "$1: a correct tree has no findings" '^0 findings$' lint "$1"
}
# finds CHECK REGEX NAME: passes if the check gives status 1 and prints a line that matches.
finds() {
  status "$1: $3 gives status 1" 1 lint "$1"
  grep -Eq -e "$2" out
  result $? "$1: $3 is reported with file and line"
}

clean includes
printf '#include "fp8/base/good.h"\n' >tree/lib/cli/src/bad.cc
finds includes '^lib/cli/src/bad.cc:1: fp8/base/good.h: crate.mk does not name base' 'an include of an indirect dependency'
printf '\n  #  include <nlohmann/json.hpp>\n' >tree/lib/cli/src/bad.cc
finds includes '^lib/cli/src/bad.cc:2: nlohmann/json.hpp: crate.mk does not name nlohmann' "an include of another crate's package"
rm tree/lib/cli/src/bad.cc
printf '#include <nlohmann/json.hpp>\n' >tree/lib/json/include/fp8/json/bad.h
finds includes '^lib/json/include/fp8/json/bad.h:1: .* public header' 'a package in a public header'
rm tree/lib/json/include/fp8/json/bad.h
printf 'about := cli\ndeps  := json\npkgs  := nlohmann\n' >tree/lib/cli/crate.mk
finds includes '^lib/json/crate.mk:1: package nlohmann belongs to lib/cli/crate.mk' 'a package listed by two crates'
printf 'about := cli\ndeps  := json\n' >tree/lib/cli/crate.mk

clean names
printf 'namespace fp8 {\nnamespace {\nint size_of(int n) { return n; }\n}  // namespace\n}\n' >tree/lib/cli/src/a.cc
sed 's/(int n)/(long n)/' tree/lib/cli/src/a.cc >tree/lib/cli/src/b.cc
finds names '^lib/cli/src/b.cc:3: size_of is also in lib/cli/src/a.cc' 'a name of another source with other parameters'
printf 'about := cli\ndeps  := json\nalone := src/b\n' >tree/lib/cli/crate.mk
clean names
printf 'namespace fp8 {\ninline int size_of(char c) { return c; }\n}\n' >tree/lib/cli/src/a.h
finds names '^lib/cli/src/a.cc:3: size_of is also in lib/cli/src/a.h' 'a name of a header'
rm tree/lib/cli/src/[ab].*
printf 'about := cli\ndeps  := json\n' >tree/lib/cli/crate.mk

clean docs
header=tree/lib/base/include/fp8/base/bad.h
undocumented() { # TEXT KIND NAME
  printf '/// A file.\n\nnamespace fp8 {\n/// Fine.\nclass A {\n public:\n  /// Fine.\n  A();\n\n%b\n};\n}\n' "$1" >$header
  finds docs "bad.h:10: $2 $3 has no /// comment" "a $2 without a comment ($3)"
}
undocumented '  int f(int x) const { return x < 1 ? x : 2; }' function f
undocumented '  enum class E { a };' enum E
undocumented '  struct S {\n    /// fine\n    int x;\n  };' type S
undocumented '  template <class T>\n  requires(sizeof(T) > 1)\n  void h(T);' function h
undocumented '  /** another style */ int g(int x);' function g
printf 'namespace fp8 {\nvoid free_one(int x);\n/// Fine.\nenum E { kA,\n  kB = 1 };\n}\n' >$header
finds docs 'bad.h:2: function free_one has no' 'a free function without a comment'
printf '/// A file.\n\nnamespace fp8 {\n/// Fine.\nstruct A {\n  A(int x);\n  int size() const;\n  std::map<int, int> values = {{1, 2}};\n  bool operator==(const A&) const;\n};\n/// Fine.\nenum class E { a, b };\n}\n' >$header
clean docs
rm $header

clean size
{
  printf 'void f(int x) {\n'
  yes '  if (x) { x = 1; }' | head -60
  printf '}\n'
} >tree/lib/base/src/bad.cc
finds size '^lib/base/src/bad.cc:1: function f has 62 lines' 'a long function'
yes '// a line' | head -601 >tree/lib/base/src/bad.cc
finds size '^lib/base/src/bad.cc:601: 601 lines' 'a long file'
{
  printf '#!/bin/sh\nf() {\n'
  yes '  :' | head -60
  printf '}\n'
} >tree/bad
finds size '^bad:2: function f has 62 lines' 'a long function in a script'
rm tree/bad tree/lib/base/src/bad.cc

clean words
printf '// %sDO: later\n' TO >tree/lib/base/src/bad.cc
finds words '^lib/base/src/bad.cc:1: ' 'a task marker'
rm tree/lib/base/src/bad.cc

# A program of one ordinary source and one compiled for AVX-512 that exports a table. Both contain the same inline function.
if has g++ && has objdump && [ "$(uname -m)" = x86_64 ]; then
  mkdir -p tree/build/lib/base/src tree/build/bin
  object=tree/build/lib/base/src
  printf 'inline void twice(float* x) { for (int i = 0; i < 64; ++i) x[i] *= 2; }\nextern void (*const table)(float*);\n' >twice.h
  printf '#include "twice.h"\nint main() { float x[64] = {}; twice(x); table(x); return x[0] > 0; }\n' >a.cc
  printf '#include "twice.h"\nstatic void hot(float* x) { twice(x); }\nvoid (*const table)(float*) = hot;\n' >b.isa.cc
  compiled() { g++ -O3 -fno-inline -mprefer-vector-width=512 -march="$1" -c -o "$2" "$3"; }
  built() { O=$ROOT/build "$@"; }
  compiled x86-64-v3 $object/a.o a.cc
  compiled x86-64-v4 all.o b.isa.cc
  g++ -r -nostdlib -Wl,--force-group-allocation -o $object/b.avx512.o all.o
  objcopy --keep-global-symbol=table $object/b.avx512.o
  g++ -o tree/build/bin/program $object/a.o $object/b.avx512.o
  says "isa: a correct build has no findings" '^0 findings$' built lint isa
  leaked() { # NAME REGEX
    status "isa: $1 gives status 1" 1 built lint isa
    grep -Eq -e "$2" out
    result $? "isa: $1 is reported with file and function"
  }
  cp all.o $object/b.avx512.o
  g++ -o tree/build/bin/program $object/b.avx512.o $object/a.o
  leaked "an inline function linked from an object for AVX-512" '^build/bin/program:1: twice\(float\*\): v[a-z].* is AVX-512'
  printf 'int main() {}\n' | g++ -o tree/build/bin/plain -x c++ -
  says "isa: with PROGRAMS, no other program is read for instructions" '^build/bin/program:1: has functions of b.isa.cc, which the checked programs lack$' built env PROGRAMS=plain "$SRC/tests/lint/run" isa
  is "isa: but each source with functions for AVX-512 must be in one of them" "$(grep -c . out) $(tail -n 1 out)" "2 1 findings"
  compiled x86-64-v4 $object/a.o a.cc
  g++ -o tree/build/bin/program $object/a.o $object/b.avx512.o
  leaked "an ordinary source compiled for AVX-512" '^build/bin/program:1: twice\(float\*\): '
  rm -r tree/build
fi

clean defects
mkdir tree/tests/defects && cp "$SRC/tests/defects/run" tree/tests/defects
finds defects '^tests/defects/run:[0-9]+: one micro-batch counted: .* nothing in lib/shard/src/gradients.cc$' 'a defect whose source is another now'
rm -r tree/tests/defects

if has mandoc; then
  clean man
  printf '.Dd November 1, 2026\n.Dt Y 1\n.Os\n.Sh NAME\n.Nm y\n.Nd a page\n.Sh DESCRIPTION\n.Xq\n' >tree/man/man1/y.1
  finds man '^man/man1/y.1:8: ' 'an unknown macro'
  rm tree/man/man1/y.1
fi

if has shellcheck; then
  clean shell
  # shellcheck disable=SC2016
  printf '#!/bin/sh\nrm `pwd`\n' >tree/bad
  finds shell '^bad:2: .*SC2046' 'an unquoted expansion in a script'
  rm tree/bad
fi

if has clang-format; then
  clean format
  printf '// A file.\nint  x ;\n' >tree/lib/base/src/bad.cc
  finds format '^lib/base/src/bad.cc:2: ' 'a file that clang-format would change'
  rm tree/lib/base/src/bad.cc
fi

if has clang-tidy; then
  clean tidy
  printf '// A file.\nint f(int x) { return x == x ? 1 : 2; }\n' >tree/lib/base/src/bad.cc
  finds tidy '^lib/base/src/bad.cc:2: .*misc-redundant-expression' 'a redundant expression'
  printf '// A file.\nint f() { return missing; }\n' >tree/lib/base/src/bad.cc
  finds tidy '^lib/base/src/bad.cc:2: .*missing' 'a compile error'
  rm tree/lib/base/src/bad.cc
fi

status "an unknown check gives status 2" 2 lint nonsense
mkdir tree/.git
status "a check that cannot run gives status 2" 2 lint words
done_testing
