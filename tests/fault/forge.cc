// forge FROM TO KEY VALUE: copies the checkpoint FROM to TO with valid digests and the JSON VALUE for KEY in /train.
// forge FROM TO RANKS: copies it as files of RANKS ranks, in blocks that are split in every dimension.
// For tests only; not installed.
#include "forge.h"

#include <cstdio>

#include "divide.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"

int main(int argc, char** argv) {
  using namespace fp8;
  if (argc != 4 && argc != 5) return static_cast<int>(Exit::bad);
  try {
    if (argc == 4) {
      test::divide(argv[1], argv[2], parse_int64(argv[3]).value_or(1));
    } else {
      test::forge(argv[1], argv[2],
                  [&](test::Forged& f) { f.train.as_object().set(argv[3], json::parse(argv[4], "VALUE")); });
    }
  } catch (const Error& e) {
    std::fprintf(stderr, "forge: %s\n", e.what());
    return static_cast<int>(Exit::bad);
  }
  return 0;
}
