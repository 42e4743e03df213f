// Division of a folder's tensors into weights, codes and scales.
#include "fp8/hf/quantization.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/round.h"
#include "fp8/base/text.h"
#include "fp8/dtype/e2m1.h"
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
constexpr std::array<std::string_view, 3> kActivationSuffixes = {".input_scale", ".activation_scale",
                                                                 ".input_global_scale"};
// Names of the tensors of FP4 weights.
constexpr std::string_view kPacked = ".weight_packed", kGlobalScale = ".weight_global_scale";

template <std::size_t N>
bool ends_with_any(std::string_view name, const std::array<std::string_view, N>& suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [&](std::string_view s) { return name.ends_with(s); });
}

std::string_view module_of(std::string_view name) { return name.substr(0, name.rfind('.')); }

std::string where(const Folder& folder, const Folder::Entry& entry) {
  return folder.path() + ": " + terminal_safe(excerpt(entry.info->name));
}

// Extents of the scales of a weight, in a checkpoint and all spellings in a folder.
std::vector<std::vector<std::int64_t>> scale_shapes(const std::vector<std::int64_t>& weight, ScaleLayout layout) {
  const std::int64_t rows = weight[0], cols = weight[1];
  switch (layout) {
    case ScaleLayout::tensor:
      return {{1}, {}, {1, 1}};
    case ScaleLayout::row:
      return {{rows}, {rows, 1}};
    case ScaleLayout::group:
      return {{rows, divide_up(cols, kFp4Group)}};
    case ScaleLayout::block:
      break;
  }
  return {{divide_up(rows, kQuantizationBlock), divide_up(cols, kQuantizationBlock)}};
}

// The tensor of this name, with the scales of a weight.
const Folder::Entry& scales_entry(const Folder& folder, const std::string& weight, const std::string& name) {
  const Folder::Entry* const entry = folder.find(name);
  if (entry == nullptr) throw Error(weight + " without scales (" + terminal_safe(excerpt(name)) + " is missing)");
  return *entry;
}

// Adds the f32 scale of the tensor to those of FP4 codes.
void add_global(const Folder& folder, const std::string& weight, const std::string& module, Codes& codes) {
  codes.global = &scales_entry(folder, weight, module + std::string(kGlobalScale));
  const TensorInfo& info = *codes.global->info;
  if (info.format != DType::f32 || info.elements() != 1)
    throw Error(where(folder, *codes.global) + ": " + info.dtype + " of shape " + shape_text(info.shape) +
                "; the scale of a tensor is one f32");
}

Codes codes_of(const Folder& folder, const FolderWeight& weight, const QuantizationConfig& config) {
  const bool fp4 = config.layout == ScaleLayout::group;
  const std::string name = where(folder, *weight.entry) + (fp4 ? ": FP4 codes" : ": FP8 codes");
  if (weight.shape.size() != 2 || weight.entry->info->elements() == 0)
    throw Error(name + " of shape " + shape_text(weight.entry->info->shape) + ", not of a matrix");
  Codes codes{.weight = weight.entry, .scales = &scales_entry(folder, name, weight.name + config.suffix)};
  const TensorInfo& scales = *codes.scales->info;
  const bool fits = fp4 ? scales.format == DType::e4m3
                        : scales.format == DType::f32 || scales.format == DType::bf16 || scales.format == DType::f16;
  if (!fits)
    throw Error(where(folder, *codes.scales) + ": stored as " + scales.dtype + "; scales must be " +
                (fp4 ? "F8_E4M3" : "f32, bf16 or f16"));
  const std::vector<std::vector<std::int64_t>> shapes = scale_shapes(weight.shape, config.layout);
  if (std::find(shapes.begin(), shapes.end(), scales.shape) == shapes.end())
    throw Error(where(folder, *codes.scales) + ": has shape " + shape_text(scales.shape) + " instead of " +
                shape_text(config.layout == ScaleLayout::row ? shapes.back() : shapes.front()));
  codes.scales_shape = shapes.front();
  if (fp4) add_global(folder, name, std::string(module_of(weight.name)), codes);
  return codes;
}

// A tensor as a weight of the model.
FolderWeight weight_of(const Folder& folder, const Folder::Entry& entry, bool fp4) {
  const TensorInfo& info = *entry.info;
  FolderWeight weight{.name = info.name, .shape = info.shape, .format = info.format, .entry = &entry};
  if (!fp4 || !info.name.ends_with(kPacked)) return weight;
  if (info.format != DType::u8)
    throw Error(where(folder, entry) + ": stored as " + info.dtype + "; packed FP4 codes must be U8");
  weight.name = std::string(module_of(info.name)) + std::string(kWeight);
  weight.format = DType::e2m1;
  if (!weight.shape.empty())
    weight.shape.back() = checked_mul(weight.shape.back(), dtype::packed(DType::e2m1), info.name);
  return weight;
}

