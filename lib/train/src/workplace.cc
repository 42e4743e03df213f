// Choosing and opening a device, the same on all ranks, before anything else is done.
#include "workplace.h"

#include <algorithm>

namespace fp8::train {
namespace {

using device::Place;

constexpr int kFirstFp8 = 89;  // compute capability of the first chips with FP8 matmuls

// Whether every rank has a GPU of its own; otherwise, why this one has not.
std::string why_not_cuda() {
  const int devices = device::cuda_device_count();
  if (devices == 0) return device::why_no_cuda();
  if (comm::local_rank() < devices) return {};
  return std::to_string(devices) + (devices == 1 ? " GPU serves one rank" : " GPUs serve as many ranks") +
         ", and there are more on this machine";
}

Place choose(std::optional<Place> wanted, comm::Communicator& world) {
  if (wanted == Place::host) return Place::host;
  const std::string why = why_not_cuda();
  if (wanted)
    comm::agree(world, [&] {
      if (!why.empty()) throw Error("--device cuda: " + why);
    });
  std::int64_t can = why.empty() ? 1 : 0;
  world.all_reduce(std::span<std::int64_t>(&can, 1), comm::Reduce::min);
  return can != 0 ? Place::cuda : Place::host;
}

gemm::Mode mode_of(const quant::Cast& a, const quant::Cast& b, DType c, bool accumulate, bool fast) {
  const auto side = [](const quant::Cast& cast) {
    gemm::Mode::Side s;
    s.format = cast.format;
    s.vector = cast.granularity == quant::Granularity::vector;
    return s;
  };
  gemm::Mode mode;
  mode.a = side(a);
  mode.b = side(b);
  mode.c = c;
  mode.accumulate = accumulate;
  mode.fast_accumulation = fast;
  return mode;
}

// The three products of every recipe's linear, before the first step finds out.
void require_products(const Context& ctx, const PrecisionConfig& precision) {
  gemm::Engine engine;
  const DType activation = precision.activations;
  const quant::Recipe* const recipe = precision.recipe_or_null();
  if (recipe == nullptr) return;
  engine.require(ctx, mode_of(recipe->x.columns, recipe->w.columns, activation, false, recipe->fast_accumulation));
  engine.require(ctx, mode_of(recipe->dy.columns, recipe->w.rows, activation, false, false));
  if (recipe->dy.rows.granularity != quant::Granularity::none)
    engine.require(ctx, mode_of(recipe->dy.rows, recipe->x.rows, DType::f32, true, false));
}

}  // namespace

Workplace::Workplace(std::optional<Place> wanted, const PrecisionConfig& precision, comm::Communicator& world) {
  const Place place = choose(wanted, world);
  comm::agree(world, [&] {
    device_ = std::make_unique<device::Device>(place, place == Place::host ? 0 : comm::local_rank());
    context_ = device_->context();
    if (place == Place::host || precision.precision != Precision::fp8) return;
    if (device_->compute_capability() < kFirstFp8)
      throw Error("--precision fp8: " + device_->name() +
                  " has no FP8 matmul: use --device cpu, which emulates it, or --precision bf16");
    require_products(context_, precision);
  });
  group_ = comm::on_device(world, context_);
}

}  // namespace fp8::train
