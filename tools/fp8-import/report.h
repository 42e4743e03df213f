// The answers as text and as JSON.
#pragma once

#include <string>

#include "fp8/cli/output.h"
#include "fp8/foreign/import.h"
#include "fp8/json/value.h"

namespace fp8::import_tool {

// The table of all answers, by class.
std::string table_of(const foreign::Import& import, const cli::Style& style);

// {"type":"key",...}
json::Value record_of(const foreign::Answer& answer);

}  // namespace fp8::import_tool
