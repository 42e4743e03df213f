/// Writes reports to files.
#pragma once

#include <string>

#include "fp8/json/value.h"

namespace fp8::probe {

/// Writes a report as indented JSON to `path`, atomically. Throws Error when the file exists without `force` or cannot
/// be written.
void save_report(const std::string& path, bool force, const json::Value& report);

}  // namespace fp8::probe
