// Fields of CSV, which both exports share.
#pragma once

#include <string>

namespace fp8::log {

// Integers without a fraction, other numbers as the shortest text that parses to the same bits; empty if not finite.
std::string csv_number(double v);

// A name without control characters, escaped such that it can be recovered, and quoted where RFC 4180 requires it.
std::string csv_text(const std::string& name);

}  // namespace fp8::log
