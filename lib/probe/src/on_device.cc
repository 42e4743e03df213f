// Copies between the host and a device, and arenas sized by a dry run.
#include "on_device.h"

#include <algorithm>

#include "fp8/dtype/convert.h"

namespace fp8::probe {

using device::Context;
using device::DeviceType;
using dtype::DType;
using tensor::Tensor;
using tensor::View;

Tensor placed(const Context& ctx, std::span<const float> values, DType dtype, tensor::Shape shape) {
  Tensor there(dtype, shape, ctx.device, "a GEMM operand");
  const Tensor here(dtype, shape);
  dtype::from_floats(values, dtype, here.view().data);
  tensor::copy_across(ctx, here.view(), there.view());
  return there;
}

std::vector<float> floats_of(const Context& ctx, const View& view) {
  const Tensor here(view.dtype, {view.size()});
  tensor::copy_across(ctx, view, here.view());
  std::vector<float> values(static_cast<std::size_t>(view.size()));
  dtype::to_floats(view.dtype, here.view().data, values);
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
    : device_(device), arena_(planned(device, work), device.type()) {}

}  // namespace fp8::probe
