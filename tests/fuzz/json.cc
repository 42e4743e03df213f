// JSON text: an accepted value is written, on one line and indented, and reads back.
#include "fp8/json/json.h"

#include "fuzz.h"

FP8_FUZZ(json) {
  using namespace fp8;
  return fuzz::judge([&] {
    const json::Value value = json::parse(fuzz::text_of(data, size), "input");
    for (const int indent : {-1, 2})
      fuzz::require(json::parse(json::dump(value, indent), "again") == value, "a value reads back from its text");
  });
}
