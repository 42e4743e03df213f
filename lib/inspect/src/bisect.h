// Compares two settings of precision, operation by operation, with the same batch and weights. Private to the crate.
#pragma once

#include "inspect_model.h"

namespace fp8::inspect {

// Computes forward and backward under both sides of InspectConfig::bisection, and emits an {"type":"operation"} record
// for each result and a {"type":"bisection"} record. The results of side A are kept in host memory until B is done.
// Returns whether no difference is above the bound that was requested, if one was, and every result is finite then.
// Collective.
bool bisect(const settings::InspectConfig& config, const Inspection& all);

}  // namespace fp8::inspect
