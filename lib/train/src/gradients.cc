// Gradients are streamed: rank 0 writes each one before it receives the next.
#include "fp8/train/gradients.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "fp8/base/file.h"
#include "fp8/hf/adapter.h"
#include "fp8/hf/safetensors.h"
#include "fp8/json/json.h"

namespace fp8::train {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{16} << 20;  // of a device's memory that are copied at a time

std::string gradient_name(const model::Parameter& p) {
  return (p.role == model::ParameterRole::adapter ? std::string(hf::kAdapterPrefix) : "") + p.name;
}

// The file on rank 0.
class GradientFile {
 public:
  GradientFile(const std::string& path, bool force, const std::vector<model::Parameter>& table,
               const Metadata& metadata)
      : file_(path, force) {
    std::vector<hf::TensorSpec> specs;
    for (const model::Parameter& p : table)
      if (p.trainable) specs.push_back({gradient_name(p), dtype::DType::f32, p.whole_shape()});
    writer_.emplace(File::open_update(file_.path()), std::move(specs), metadata);
  }
  void write(const device::Context& ctx, const model::Parameter& p, const tensor::View& gradient) {
    writer_->begin(gradient_name(p));
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(gradient.data), gradient.bytes());
    if (ctx.device == device::DeviceType::host) return writer_->write(bytes);
    std::vector<std::byte> piece(std::min(bytes.size(), kPieceBytes));
    for (std::size_t at = 0; at < bytes.size(); at += piece.size()) {
      piece.resize(std::min(piece.size(), bytes.size() - at));
      device::copy_bytes(ctx, piece.data(), device::DeviceType::host, bytes.data() + at, ctx.device, piece.size());
      writer_->write(piece);
    }
  }
  void commit() {
    writer_->finish();
    file_.commit();
  }

 private:
  AtomicFile file_;
  std::optional<hf::SafetensorsWriter> writer_;
};

}  // namespace

Metadata gradient_metadata(const json::Value& step_record, const json::Value& mesh, const hf::ModelConfig& config) {
  const json::Value heads = json::object({{"num_attention_heads", config.num_attention_heads},
                                          {"num_key_value_heads", config.num_key_value_heads},
                                          {"head_dim", config.head_dim}});
  Metadata metadata{{"mesh", json::dump(mesh)}, {"attention_heads", json::dump(heads)}};
  const json::Object& step = step_record.as_object();
  for (const char* key : {"loss", "grad_norm", "step", "tokens"}) {
    const json::Value& value = step.at(key);
    const bool finite = !value.is_number() || std::isfinite(value.as_double());
    metadata[key] = value.is_null() || !finite ? "NaN" : json::dump(value);
  }
  metadata["precision"] = step.at("precision").as_string();
  metadata["recipe"] = step.at("recipe").is_null() ? "none" : step.at("recipe").as_string();
  return metadata;
}

void write_gradients(shard::ShardedModel& model, comm::Communicator& host_comm, const std::string& path, bool force,
                     const Metadata& metadata) {
  std::optional<GradientFile> file;
  comm::agree(host_comm, [&] {
    if (comm::is_writer(host_comm)) file.emplace(path, force, model.store.table(), metadata);
  });
  std::exception_ptr failure;
  model.store.gradients().visit(model.ctx, [&](const model::Parameter& p, const tensor::View& gradient) {
    if (failure) return;
    try {
      file->write(model.ctx, p, gradient);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  comm::agree(host_comm, [&] {
    if (failure) std::rethrow_exception(failure);
    if (file) file->commit();
  });
}

}  // namespace fp8::train
