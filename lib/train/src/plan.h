// The memory of a run, found by running the arena dry. Private to the crate.
#pragma once

#include "fp8/device/arena.h"
#include "fp8/train/config.h"

namespace fp8::train {

// What a rank will take.
struct MemoryPlan {
  std::size_t bytes = 0;             // of the arena
  std::size_t scratch = 0;           // of the matmul engine, beside it
  std::size_t program = 0;           // resident before any of it: code, libraries, MPI
  std::vector<device::Usage> usage;  // by category at the arena's peak
  std::size_t total() const { return bytes + scratch + program; }
  json::Value to_json() const;
  std::string to_text() const;
  // The total and the largest three: "704 GiB on each rank: activations 600 GiB, moments 978 KiB, gradients 489 KiB".
  std::string largest_users() const;
  // What to change for less of the largest: "use --moments bf16 or more ranks".
  std::string remedy() const;
  // The arena. Throws Error with the largest users, and what the place says of its memory, where it does not suffice.
  device::Arena allocate(device::DeviceType device) const;
};

// Lays out `options`, with what --async-save copies when `snapshot`, and runs one micro-batch of [sequences, length]
// without computing where `at` works: forward and backward when training. On a device a product or an attention that
// its library does not offer is an Error here that names it. What a device run keeps in host memory is not in it.
MemoryPlan plan_memory(const Context& at, comm::Communicator& world, const hf::ModelConfig& config,
                       const std::vector<model::Parameter>& table, const StoreOptions& options,
                       const model::DecoderOptions& decoder, std::int64_t sequences, std::int64_t length,
                       bool snapshot = false);

}  // namespace fp8::train
