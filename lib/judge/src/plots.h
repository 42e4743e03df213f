// Pictures of candidates. Private to the crate.
#pragma once

#include <string>
#include <vector>

#include "fp8/judge/judge.h"

namespace fp8::judge {

// Throws Error if the picture of --plot cannot be written, or would replace rollouts.
void check_plot(const JudgeConfig& config);

// Draws the mean k3 of each candidate, by position and by probability, into the new file `path`, or with `force` in
// place of the one that exists.
void plot_candidates(const std::vector<Candidate>& candidates, const std::string& path, bool force);

}  // namespace fp8::judge
