/// What a machine is besides its GPUs: processor, memory, networks, and NVIDIA's cards as the PCI bus shows them. Reads
/// /proc and /sys below a root, which tests replace; a file that is missing or strange means that nothing is known.
#pragma once

#include <string>
#include <vector>

#include "fp8/probe/check.h"

namespace fp8::probe {

/// Checks of the group "machine": processor, threads, memory, huge pages, network, InfiniBand.
///   root     in front of /proc and /sys
///   native   whether bf16 is multiplied as it is (gemm::native_host_bf16)
///   threads  that loops would use
std::vector<Check> machine_checks(const std::string& root, bool native, int threads);

/// The program `name` in the folders of `path`, which colons separate; empty where there is none.
std::string find_program(const std::string& path, const std::string& name);

/// How many of NVIDIA's display and compute cards are on the PCI bus.
int nvidia_cards(const std::string& root);

}  // namespace fp8::probe