// Whether a tensor is the router of experts, which programs keep unquantized whether a list names it or not.
bool is_router(const ModelConfig& config, std::string_view name) {
  return config.experts && name.ends_with("." + std::string(expert_names(config.family).block) + ".gate.weight");
}

// Throws unless every list agrees with how a linear of a layer is stored.
void check_excluded(const Folder& folder, const FolderWeight& weight, bool codes, const QuantizationConfig& config) {
  const std::string where_it_is = where(folder, *weight.entry);
  const bool linear =
      weight.name.starts_with("model.layers.") && weight.name.ends_with(kWeight) && weight.shape.size() == 2;
  if (!linear || (!codes && is_router(folder.config(), weight.name))) return;
  for (const ModuleList& list : config.excluded) {
    const bool named = names_module(list, module_of(weight.name));
    if (codes && named)
      throw Error(where_it_is + ": stored as codes, but config.json excludes it in \"" + list.key + "\"");
    if (!codes && !named && !has_expression(list))
      throw Error(where_it_is + ": stored as " + weight.entry->info->dtype +
                  ", but config.json does not exclude it in \"" + list.key + "\"");
  }
}

}  // namespace

FolderTensors tensors_of(const Folder& folder) {
  FolderTensors tensors;
  const bool quantized = !folder.quantization_config().is_null();
  QuantizationConfig config;
  if (quantized) config = parse_quantization_config(folder.quantization_config(), folder.path() + "/config.json");
  const bool fp4 = quantized && config.layout == ScaleLayout::group;
  std::vector<const Folder::Entry*> scales;
  for (const Folder::Entry& entry : folder.tensors()) {
    const std::string& name = entry.info->name;
    if (quantized && (ends_with_any(name, kScaleSuffixes) || (fp4 && name.ends_with(kGlobalScale)))) {
      scales.push_back(&entry);
    } else if (quantized && ends_with_any(name, kActivationSuffixes)) {
      ++tensors.activation_scales;
    } else {
      const FolderWeight weight = weight_of(folder, entry, fp4);
      const bool codes = quantized && weight.format == (fp4 ? DType::e2m1 : DType::e4m3);
      tensors.weights.push_back(weight);
      if (quantized) check_excluded(folder, weight, codes, config);
      if (codes) tensors.codes.emplace(weight.name, codes_of(folder, weight, config));
    }
  }
  std::ranges::sort(tensors.weights, {}, &FolderWeight::name);
  const auto twice = std::ranges::adjacent_find(tensors.weights, {}, &FolderWeight::name);
  if (twice != tensors.weights.end())
    throw Error(where(folder, *twice->entry) + ": stored twice, with and without codes");
  for (const Folder::Entry* entry : scales) {
    const auto codes = tensors.codes.find(std::string(module_of(entry->info->name)) + std::string(kWeight));
    if (codes == tensors.codes.end() || (codes->second.scales != entry && codes->second.global != entry))
      throw Error(where(folder, *entry) + ": scales without codes");
  }
  if (quantized && tensors.codes.empty())
    throw Error(folder.path() + ": config.json has a quantization_config, but no weight is stored as codes");
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

std::pair<std::vector<std::byte>, float> read_fp4_scales(const Folder& folder, const Codes& codes) {
  float scale = 0;
  folder.read_rows_f32(*codes.global, 0, 1, std::span(&scale, 1));
  if (!(scale > 0) || !std::isfinite(scale))
    throw Error(where(folder, *codes.global) + ": the scale of the tensor is " + format_short(scale, 6));
  if (!std::isfinite(dtype::kFp4Range / scale))
    throw Error(where(folder, *codes.global) + ": the scale of the tensor is " + format_short(scale, 6) +
                ", for which the amax, 2688 over the scale, is not finite in f32");
  std::vector<std::byte> scales(static_cast<std::size_t>(codes.scales->info->elements()));
  folder.read_rows(*codes.scales, 0, codes.scales->info->shape.front(), scales);
  if (scale == 1 && std::ranges::all_of(scales, [](std::byte b) { return b == std::byte{0}; })) return {scales, 0.0F};
  const float nearest = dtype::kFp4Range / scale, rounded = dtype::to_float(dtype::to_bf16(nearest));
  for (const float amax : {rounded, nearest, std::nextafter(nearest, 0.0F), std::nextafter(nearest, INFINITY)})
    if (dtype::fp4_scale(amax) == scale) return {std::move(scales), amax};
  return {std::move(scales), nearest};
}

}  // namespace fp8::hf
