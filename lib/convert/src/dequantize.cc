// Codes and scales back to trainable weights. Codes and scales come from an untrusted file.
#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/convert/convert.h"
#include "fp8/convert/quantize.h"
#include "fp8/convert/stored_weight.h"
#include "fp8/dtype/convert.h"
#include "fp8/dtype/finite.h"
#include "fp8/model/checkpoint.h"

namespace fp8::convert {
namespace {

using dtype::DType;

std::string scales_name(const model::Parameter& p) { return std::string(ckpt::kScales) + p.name; }

// Throws Error unless FP4 codes have E4M3 scales for blocks of 16 x 16 and an amax.
void check_fp4(const ckpt::Checkpoint& source, const model::Parameter& p, const ckpt::TensorMeta& scales,
               std::optional<quant::Granularity> scaling) {
  if (scaling != quant::Granularity::block16x16)
    throw Error(source.path() + ": /" + scales.name + ": expected an E4M3 scale for each block of 16x16 of FP4 codes");
  check_amax(source, p.name);
}

}  // namespace

void check_no_others(const ckpt::Checkpoint& source, const std::set<std::string>& coded) {
  for (const ckpt::TensorMeta& meta : source.tensors(ckpt::kScales)) {
    if (!coded.contains(meta.name.substr(ckpt::kScales.size())))
      throw Error(source.path() + ": /" + meta.name + ": scales without codes");
  }
  for (const ckpt::TensorMeta& meta : source.tensors(ckpt::kGlobals)) {
    const std::string weight = meta.name.substr(ckpt::kGlobals.size());
    if (!coded.contains(weight) || !dtype::is_fp4(source.at(std::string(ckpt::kWeights) + weight).dtype))
      throw Error(source.path() + ": /" + meta.name + ": an amax without FP4 codes");
  }
}

void check_amax(const ckpt::Checkpoint& source, const std::string& weight) {
  const std::string name = std::string(ckpt::kGlobals) + weight;
  const ckpt::TensorMeta* amax = source.find(name);
  if (amax == nullptr)
    throw Error(source.path() + ": /" + std::string(ckpt::kWeights) + weight +
                ": FP4 codes without an amax in /globals");
  if (amax->dtype != DType::f32 || amax->shape != std::vector<std::int64_t>{1})
    throw Error(source.path() + ": /" + name + ": expected one float32 amax");
}

quant::Granularity scaling_of(const ckpt::Checkpoint& source, const model::Parameter& p) {
  const ckpt::TensorMeta* meta = source.find(scales_name(p));
  const DType type = source.at(stored_name(p)).dtype;
  if (meta == nullptr)
    throw Error(source.path() + ": /" + stored_name(p) + ": " + (dtype::is_fp4(type) ? "FP4" : "FP8") +
                " codes without scales");
  const std::optional<quant::Granularity> scaling = find_granularity(meta->dtype, meta->shape, p.shape);
  if (dtype::is_fp4(type)) check_fp4(source, p, *meta, scaling);
  if (scaling && (dtype::is_fp4(type) || meta->dtype != DType::e4m3)) return *scaling;
  throw Error(source.path() + ": /" + meta->name + ": expected one float32 scale or one for each of the " +
              std::to_string(p.rows()) + " rows of the codes, or for each block of 128x128, or E8M0 for each of 1x32");
}

FactorGrid grid_of(const ckpt::Checkpoint& source, const model::Parameter& p) {
  return factor_grid(scaling_of(source, p), p.rows(), p.cols());
}

bool is_codes(const ckpt::Checkpoint& source, const model::Parameter& p) {
  return dtype::is_coded(source.at(stored_name(p)).dtype);
}

bool holds_codes(const ckpt::Checkpoint& source) {
  return source.kind() == ckpt::FileKind::quantized || !source.tensors(ckpt::kScales).empty();
}

void check_quantized(const ckpt::Checkpoint& source, const std::vector<model::Parameter>& table) {
  model::check_weights(source, table);
  std::set<std::string> scaled;
  for (const model::Parameter& p : table) {
    if (!is_codes(source, p)) {
      check_float(source, p);
      continue;
    }
    grid_of(source, p);
    scaled.insert(p.name);
  }
  check_no_others(source, scaled);
  if (scaled.empty()) throw Error(source.path() + ": marked as quantized, but no weight contains codes");
}

StoredScales stored_scales(const ckpt::Checkpoint& source, const std::string& weight) {
  const ckpt::TensorMeta& meta = source.at(std::string(ckpt::kScales) + weight);
  StoredScales scales{.dtype = meta.dtype, .shape = meta.shape, .bytes = {}, .amax = 0};
  scales.bytes.resize(static_cast<std::size_t>(meta.bytes()));
  source.read(meta.name, scales.bytes);
  if (meta.dtype != DType::e4m3) return scales;
  const std::string amax = std::string(ckpt::kGlobals) + weight;
  source.read(amax, std::as_writable_bytes(std::span(&scales.amax, 1)));
  // A GEMM multiplies by the amax, --dequantize divides by a scale that is 1 for an amax of 0: only zeros are the same.
  if (scales.amax == 0 && std::ranges::any_of(scales.bytes, [](std::byte b) { return b != std::byte{0}; }))
    throw Error(source.path() + ": /" + amax + ": the amax is 0, but scales of the tensor are not");
  if (scales.amax > 0 && scales.amax < kLeastFp4Amax)
    throw Error(source.path() + ": /" + amax + ": the amax is " + format_short(scales.amax, 3) + ", below " +
                format_short(kLeastFp4Amax, 3) + ", the least whose scale is finite");
  return scales;
}

std::vector<float> read_scales(const ckpt::Checkpoint& source, const std::string& weight) {
  return stored_scales(source, weight)
      .factors(source.path() + ": /" + std::string(ckpt::kScales) + weight,
               source.at(std::string(ckpt::kWeights) + weight).dtype);
}

void write_as(const StoredMatrix& x, DType type, const WriteBytes& write) {
  std::vector<float> values;
  std::vector<std::byte> out;
  for_pieces(x, [&](std::int64_t begin, std::int64_t, std::span<const std::byte> bytes) {
    if (x.dtype == type) return write(bytes);
    values.resize(bytes.size() / dtype::size_of(x.dtype));
    out.resize(values.size() * dtype::size_of(type));
    dtype::to_floats(x.dtype, bytes.data(), values);
    store_rows(x.name, values, begin, x.cols, type, out);
    write(out);
  });
}

std::optional<quant::Granularity> stored_scaling(const ckpt::Checkpoint& checkpoint,
                                                 const std::vector<model::Parameter>& table) {
  std::optional<quant::Granularity> scaling;
  std::string of;
  for (const model::Parameter& p : table) {
    if (checkpoint.find(stored_name(p)) == nullptr || !is_codes(checkpoint, p)) continue;
    const quant::Granularity here = scaling_of(checkpoint, p);
    if (scaling && *scaling != here)
      throw Error(checkpoint.path() + ": /" + stored_name(p) + ": its scales are not of the form of those of " + of);
    scaling = here;
    of = p.name;
  }
  return scaling;
}

void check_codes_of_linears(const ckpt::Checkpoint& checkpoint, const std::vector<model::Parameter>& table) {
  std::set<std::string> coded;
  for (const model::Parameter& p : table) {
    if (checkpoint.find(stored_name(p)) == nullptr || !is_codes(checkpoint, p)) continue;
    const std::string name = checkpoint.path() + ": /" + stored_name(p);
    if (p.role != model::ParameterRole::linear) throw Error(name + ": codes of a weight that is no linear of a layer");
    if (checkpoint.at(stored_name(p)).dtype == DType::e5m2)
      throw Error(name + ": E5M2 codes, which no recipe has for weights");
    (void)read_scales(checkpoint, p.name);
    coded.insert(p.name);
  }
  check_no_others(checkpoint, coded);
}

namespace {

std::vector<model::Parameter> table_to_dequantize(const ckpt::Checkpoint& source) {
  if (!holds_codes(source)) {
    throw Error(source.path() + ": not quantized (its kind is " + std::string(ckpt::name_of(source.kind())) +
                "), so there is nothing to dequantize");
  }
  std::vector<model::Parameter> table =
      model::parameter_table(hf::parse_config(source.config(), source.path() + ": /config"));
  check_quantized(source, table);
  model::read_precisions(source, table);
  return table;
}

// Multiplies codes by their scales; a null writer writes nothing.
DequantizedTensor uncast_weight(const ckpt::Checkpoint& source, const model::Parameter& p, DType type,
                                ckpt::ModelWriter* writer) {
  const StoredMatrix codes = stored_matrix(source, p);
  const std::vector<float> scales = read_scales(source, p.name);
  if (writer != nullptr) writer->begin_tensor(meta_in_output(source, p, type));
  uncast_matrix(codes, scales, grid_of(source, p), type, [&](std::span<const std::byte> bytes) {
    if (writer != nullptr) writer->write(bytes);
  });
  if (writer != nullptr) writer->end_tensor();
  return {p.name, p.shape, codes.dtype, static_cast<std::int64_t>(scales.size())};
}

// Copies a weight that was not cast, in the format `type`.
void copy_uncast(const ckpt::Checkpoint& source, const model::Parameter& p, DType type, ckpt::ModelWriter& writer) {
  writer.begin_tensor(meta_in_output(source, p, type));
  write_as(stored_matrix(source, p), type, [&](std::span<const std::byte> bytes) { writer.write(bytes); });
  writer.end_tensor();
}

}  // namespace

DequantizeReport dequantize(const std::string& source_path, const std::string& output,
                            const DequantizeOptions& options) {
  if (options.dtype != DType::f32 && options.dtype != DType::bf16) throw Error("dtype: weights are f32 or bf16");
  const ckpt::Checkpoint source = model::open_checkpoint(source_path);
  const std::vector<model::Parameter> table = table_to_dequantize(source);
  DequantizeReport report;
  report.notes = source.passed_over();
  report.weights = static_cast<std::int64_t>(table.size());
  for (const std::string_view section : {ckpt::kWeights, ckpt::kScales}) {
    for (const ckpt::TensorMeta& meta : source.tensors(section)) {
      report.bytes_before = checked_add(report.bytes_before, meta.bytes(), source_path);
    }
  }
  for (const model::Parameter& p : table)
    report.bytes = checked_add(
        report.bytes, static_cast<std::uint64_t>(p.size()) * dtype::size_of(model::stored_type(p, options.dtype)),
        source_path);
  const hf::ModelConfig config = hf::parse_config(source.config(), source_path + ": /config");
  std::optional<ckpt::ModelWriter> writer =
      start_output(source, {.path = output,
                            .kind = ckpt::FileKind::model,
                            .config = model::config_with_dtype(config, options.dtype),
                            .weights_bytes = report.bytes,
                            .origin = options.origin,
                            .force = options.force,
                            .dry_run = options.dry_run});
  ckpt::ModelWriter* const to = writer ? &*writer : nullptr;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (options.progress) options.progress(table[i].name, i, table.size());
    if (is_codes(source, table[i])) {
      report.tensors.push_back(uncast_weight(source, table[i], options.dtype, to));
    } else if (to != nullptr) {
      copy_uncast(source, table[i], model::stored_type(table[i], options.dtype), *to);
    }
  }
  if (to != nullptr) {
    ckpt::copy_unknown(source, *to);
    to->commit();
  }
  return report;
}

}  // namespace fp8::convert
