// The flags of precision: one table for fp8-step, fp8-eval and both sides of fp8-inspect --bisect. Private to the
// crate.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/cli/arguments.h"
#include "fp8/cli/command.h"
#include "fp8/train/inspect.h"

namespace fp8::train {

// --device.
cli::Flag device_flag();
// The device it says; nothing for auto.
std::optional<device::DeviceType> device_of(const cli::Arguments& a);

// Names of recipes.
std::vector<std::string> recipe_names();

// How FP8 is computed, apart from the recipe.
void add_fp8(std::vector<cli::Flag>& flags);
// Whether a flag, named without --, changes anything under `recipe`. True for those that no recipe excludes.
bool acts_under(std::string_view flag, const quant::Recipe& recipe);
// What these flags and --activations say; precision fp8.
PrecisionConfig fp8_of(const cli::Arguments& a);

// All flags of precision, --device among them.
void add_precision(std::vector<cli::Flag>& flags);
// What they say, apart from --device.
PrecisionConfig precision_of(const cli::Arguments& a);
// What they and --fuse-projections say, apart from --device.
PrecisionConfig fused_precision_of(const cli::Arguments& a);

// What a list of these flags, separated by blanks, says. Throws Error that begins with the name of `flag`, which has
// the list as its value.
PrecisionSide precision_side(const std::string& flag, const std::string& list);

}  // namespace fp8::train
