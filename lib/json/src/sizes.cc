#include "fp8/json/sizes.h"

#include "fp8/json/json.h"

namespace fp8::json {

std::string sizes_text(const Object& sizes) {
  std::string text;
  for (const auto& [name, size] : sizes)
    if (size.is_int() && size.as_double() > 1) text += (text.empty() ? "" : " ") + name + "=" + dump(size);
  return text;
}

}  // namespace fp8::json
