/// What the golden tests of models, curves and FP8 share: vectors of doubles and their distances,
/// and a model from its Hugging Face folder in a parameter store of one rank. Tests run in the root of the sources.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/comm/comm.h"
#include "fp8/device/arena.h"
#include "fp8/device/profile.h"
#include "fp8/dtype/convert.h"
#include "fp8/gemm/gemm.h"
#include "fp8/h5/reader.h"
#include "fp8/hf/folder.h"
#include "fp8/model/decoder.h"
#include "fp8/train/store.h"
#include "fp8_test.h"

namespace fp8::golden {

using dtype::DType;
using tensor::Tensor;
using tensor::View;
using test::TemporaryFolder;

/// Numbers, whatever they are stored as.
using Values = std::vector<double>;

/// The Hugging Face folder of a reference model.
inline std::string model_folder(const std::string& name) { return "tests/golden/models/" + name + "/hf"; }

/// A dataset of f32 or f64.
inline Values values(const h5::Reader& file, const std::string& name) {
  if (file.at(name).dtype == DType::f64) return file.read_as<double>(name);
  const auto floats = file.read_as<float>(name);
  return {floats.begin(), floats.end()};
}

/// A contiguous tensor.
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

/// A model on one rank: weights from its folder into the masters of a store, decoder, arena.
class Model {
 public:
  /// With a recipe its eligible linears run in FP8, emulated on a GPU too if asked for.
  Model(const std::string& folder, DType compute, const quant::Recipe* recipe = nullptr,
        device::DeviceType device = device::DeviceType::host, bool emulate = false,
        gemm::Accumulation accumulation = gemm::Accumulation::f32)
      : source_(folder),
        device_(device),
        arena_(std::size_t{device == device::DeviceType::host ? 64U : 512U} << 20, device),
        world_(comm::solo()),
        decoder_(source_.config(), {compute, model::Recompute::none}) {
    ctx_ = device_.context(arena_);
    std::vector<model::Parameter> table = model::parameter_table(source_.config());
    for (model::Parameter& p : table) p.fp8 = p.fp8 && recipe != nullptr;
    train::StoreOptions options;
    options.compute = compute;
    options.fp8 = {recipe, {recipe != nullptr && recipe->power_of_2, nullptr, emulate}, accumulation};
    store_ = std::make_unique<train::ParameterStore>(ctx_, *world_, source_.config(), table, options);
    for (const train::ParameterShard& own : store_->shards()) {
      const model::Parameter& p = table[static_cast<std::size_t>(own.number)];
      const hf::Folder::Entry* entry = source_.find(p.name);
      if (entry == nullptr || entry->info->shape != p.shape) throw Error(folder + ": " + p.name + ": not as expected");
      std::vector<float> weights(static_cast<std::size_t>(p.size()));
      source_.read_rows_f32(*entry, 0, p.rows(), weights);
      device::copy_bytes(ctx_, own.master.data, ctx_.device, weights.data(), device::DeviceType::host,
                         own.master.bytes());
    }
    store_->refresh_compute_weights(ctx_);
  }

  /// The configuration of the folder.
  const hf::ModelConfig& config() const { return source_.config(); }
  /// Tensors in the folder; every one of them should be a parameter.
  std::size_t stored_tensors() const { return source_.tensors().size(); }
  /// Rank 0's parameters.
  const train::ParameterStore& store() const { return *store_; }
  /// What ran.
  const gemm::Engine& engine() const { return engine_; }
  /// Notes from here on what operations take; the profile outlives the model.
  void note_in(device::Profile& profile) { ctx_.profile = &profile; }

  /// Logits [M, V].
  Values logits(const model::Batch& batch) {
    const device::Scope scope(arena_);
    const View out = tensor::allocate(ctx_, store_->shards().front().compute_weight.dtype,
                                      {batch.rows(), config().vocab_size}, "activations");
    decoder_.logits(ctx_, engine_, *store_, here(batch), out);
    return values_of(out);
  }
  /// Losses [M]; gradients of scale times their sum are in the store afterwards.
  Values forward_backward(const model::Batch& batch, double scale) {
    const device::Scope scope(arena_);
    const View losses = tensor::allocate(ctx_, DType::f32, {batch.rows()}, "activations");
    store_->begin_micro_batch(0, 1);
    decoder_.forward_backward(ctx_, engine_, *store_, here(batch), static_cast<float>(scale), losses);
    store_->finish_gradients(ctx_);
    return values_of(losses);
  }
  /// The numbers of a contiguous view of the store.
  Values values_of(const View& v) const {
    const Tensor copy(v.dtype, {v.size()});
    device::copy_bytes(ctx_, copy.view().data, device::DeviceType::host, v.data, v.device, v.bytes());
    return values(copy.view());
  }
  /// L2 norm over all gradients.
  double gradient_norm() {
    const device::Buffer total(sizeof(double), ctx_.device, "a sum");
    store_->add_gradient_squares(ctx_, reinterpret_cast<double*>(total.data()));
    double sum = 0;
    device::copy_bytes(ctx_, &sum, device::DeviceType::host, total.data(), ctx_.device, sizeof sum);
    return std::sqrt(sum);
  }

 private:
  model::Batch here(const model::Batch& batch) const {
    return {tensor::to_device(ctx_, batch.tokens, "activations"), tensor::to_device(ctx_, batch.targets, "activations"),
            batch.sequences, batch.length};
  }
  hf::Folder source_;
  device::Device device_;
  device::Arena arena_;
  device::Context ctx_;
  std::unique_ptr<comm::Communicator> world_;
  gemm::Engine engine_;
  model::Decoder decoder_;
  std::unique_ptr<train::ParameterStore> store_;
};

/// Tokens and targets as the decoder reads them.
inline model::Batch batch_of(std::vector<std::int32_t>& tokens, std::vector<std::int32_t>& targets,
                             std::int64_t sequences, std::int64_t length) {
  const auto view = [&](std::vector<std::int32_t>& v) {
    return tensor::make_view(v.data(), DType::i32, device::DeviceType::host, {sequences, length});
  };
  return {view(tokens), view(targets), sequences, length};
}

}  // namespace fp8::golden
