/// Short text of the sizes of things that have names, such as those of a mesh in records and manifests.
#pragma once

#include <string>

#include "fp8/json/value.h"

namespace fp8::json {

/// "dp_shard=4 ep=2": the members that are integers above 1, in order; empty if there are none.
std::string sizes_text(const Object& sizes);

}  // namespace fp8::json
