// Weights in the format of a checkpoint, and the documents of the output file.
#include "fp8/convert/stored_weight.h"

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/model/output.h"

namespace fp8::convert {

std::string stored_name(const model::Parameter& p) { return std::string(ckpt::kWeights) + p.name; }

StoredMatrix stored_matrix(const ckpt::Checkpoint& source, const model::Parameter& p) {
  const std::string name = stored_name(p);
  return {.name = source.path() + ": /" + name,
          .rows = p.rows(),
          .cols = p.cols(),
          .dtype = source.at(name).dtype,
          .read = [&source, name](std::int64_t begin, std::int64_t end, std::span<std::byte> out) {
            source.read_rows(name, begin, end, out);
          }};
}

void check_float(const ckpt::Checkpoint& source, const model::Parameter& p) {
  const dtype::DType type = source.at(stored_name(p)).dtype;
  if (type == dtype::DType::f32 || type == dtype::DType::bf16) return;
  throw Error(source.path() + ": /" + stored_name(p) + ": stored as " + std::string(dtype::name_of(type)) +
              ", not as float32 or bfloat16");
}

ckpt::TensorMeta meta_in_output(const ckpt::Checkpoint& source, const model::Parameter& p, dtype::DType type) {
  ckpt::TensorMeta meta = source.at(stored_name(p));
  meta.shape = model::meta_of(p, type).shape;
  meta.dtype = type;
  meta.precision = p.precision();
  meta.reason = p.reason;
  return meta;
}

void write_scales(const std::string& weight, const StoredScales& scales, ckpt::ModelWriter& writer) {
  ckpt::TensorMeta meta;
  meta.name = std::string(ckpt::kScales) + weight;
  meta.dtype = scales.dtype;
  meta.shape = scales.shape;
  writer.tensor(meta, scales.bytes);
  if (scales.dtype != dtype::DType::e4m3) return;
  meta.name = std::string(ckpt::kGlobals) + weight;
  meta.dtype = dtype::DType::f32;
  meta.shape = {1};
  writer.tensor(meta, std::as_bytes(std::span(&scales.amax, 1)));
}

std::uint64_t bytes_of_codes(const model::Parameter& p, dtype::DType format, quant::Granularity scaling) {
  const FactorGrid grid = factor_grid(scaling, p.rows(), p.cols());
  const std::uint64_t scales = static_cast<std::uint64_t>(grid.rows * grid.cols) * dtype::size_of(scale_type(scaling));
  return static_cast<std::uint64_t>(p.size() / dtype::packed(format)) + scales +
         (dtype::is_fp4(format) ? sizeof(float) : 0);
}

std::optional<ckpt::ModelWriter> start_output(const ckpt::Checkpoint& source, const Target& target) {
  std::uint64_t bytes = target.weights_bytes;
  for (const ckpt::TensorMeta& meta : source.unknown()) bytes = checked_add(bytes, meta.bytes(), source.path());
  check_output(target.path, target.force, {source.path()});
  ckpt::check_space(parent_directory(target.path), bytes);
  source.verify();  // damaged data would get a valid digest
  if (target.dry_run) return std::nullopt;
  ckpt::ModelWriter writer(target.path, target.kind, target.force);
  writer.document("config", target.config);
  writer.document("provenance", model::with_origin(source.provenance(), target.origin));
  ckpt::copy_texts(source, writer);
  return writer;
}

}  // namespace fp8::convert
