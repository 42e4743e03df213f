// The schedules of Hugging Face's Trainer. Private to the crate.
#pragma once

#include "mapping.h"

namespace fp8::foreign {

// Answers lr_scheduler_type and lr_scheduler_kwargs, and sets the flags that they are here. The warm-up of the import
// must be known: schedule "constant" has none.
void set_trainer_schedule(Mapping& map);

}  // namespace fp8::foreign
