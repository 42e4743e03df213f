/// Helpers for the golden tests of models, curves and FP8: vectors of doubles and their distances, and a model read
/// from its Hugging Face folder into a parameter store of one rank. Tests run in the root of the source tree.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "filled_model.h"
#include "fp8/base/error.h"
#include "fp8/comm/comm.h"
#include "fp8/device/profile.h"
#include "fp8/dtype/convert.h"
#include "fp8/hf/folder.h"
#include "fp8/model/decoder.h"
#include "fp8/shard/passes.h"
#include "fp8_test.h"
#include "plain_file.h"

namespace fp8::golden {

using dtype::DType;
using tensor::Tensor;
using tensor::View;
using test::TemporaryFolder;

/// Values of any stored type, as doubles.
using Values = std::vector<double>;

/// Path of the Hugging Face folder of a reference model.
inline std::string model_folder(const std::string& name) { return "tests/golden/models/" + name + "/hf"; }

/// Reads a dataset of f32 or f64.
inline Values values(const test::PlainFile& file, const std::string& name) {
  if (file.at(name).dtype == DType::f64) return file.read_as<double>(name);
  const auto floats = file.read_as<float>(name);
  return {floats.begin(), floats.end()};
}

/// Reads a contiguous tensor on the host.
inline Values values(const View& v) {
  std::vector<float> floats(static_cast<std::size_t>(v.size()));
  dtype::to_floats(v.dtype, v.data, floats);
  return {floats.begin(), floats.end()};
}

/// L2 norm.
inline double norm(const Values& v) {
  double sum = 0;
  for (const double e : v) sum += e * e;
  return std::sqrt(sum);
}

/// |a - b| / |b| in the L2 norm.
inline double relative_l2(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b.at(i);
  return norm(a) / norm(b);
}

/// Largest |a - b|.
inline double largest_difference(const Values& a, const Values& b) {
  double largest = a.size() == b.size() ? 0 : HUGE_VAL;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::fmax(largest, std::fabs(a[i] - b.at(i)));
  return largest;
}

/// A model on one rank: a parameter store with the weights of a Hugging Face folder, a decoder and an arena.
class Model {
 public:
  /// With a recipe, eligible linears run in FP8; `emulate` emulates FP8 on a GPU too.
  Model(const std::string& folder, DType compute, const quant::Recipe* recipe = nullptr,
        device::DeviceType device = device::DeviceType::host, bool emulate = false,
        gemm::Accumulation accumulation = gemm::Accumulation::f32, const quant::GemmSet& gemms = {})
      : source_(folder),
        device_(device),
        comm_(comm::solo()),
        model_(device_.context(), comm::Mesh(*comm_), spec_of(compute, recipe, emulate, accumulation, gemms),
               device::Arena(std::size_t{device == device::DeviceType::host ? 64U : 512U} << 20, device)) {
    test::fill_masters(model_, [&](int number, std::int64_t begin, std::int64_t end) {
      const model::Parameter& p = store().table()[static_cast<std::size_t>(number)];
      const hf::Folder::Entry* entry = source_.find(p.name);
      if (entry == nullptr || entry->info->shape != p.shape) throw Error(folder + ": " + p.name + ": not as expected");
      std::vector<float> weights(static_cast<std::size_t>((end - begin) * p.cols()));
      source_.read_rows_f32(*entry, begin, end - begin, weights);
      return weights;
    });
  }

  /// The configuration of the folder.
  const hf::ModelConfig& config() const { return source_.config(); }
  /// Number of tensors in the folder.
  std::size_t stored_tensors() const { return source_.tensors().size(); }
  /// The parameters.
  const shard::ParameterStore& store() const { return model_.store; }
  /// The GEMM engine, which counts GEMMs.
  const gemm::Engine& engine() const { return model_.engine; }
  /// Records the times of operations in `profile`, which must outlive the model.
  void note_in(device::Profile& profile) { model_.ctx.profile = &profile; }

  /// Logits [M, V].
  Values logits(const model::Batch& batch) {
    const device::Scope scope(model_.arena);
    const View out = tensor::allocate(model_.ctx, store().shards().front().compute_weight.dtype,
                                      {batch.rows(), config().vocab_size}, "activations");
    shard::logits(model_, shard::on_device(model_.ctx, batch), 0, out);
    return values_of(out);
  }
  /// Returns the losses [M]; the store then has the gradients of scale times their sum.
  Values forward_backward(const model::Batch& batch, double scale) {
    Values losses;
    shard::run_passes(model_, {.gradient_scale = static_cast<float>(scale),
                               .batch = [&](const device::Context& ctx, device::PooledMemory& memory,
                                            int) { return shard::on_device(ctx, batch, memory); },
                               .losses = [&](const View& of_batch) { losses = values_of(of_batch); }});
    model_.store.gradients().finish(model_.ctx);
    return losses;
  }
  /// Gives delayed scales a history by a forward and backward without FP8.
  void calibrate(const model::Batch& batch, double scale) {
    model_.store.scales().begin_calibration();
    (void)forward_backward(batch, scale);
    model_.store.end_calibration(model_.ctx);
  }
  /// Reads a contiguous view on the model's device.
  Values values_of(const View& v) const {
    const Tensor copy(v.dtype, {v.size()});
    device::copy_bytes(model_.ctx, copy.view().data, device::DeviceType::host, v.data, v.device, v.bytes());
    return values(copy.view());
  }
  /// L2 norm of all gradients.
  double gradient_norm() {
    const device::Buffer total(sizeof(double), model_.ctx.device, "a sum");
    model_.store.gradients().add_squares(model_.ctx, reinterpret_cast<double*>(total.data()));
    double sum = 0;
    device::copy_bytes(model_.ctx, &sum, device::DeviceType::host, total.data(), model_.ctx.device, sizeof sum);
    return std::sqrt(sum);
  }

 private:
  shard::ModelSpec spec_of(DType compute, const quant::Recipe* recipe, bool emulate, gemm::Accumulation accumulation,
                           const quant::GemmSet& gemms) const {
    shard::ModelSpec spec{source_.config(), model::parameter_table(source_.config()), {}};
    for (model::Parameter& p : spec.table) p.fp8 = p.fp8 && recipe != nullptr, p.gemms = gemms;
    spec.store.compute = compute;
    if (compute == DType::f32) spec.execution.attention.kernels = ops::AttentionKernels::plain;
    spec.store.fp8 = {recipe, {recipe != nullptr && recipe->power_of_2, nullptr, emulate}, accumulation};
    return spec;
  }
  hf::Folder source_;
  device::Device device_;
  std::unique_ptr<comm::Communicator> comm_;
  shard::ShardedModel model_;
};

/// A batch of the decoder with these tokens and targets.
inline model::Batch batch_of(std::vector<std::int32_t>& tokens, std::vector<std::int32_t>& targets,
                             std::int64_t sequences, std::int64_t length) {
  const auto view = [&](std::vector<std::int32_t>& v) {
    return tensor::make_view(v.data(), DType::i32, device::DeviceType::host, {sequences, length});
  };
  return {view(tokens), view(targets), sequences, length};
}

}  // namespace fp8::golden
