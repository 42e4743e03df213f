/// The seed of a run.
#pragma once

#include <string>

#include "fp8/log/run.h"

namespace fp8::log {

/// The value of the setting seed; empty when the log lacks it.
std::string seed_of(const Run& run);

}  // namespace fp8::log
