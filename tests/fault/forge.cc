// forge FROM TO KEY VALUE: copies the checkpoint FROM to TO with valid digests and the JSON VALUE for KEY in /train, or
// for KEY mesh in the manifest.
// forge FROM TO RANKS: copies it as files of RANKS ranks, in blocks that are split in every dimension.
// For tests only; not installed.
#include "forge.h"

#include <cstdio>

#include "divide.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "fp8_files.h"
#include "manifest_parts.h"

namespace {

// Replaces the mesh of one file in the manifest at `path`.
void set_mesh(const std::string& path, const std::string& mesh) {
  using namespace fp8;
  std::string text = test::read_file(path);
  const std::string from = json::dump(test::mesh_of(1));
  text.replace(text.find(from), from.size(), mesh);
  test::write_file(path, test::sealed_manifest(text));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace fp8;
  if (argc != 4 && argc != 5) return static_cast<int>(Exit::bad);
  try {
    if (argc == 4) {
      test::divide(argv[1], argv[2], parse_int64(argv[3]).value_or(1));
      return 0;
    }
    const std::string key = argv[3];
    const json::Value value = json::parse(argv[4], "VALUE");
    test::forge(argv[1], argv[2], [&](test::Forged& f) {
      if (key != "mesh") f.train.as_object().set(key, value);
    });
    if (key == "mesh") set_mesh(argv[2] + std::string("/manifest.json"), json::dump(value));
  } catch (const Error& e) {
    std::fprintf(stderr, "forge: %s\n", e.what());
    return static_cast<int>(Exit::bad);
  }
  return 0;
}
