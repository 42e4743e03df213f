// What the plan of a run says about the gradients of attention on a GPU. Private to the crate.
#pragma once

#include <string>

#include "fp8/train/device_setup.h"
#include "run_setup.h"

namespace fp8::train {

// The bytes that cuDNN's gradients of attention write to their workspace and read from it in a step on this rank, with
// stored scores and without, what this run does, and what determinism costs. A second line compares `workspace`, the
// bytes of memory that are planned, with `atomic`, those of --no-deterministic, if they are more than 1 GiB; with a
// cuDNN that is too old it is note_of_outdated_attention().
std::string note_of_attention(const RunSetup& s, const DeviceSetup& device, std::size_t workspace, std::size_t atomic);

// What the run loses because cuDNN is too old for it; empty if nothing.
std::string note_of_outdated_attention(const RunSetup& s, const DeviceSetup& device);

}  // namespace fp8::train
