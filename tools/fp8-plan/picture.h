/// The picture of fp8-plan --plot.
#pragma once

#include <string>
#include <vector>

#include "fp8/plan/search.h"
#include "fp8/plot/bars.h"

namespace fp8::plan {

/// Memory by category of each estimate as a bar, with the memory of the machine as the limit, and the tokens per second
/// as intervals where there is a machine: of a rank, or, with `ranks`, of all. `names` are those of the bars.
plot::BarChart picture_of(const Question& q, const std::vector<const Estimate*>& estimates,
                          std::vector<std::string> names, bool ranks);

/// Draws it into a new file, or one that `force` replaces. Throws Error naming `path` unless it ends in .svg or .png.
void draw(const plot::BarChart& chart, const std::string& path, bool force);

}  // namespace fp8::plan
