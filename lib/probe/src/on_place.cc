// Copies between the host and the place of a context, and arenas that are planned first.
#include "on_place.h"

#include <algorithm>

#include "fp8/dtype/convert.h"

namespace fp8::probe {

using device::Context;
using device::Place;
using dtype::DType;
using tensor::Tensor;
using tensor::View;

Tensor to_place(const Context& ctx, std::span<const float> values, DType dtype, tensor::Shape shape) {
  Tensor there(dtype, shape, ctx.place, "a matrix to compute with");
  const auto send = [&](const auto& from) {
    device::copy_bytes(ctx, there.view().data, ctx.place, from.data(), Place::host, there.view().bytes());
  };
  if (dtype == DType::f32) {
    send(values);
  } else {
    std::vector<dtype::Bf16> rounded(values.size());
    dtype::convert(values, std::span(rounded));
    send(rounded);
  }
  return there;
}

std::vector<float> to_host(const Context& ctx, const View& view) {
  std::vector<float> values(static_cast<std::size_t>(view.size()));
  if (view.dtype == DType::f32) {
    device::copy_bytes(ctx, values.data(), Place::host, view.data, view.place, view.bytes());
  } else {
    std::vector<dtype::Bf16> narrow(values.size());
    device::copy_bytes(ctx, narrow.data(), Place::host, view.data, view.place, view.bytes());
    dtype::convert(std::span<const dtype::Bf16>(narrow), std::span(values));
  }
  return values;
}

std::size_t Workspace::planned(const device::Device& device, const std::function<void(const Context&)>& work) {
  device::Arena plan;
  Context dry = device.context(plan);
  dry.dry = true;
  work(dry);
  return plan.peak();
}

Workspace::Workspace(const device::Device& device, const std::function<void(const Context&)>& work)
    : device_(device), arena_(planned(device, work), device.place()) {}

}  // namespace fp8::probe
