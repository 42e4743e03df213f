/// Copies values to and from a device, and allocates scratch memory there.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "fp8/device/arena.h"
#include "fp8/tensor/tensor.h"

namespace fp8::probe {

/// A tensor of these values, rounded to `dtype` (f32 or bf16), on the context's device.
tensor::Tensor placed(const device::Context& ctx, std::span<const float> values, dtype::DType dtype,
                      tensor::Shape shape);

/// The values of a contiguous f32 or bf16 view, as f32 on the host.
std::vector<float> floats_of(const device::Context& ctx, const tensor::View& view);

/// Scratch memory for work on a device, sized by a dry run of the work.
class Workspace {
 public:
  /// Runs `work` dry and allocates its peak memory.
  Workspace(const device::Device& device, const std::function<void(const device::Context&)>& work);
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  /// A context with the scratch memory, to run the work.
  device::Context context() { return device_.context(arena_); }

 private:
  static std::size_t planned(const device::Device& device, const std::function<void(const device::Context&)>& work);
  const device::Device& device_;
  device::Arena arena_;
};

}  // namespace fp8::probe
