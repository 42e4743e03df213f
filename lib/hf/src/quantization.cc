// Division of a folder's tensors into weights, codes and scales.
#include "fp8/hf/quantization.h"

#include <algorithm>
#include <array>

#include "fp8/base/error.h"
#include "fp8/base/round.h"
#include "fp8/base/text.h"
#include "fp8/dtype/finite.h"
#include "fp8/hf/export.h"
#include "quantization_config.h"
#include "shape_text.h"

namespace fp8::hf {
namespace {

using dtype::DType;

constexpr std::string_view kWeight = ".weight";
constexpr std::array<std::string_view, 2> kScaleSuffixes = {".weight_scale", ".weight_scale_inv"};
// Static scales of activations, which only a server uses.
constexpr std::array<std::string_view, 2> kActivationSuffixes = {".input_scale", ".activation_scale"};

template <std::size_t N>
bool ends_with_any(std::string_view name, const std::array<std::string_view, N>& suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [&](std::string_view s) { return name.ends_with(s); });
}

std::string_view module_of(std::string_view name) { return name.substr(0, name.rfind('.')); }

std::string where(const Folder& folder, const Folder::Entry& entry) {
  return folder.path() + ": " + terminal_safe(excerpt(entry.info->name));
}

// Extents of the scales of a weight, in a checkpoint and all spellings in a folder.
std::vector<std::vector<std::int64_t>> scale_shapes(const TensorInfo& weight, ScaleLayout layout) {
  const std::int64_t rows = weight.shape[0], cols = weight.shape[1];
  switch (layout) {
    case ScaleLayout::tensor:
      return {{1}, {}, {1, 1}};
    case ScaleLayout::row:
      return {{rows}, {rows, 1}};
    case ScaleLayout::block:
      break;
  }
  return {{divide_up(rows, kQuantizationBlock), divide_up(cols, kQuantizationBlock)}};
}

Codes codes_of(const Folder& folder, const Folder::Entry& weight, const QuantizationConfig& config) {
  const std::string name = where(folder, weight);
  const TensorInfo& info = *weight.info;
  if (info.shape.size() != 2 || info.elements() == 0)
    throw Error(name + ": FP8 codes of shape " + shape_text(info.shape) + ", not of a matrix");
  Codes codes{.weight = &weight, .scales = folder.find(info.name + config.suffix)};
  if (codes.scales == nullptr)
    throw Error(name + ": FP8 codes without scales (" + terminal_safe(excerpt(info.name + config.suffix)) +
                " is missing)");
  const TensorInfo& scales = *codes.scales->info;
  if (scales.format != DType::f32 && scales.format != DType::bf16 && scales.format != DType::f16)
    throw Error(where(folder, *codes.scales) + ": stored as " + scales.dtype + "; scales must be f32, bf16 or f16");
  const std::vector<std::vector<std::int64_t>> shapes = scale_shapes(info, config.layout);
  if (std::find(shapes.begin(), shapes.end(), scales.shape) == shapes.end())
    throw Error(where(folder, *codes.scales) + ": has shape " + shape_text(scales.shape) + " instead of " +
                shape_text(config.layout == ScaleLayout::row ? shapes.back() : shapes.front()));
  codes.scales_shape = shapes.front();
  return codes;
}

// Whether a tensor is the router of experts, which programs keep unquantized whether a list names it or not.
bool is_router(const ModelConfig& config, std::string_view name) {
  return config.experts && name.ends_with("." + std::string(expert_names(config.family).block) + ".gate.weight");
}

// Throws unless every list agrees with how a linear of a layer is stored.
void check_excluded(const Folder& folder, const Folder::Entry& weight, const QuantizationConfig& config) {
  const TensorInfo& info = *weight.info;
  const bool codes = info.format == DType::e4m3;
  const bool linear = info.name.starts_with("model.layers.") && info.name.ends_with(kWeight) && info.shape.size() == 2;
  if (!linear || (!codes && is_router(folder.config(), info.name))) return;
  for (const ModuleList& list : config.excluded) {
    const bool named = names_module(list, module_of(info.name));
    if (codes && named)
      throw Error(where(folder, weight) + ": stored as FP8 codes, but config.json excludes it in \"" + list.key + "\"");
    if (!codes && !named && !has_expression(list))
      throw Error(where(folder, weight) + ": stored as " + info.dtype + ", but config.json does not exclude it in \"" +
                  list.key + "\"");
  }
}

}  // namespace

FolderTensors tensors_of(const Folder& folder) {
  FolderTensors tensors;
  const bool quantized = !folder.quantization_config().is_null();
  QuantizationConfig config;
  if (quantized) config = parse_quantization_config(folder.quantization_config(), folder.path() + "/config.json");
  std::vector<const Folder::Entry*> scales;
  for (const Folder::Entry& entry : folder.tensors()) {
    const std::string& name = entry.info->name;
    if (quantized && ends_with_any(name, kScaleSuffixes)) {
      scales.push_back(&entry);
    } else if (quantized && ends_with_any(name, kActivationSuffixes)) {
      ++tensors.activation_scales;
    } else {
      tensors.weights.push_back(&entry);
      if (quantized) check_excluded(folder, entry, config);
      if (quantized && entry.info->format == DType::e4m3) tensors.codes.emplace(name, codes_of(folder, entry, config));
    }
  }
  for (const Folder::Entry* entry : scales) {
    const auto codes = tensors.codes.find(std::string(module_of(entry->info->name)) + std::string(kWeight));
    if (codes == tensors.codes.end() || codes->second.scales != entry)
      throw Error(where(folder, *entry) + ": scales without codes");
  }
  if (quantized && tensors.codes.empty())
    throw Error(folder.path() + ": config.json has a quantization_config, but no weight is stored as FP8 codes");
  return tensors;
}

std::vector<float> read_scales(const Folder& folder, const Codes& codes) {
  const TensorInfo& info = *codes.scales->info;
  std::vector<float> scales(static_cast<std::size_t>(info.elements()));
  folder.read_rows_f32(*codes.scales, 0, info.shape.empty() ? 1 : info.shape.front(), scales);
  if (const std::string bad = dtype::bad_scale(scales, DType::e4m3); !bad.empty())
    throw Error(where(folder, *codes.scales) + ": " + bad);
  return scales;
}

}  // namespace fp8::hf
