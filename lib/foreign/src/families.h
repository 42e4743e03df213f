/// Names of models whose family is not trained here. Private to this crate.
#pragma once

#include <string>
#include <string_view>

namespace fp8::foreign {

/// The family of a model, by its name on a hub, if no tool here trains it: "Gemma"; else nothing. Names of families
/// that are trained and unknown names give nothing.
std::string_view untrained_family(std::string_view name);

/// Why a model of such a family cannot be imported, as a clause.
std::string family_reason(std::string_view family);

}  // namespace fp8::foreign
