// The values of --recipe.
#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/cli/command.h"
#include "rows.h"

namespace fp8::settings {

std::string known_recipe(const std::string& name, const std::string& flag, const std::vector<std::string>& more) {
  if (std::ranges::find(quant::recipes(), name, &quant::Recipe::name) != quant::recipes().end()) return name;
  if (std::ranges::find(more, name) != more.end()) return name;
  std::string all;
  for (const std::string& one : more) all += (all.empty() ? "" : ", ") + one;
  for (const quant::Recipe& r : quant::recipes()) all += (all.empty() ? "" : ", ") + std::string(r.name);
  throw Error(cli::flag_name(flag) + ": '" + name + "' is not one of " + all);
}

bool add_linear_recipe(const std::string& text, PrecisionConfig& precision) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos) return false;
  if (equals == 0) throw Error(cli::flag_name("recipe") + ": '" + text + "': needs a GLOB before =");
  precision.linear_recipes.push_back({text.substr(0, equals), known_recipe(text.substr(equals + 1))});
  return true;
}

// A value may be a list as records, notes and tools that compare recipes have it, of one name and of any GLOB=NAME.
void read_recipe(const Arguments& a, Config& config) {
  for (const std::string& list : a.list("recipe")) {
    int names = 0;
    for (const std::string& part : parts_of({list})) {
      if (add_linear_recipe(part, config.precision)) continue;
      config.precision.recipe = known_recipe(part);
      if (++names > 1)
        throw Error(cli::flag_name("recipe") + ": '" + list + "': one recipe is needed, beside it GLOB=NAME");
    }
  }
}

}  // namespace fp8::settings
