/// The text of fp8-log --plan.
#pragma once

#include <string>

#include "cells.h"
#include "fp8/log/plan.h"

namespace fp8::report {

/// A table of the figures that the plan has, and what the plan does not have. Text from files passes through
/// terminal_safe().
std::string planned(const log::PlanComparison& comparison, const Page& page);

}  // namespace fp8::report
