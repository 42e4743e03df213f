// The suite's version. The Makefile defines FP8_VERSION and FP8_COMMIT for this file alone, so that a commit rebuilds
// one object.
#include "fp8/cli/run.h"

namespace fp8::cli {

std::string version() { return FP8_VERSION; }

std::string commit() { return FP8_COMMIT; }

std::string version_text(const std::string& tool, const std::vector<std::string>& versions) {
  std::string text = tool + " " + version();
  if (!commit().empty()) text += " (" + commit() + ")";
  for (const std::string& v : versions) text += ", " + v;
  return text;
}

}  // namespace fp8::cli
