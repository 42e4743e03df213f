/// The parts of the reader of KempnerForge. Private to this crate.
#pragma once

#include "mapping.h"

namespace fp8::foreign {

/// Answers the keys of the model and sets Import::config and the flags of experts.
void read_kempner_model(Mapping& m);

}  // namespace fp8::foreign
