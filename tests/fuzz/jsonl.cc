// JSON Lines: reading continues after an invalid line, reads each line once, and ends.
#include "fp8/json/json.h"
#include "fuzz.h"

FP8_FUZZ(jsonl) {
  using namespace fp8;
  const std::string path = fuzz::folder().write("x.jsonl", fuzz::text_of(data, size));
  return fuzz::judge([&] {
    json::LineReader reader(path);
    bool refused = false;
    for (bool more = true; more;) {
      const std::uint64_t before = reader.line();
      try {
        more = reader.next().has_value();
      } catch (const Error&) {
        refused = true;
      }
      fuzz::require(!more || reader.line() > before, "each line is read once");
    }
    if (refused) throw Error("a line is refused");
  });
}
