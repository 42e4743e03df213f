/// Reports in files.
#pragma once

#include <string>

#include "fp8/json/value.h"

namespace fp8::probe {

/// Writes a report as indented JSON to `path`, which appears whole or not at all. Throws Error when it exists and not
/// `force`, or cannot be written.
void save_report(const std::string& path, bool force, const json::Value& report);

}  // namespace fp8::probe
