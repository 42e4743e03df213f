// Weights in the format of a checkpoint, and the documents of the output file.
#include "fp8/convert/stored_weight.h"

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"

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
  meta.dtype = type;
  meta.precision = p.precision();
  meta.reason = p.reason;
  return meta;
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
