// The fast reader of flat records against the parser: the first line defines the shape, and the values read from each
// line are those of the parser.
#include "fp8/json/flat.h"

#include <bit>
#include <vector>

#include "fp8/json/json.h"
#include "fuzz.h"

namespace {

using namespace fp8;

bool same(const json::Scalar& quick, const json::Value& value) {
  if (quick.type != value.type()) return false;
  if (value.is_string()) return quick.text == value.as_string();
  if (value.is_bool()) return quick.number == (value.as_bool() ? 1 : 0);
  if (value.is_int() && quick.integer != value.as_int()) return false;
  return !value.is_number() ||
         std::bit_cast<std::uint64_t>(quick.number) == std::bit_cast<std::uint64_t>(value.as_double());
}

}  // namespace

FP8_FUZZ(flat) {
  std::string_view text = fuzz::text_of(data, size);
  return fuzz::judge([&] {
    const json::Value first = json::parse(text.substr(0, text.find('\n')), "first");
    const auto shape = json::Shape::of(first.as_object(), [](const std::string&) { return true; });
    if (!shape) throw Error("not flat");
    std::vector<json::Scalar> values(shape->size());
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      if (!shape->read(line, values)) continue;
      const json::Value value = json::parse(line, "line");
      const json::Object& object = value.as_object();
      fuzz::require(object.size() == values.size(), "as many members");
      for (std::size_t i = 0; i < values.size(); ++i)
        fuzz::require(same(values[i], object.begin()[i].value), "the same value");
    }
  });
}
