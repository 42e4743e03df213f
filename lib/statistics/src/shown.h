// Figures of records as text. Private to the crate.
#pragma once

#include <cmath>
#include <string>

#include "fp8/base/text.h"
#include "fp8/json/value.h"

namespace fp8::statistics {

// What messages call a record.
inline constexpr const char* kWhat = "record";

// "-" for NaN.
inline std::string shown(double v, int digits) { return std::isnan(v) ? "-" : format_short(v, digits); }

// A figure of a record; NaN if it is null or absent.
inline double number(const json::Object& o, const char* key) { return o.get_double_or(key, NAN, kWhat); }

}  // namespace fp8::statistics
