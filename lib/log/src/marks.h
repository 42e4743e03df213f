/// Restarts and changes of a run, for plots.
#pragma once

#include <vector>

#include "fp8/log/picture.h"

namespace fp8::log {

using plot::Mark;
using plot::MarkKind;

/// The marks of a run, one per step at which something changed, in order of x.
std::vector<Mark> marks_of(const Run& run, bool by_tokens);

}  // namespace fp8::log
