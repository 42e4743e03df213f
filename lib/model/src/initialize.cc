// Initial weights, element by element from counter-based random numbers, written to one checkpoint.
#include "fp8/model/initialize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fp8/base/checked.h"
#include "fp8/base/digest.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/ckpt/writer.h"
#include "fp8/device/device.h"
#include "fp8/device/philox.h"
#include "fp8/dtype/convert.h"
#include "fp8/model/output.h"

namespace fp8::model {
namespace {

// A hash of a tensor's name, unique within a model in practice.
std::uint64_t hash_of_name(const std::string& name) { return digest_of(std::as_bytes(std::span(name))).lo; }

// Standard normal values from random words.
std::array<float, 4> four_normals(const std::array<std::uint32_t, 4>& bits) {
  const std::array<float, 2> a = device::normal_pair(bits[0], bits[1]);
  const std::array<float, 2> b = device::normal_pair(bits[2], bits[3]);
  return {a[0], a[1], b[0], b[1]};
}

// Uniform values in (-1, 1] from random words.
std::array<float, 4> four_uniforms(const std::array<std::uint32_t, 4>& bits) {
  std::array<float, 4> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = 2 * device::unit_interval(bits[i]) - 1;
  return out;
}

// Fills `out` with `factor` times what `four_values` makes of the random words of elements 4 block ... 4 block + 3.
template <class Values>
void random_values(const Parameter& parameter, double factor, std::uint64_t seed, std::int64_t begin,
                   std::span<float> out, const Values& four_values) {
  const std::uint64_t name = hash_of_name(parameter.name);
  const float scale = static_cast<float>(factor);
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  const std::int64_t first = begin / 4, last = (end + 3) / 4;
#pragma omp parallel for schedule(static) num_threads(device::host_threads())
  for (std::int64_t block = first; block < last; ++block) {
    const std::array<float, 4> values = four_values(device::philox(seed, static_cast<std::uint64_t>(block), name));
    for (std::int64_t i = std::max(begin, 4 * block); i < std::min(end, 4 * block + 4); ++i) {
      out[static_cast<std::size_t>(i - begin)] = scale * values[static_cast<std::size_t>(i - 4 * block)];
    }
  }
}

bool is_b(const Parameter& adapter) {
  return std::ranges::find(kAdaptedSlots, adapter.slot, &AdaptedSlot::b) != kAdaptedSlots.end();
}

void write_parameter(ckpt::ModelWriter& writer, const Parameter& p, double deviation, const InitOptions& options) {
  const dtype::DType type = stored_type(p, options.dtype);
  writer.begin_tensor(meta_of(p, type));
  std::vector<float> values(static_cast<std::size_t>(std::min(kPieceElements, p.size())));
  std::vector<std::byte> bytes(values.size() * dtype::size_of(type));
  for (std::int64_t begin = 0; begin < p.size(); begin += kPieceElements) {
    const auto count = static_cast<std::size_t>(std::min(kPieceElements, p.size() - begin));
    const std::span<float> piece = std::span(values).first(count);
    initial_values(p, deviation, options.seed, begin, piece);
    dtype::from_floats(piece, type, bytes.data());
    writer.write(std::span(bytes).first(count * dtype::size_of(type)));
  }
  writer.end_tensor();
}

}  // namespace

void initial_values(const Parameter& parameter, double initializer_range, std::uint64_t seed, std::int64_t begin,
                    std::span<float> out) {
  switch (parameter.role) {
    case ParameterRole::norm:
      std::fill(out.begin(), out.end(), 1.0F);
      return;
    case ParameterRole::bias:
      std::fill(out.begin(), out.end(), 0.0F);
      return;
    case ParameterRole::embedding:
    case ParameterRole::linear:
    case ParameterRole::head:
    case ParameterRole::router:
      random_values(parameter, initializer_range, seed, begin, out, four_normals);
      return;
    case ParameterRole::adapter:
      if (is_b(parameter)) {
        std::ranges::fill(out, 0.0F);
        return;
      }
      // Kaiming uniform with a = sqrt(5), as PEFT.
      random_values(parameter, 1 / std::sqrt(static_cast<double>(parameter.cols())), seed, begin, out, four_uniforms);
      return;
  }
}

InitSummary initialize(const hf::ModelConfig& config, const std::string& output, const InitOptions& options) {
  if (options.dtype != dtype::DType::f32 && options.dtype != dtype::DType::bf16) {
    throw Error("dtype: weights are f32 or bf16");
  }
  const std::vector<Parameter> table = parameter_table(config);
  InitSummary summary;
  summary.tensors = static_cast<std::int64_t>(table.size());
  summary.parameters = parameter_count(table);
  for (const Parameter& p : table)
    summary.bytes = checked_add(
        summary.bytes, static_cast<std::uint64_t>(p.size()) * dtype::size_of(stored_type(p, options.dtype)), output);
  check_output(output, options.force, options.inputs);
  if (options.dry_run) return summary;
  ckpt::check_space(parent_directory(output), summary.bytes);
  ckpt::ModelWriter writer(output, ckpt::FileKind::model, options.force);
  writer.document("config", config_with_dtype(config, options.dtype));
  writer.document("provenance", with_origin(nullptr, options.origin));
  if (options.tokenizer) writer.tokenizer(*options.tokenizer);
  if (options.tokenizer_id) writer.tokenizer_id(*options.tokenizer_id);
  writer.huggingface(options.huggingface);
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (options.progress) options.progress(table[i].name, i, table.size());
    write_parameter(writer, table[i], config.initializer_range, options);
  }
  writer.commit();
  return summary;
}

}  // namespace fp8::model
