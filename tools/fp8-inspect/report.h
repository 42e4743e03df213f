/// Records of an inspection as text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::report {

/// The answers of a recommendation, a line for each of several recipes, tables of at most `most` rows each, and lines
/// about routes and a bisection, as far as there are records of these. A table that is wider than `columns` (0: no
/// limit) has short names of linears; then columns of one value become a line below it, and the least important ones
/// are left out until it fits. Lines of text are broken between words.
std::string text_of(const std::vector<json::Value>& records, std::size_t most, std::size_t columns);

}  // namespace fp8::report
