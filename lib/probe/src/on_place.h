/// Numbers to and from where a device works, and memory for what runs there.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "fp8/device/arena.h"
#include "fp8/tensor/tensor.h"

namespace fp8::probe {

/// A matrix of these values, rounded to `dtype` (f32 or bf16), at the context's place.
tensor::Tensor placed(const device::Context& ctx, std::span<const float> values, dtype::DType dtype,
                      tensor::Shape shape);

/// The values of a contiguous f32 or bf16 view.
std::vector<float> floats_of(const device::Context& ctx, const tensor::View& view);

/// Scratch memory for some work on a device: as much as the work takes when it is run dry.
class Workspace {
 public:
  /// Runs `work` dry.
  Workspace(const device::Device& device, const std::function<void(const device::Context&)>& work);
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  /// For running it.
  device::Context context() { return device_.context(arena_); }

 private:
  static std::size_t planned(const device::Device& device, const std::function<void(const device::Context&)>& work);
  const device::Device& device_;
  device::Arena arena_;
};

}  // namespace fp8::probe
