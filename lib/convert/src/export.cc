// Export: each parameter becomes one tensor, or codes and scales; tensors are distributed over files in order, then
// written in pieces.
#include "fp8/convert/export.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "export_template.h"
#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/folders.h"
#include "fp8/base/round.h"
#include "fp8/ckpt/writer.h"
#include "fp8/convert/open.h"
#include "fp8/convert/stored_weight.h"
#include "fp8/dtype/e2m1.h"
#include "fp8/hf/adapter.h"
#include "fp8/hf/export.h"
#include "fp8/hf/safetensors.h"
#include "fp8/hf/tokenizer.h"
#include "fp8/json/json.h"
#include "fp8/quant/fp4.h"

namespace fp8::convert {
namespace {

using dtype::DType;

constexpr const char* kGenerationConfig = "generation_config.json";

// How a weight becomes tensors.
enum class Way : std::uint8_t { copy, dequantize, quantize, keep_codes };

struct Entry {
  const model::Parameter* parameter;
  Way way;
  std::vector<hf::TensorSpec> tensors;  // the weight; scales after codes
  std::size_t file = 0;                 // number of its file
  std::optional<float> amax{};          // NVFP4: the largest amax of linears that servers compute as one
};

std::vector<std::int64_t> block_grid(const model::Parameter& p) {
  return {divide_up(p.rows(), hf::kQuantizationBlock), divide_up(p.cols(), hf::kQuantizationBlock)};
}

// Throws unless the format can hold what the model has.
void check_adapters(const std::string& path, const hf::ModelConfig& config, ExportFormat format) {
  if (format == ExportFormat::peft && !config.lora) throw Error(path + ": has no LoRA adapters to export");
  if (format != ExportFormat::peft && config.lora)
    throw Error(path + ": holds LoRA adapters; merge them first: fp8-convert " + path + " --merge-lora -o merged.h5",
                {{"format", "peft for the adapters alone"}});
}

// Throws unless the codes of a weight, with their scales, can stand in a folder of that format.
void check_codes_fit(const OpenModel& model, const model::Parameter& p, ExportFormat format) {
  const std::string name = model.source.path() + ": /" + stored_name(p);
  const DType type = model.source.at(stored_name(p)).dtype;
  if (dtype::is_fp4(type) != (format == ExportFormat::nvfp4)) {
    if (dtype::is_fp4(type)) throw Error(name + ": FP4 codes", {{"format", "nvfp4"}});
    throw Error(name + ": FP8 codes, not those of FP4; dequantize it first: fp8-quantize " + model.source.path() +
                " --dequantize -o model.h5");
  }
  if (dtype::is_fp4(type)) return;
  if (type != DType::e4m3)
    throw Error(name + ": E5M2 codes, which servers do not load; export in bf16, or quantize to E4M3");
  const std::vector<std::int64_t>& shape = model.source.at(std::string(ckpt::kScales) + p.name).shape;
  const bool one = shape == std::vector<std::int64_t>{1}, rows = shape == std::vector{p.rows()};
  if (!one && !rows && shape != block_grid(p))
    throw Error(name + ": its scales are for blocks that servers do not load", {{"format", "bf16"}});
  if (format == ExportFormat::fp8 && !one && shape != block_grid(p))
    throw Error(name + ": its scales are not per tensor or per block of 128 x 128", {{"format", "compressed-tensors"}});
  if (format == ExportFormat::compressed_tensors && !one && !rows)
    throw Error(name + ": its scales are not per tensor or per row", {{"format", "fp8"}});
}

bool quantizes(ExportFormat format) { return format != ExportFormat::bf16 && format != ExportFormat::peft; }

Way way_of(const OpenModel& model, const model::Parameter& p, ExportFormat format) {
  const bool linear = p.role == model::ParameterRole::linear;
  if (is_codes(model.source, p)) {
    if (format == ExportFormat::bf16 || !linear) return Way::dequantize;
    check_codes_fit(model, p, format);
    return Way::keep_codes;
  }
  return quantizes(format) && linear && p.fp8 && !holds_codes(model.source) ? Way::quantize : Way::copy;
}

// The tensors of one parameter; the first is the weight or its codes.
std::vector<hf::TensorSpec> tensors_of(const model::Parameter& p, Way way, ExportFormat format) {
  if (format == ExportFormat::peft) return {{std::string(hf::kAdapterPrefix) + p.name, DType::f32, p.shape}};
  if (way == Way::copy || way == Way::dequantize) return {{p.name, DType::bf16, p.shape}};
  if (format == ExportFormat::fp8)
    return {{p.name, DType::e4m3, p.shape}, {p.name + "_scale_inv", DType::f32, block_grid(p)}};
  if (format == ExportFormat::nvfp4)
    return {{p.name + "_packed", DType::u8, {p.rows(), p.cols() / dtype::packed(DType::e2m1)}},
            {p.name + "_scale", DType::e4m3, {p.rows(), divide_up(p.cols(), hf::kFp4Group)}},
            {p.name + "_global_scale", DType::f32, {1}}};
  return {{p.name, DType::e4m3, p.shape}, {p.name + "_scale", DType::f32, {p.rows(), 1}}};
}

std::uint64_t bytes_of(const std::vector<hf::TensorSpec>& tensors) {
  std::uint64_t bytes = 0;
  for (const hf::TensorSpec& t : tensors) {
    const auto elements = static_cast<std::uint64_t>(checked_product(t.shape, t.name));
    bytes = checked_add(bytes, checked_mul(elements, std::uint64_t{dtype::size_of(t.dtype)}, t.name), t.name);
  }
  return bytes;
}

// Every parameter with its tensors and the number of its file.
std::vector<Entry> plan(const OpenModel& model, const ExportOptions& options) {
  std::vector<Entry> entries;
  std::uint64_t in_file = 0;
  bool any = !quantizes(options.format);
  const bool one_file = options.format == ExportFormat::peft;
  for (const model::Parameter& p : model.table) {
    const Way way = way_of(model, p, options.format);
    Entry entry{&p, way, tensors_of(p, way, options.format), entries.empty() ? 0 : entries.back().file};
    const std::uint64_t bytes = bytes_of(entry.tensors);
    if (!one_file && in_file != 0 && in_file + bytes > options.file_bytes) {
      ++entry.file;
      in_file = 0;
    }
    in_file += bytes;
    any = any || way == Way::quantize || way == Way::keep_codes;
    entries.push_back(std::move(entry));
  }
  if (!any)
    throw Error(model.source.path() + ": no linear has compute precision fp8, so none can be exported in FP8 or FP4");
  return entries;
}

bool is_kept(const Entry& e) {
  return (e.parameter->matmul() || e.parameter->role == model::ParameterRole::router) && e.tensors.size() == 1;
}

std::string module_of(const Entry& e) { return e.parameter->name.substr(0, e.parameter->name.rfind(".weight")); }

// Unit, slot and expert of linears that belong together.
using GroupKey = std::tuple<int, model::Slot, int>;

// Linears with the same key, in the order of the keys; those without one are left out.
template <class Entries, class KeyOf>
auto grouped_linears(Entries& entries, KeyOf key_of) {
  using Group = std::vector<decltype(&entries.front())>;
  std::map<GroupKey, Group> groups;
  for (auto& e : entries)
    if (e.parameter->role == model::ParameterRole::linear)
      if (const std::optional<GroupKey> key = key_of(e)) groups[*key].push_back(&e);
  std::vector<Group> all;
  for (auto& [key, group] : groups) all.push_back(std::move(group));
  return all;
}

// Linears that servers compute as one: q, k, v; gate, up; all experts, of each layer, in order.
std::vector<std::vector<const Entry*>> merged_projections(const std::vector<Entry>& entries) {
  using model::Slot;
  return grouped_linears(entries, [](const Entry& e) -> std::optional<GroupKey> {
    const model::Parameter& p = *e.parameter;
    if (p.expert >= 0) return GroupKey{p.unit, Slot::experts_gate_up, -1};
    if (p.slot == Slot::qkv || p.slot == Slot::gate_up) return GroupKey{p.unit, p.slot, -1};
    return std::nullopt;
  });
}

// The names under which servers look for a merged matrix whose first part is `first`. vLLM asks for the parts of the
// first expert by the names of Qwen, whatever those in the folder are, and transformers 5 has the experts of every
// family in a module `mlp`.
std::vector<std::string> merged_names(const model::Parameter& first, const std::string& module) {
  const std::string parent = module.substr(0, module.rfind('.'));
  if (first.slot == model::Slot::qkv) return {parent + ".qkv_proj"};
  if (first.slot == model::Slot::gate_up) return {parent + ".gate_up_proj"};
  const std::string experts = parent.substr(0, parent.rfind('.')), block = experts.substr(0, experts.rfind('.'));
  const hf::ExpertNames qwen = hf::expert_names(hf::Family::qwen3_moe);
  std::vector<std::string> names{experts};
  if (block.ends_with("." + std::string(qwen.block))) return names;
  names.push_back(block.substr(0, block.rfind('.') + 1) + qwen.block + ".experts");
  for (const char* part : {qwen.gate, qwen.up, qwen.down}) names.push_back(parent + "." + part);
  return names;
}

// Full names of the linear modules and routers that stay in bf16. SGLang looks for the name of a merged matrix,
// and vLLM for the names of its parts.
std::vector<std::string> kept_modules(const OpenModel& model, const std::vector<Entry>& entries) {
  std::vector<std::string> kept;
  for (const Entry& e : entries)
    if (is_kept(e)) kept.push_back(module_of(e));
  for (const std::vector<const Entry*>& group : merged_projections(entries)) {
    if (!std::all_of(group.begin(), group.end(), [](const Entry* e) { return is_kept(*e); })) continue;
    const std::vector<std::string> names = merged_names(*group.front()->parameter, module_of(*group.front()));
    kept.insert(kept.end(), names.begin(), names.end());
  }
  if (model.config.tie_word_embeddings) kept.emplace_back("lm_head");
  return kept;
}

json::Value config_json(const OpenModel& model, const std::vector<Entry>& entries, ExportFormat format) {
  json::Value config = model::config_with_dtype(model.config, DType::bf16);
  hf::add_version_4_keys(config.as_object());
  config.as_object().erase("quantization_config");
  if (quantizes(format)) {
    const std::vector<std::string> kept = kept_modules(model, entries);
    config.as_object().set("quantization_config", format == ExportFormat::fp8     ? hf::block_quantization(kept)
                                                  : format == ExportFormat::nvfp4 ? hf::group_quantization(kept)
                                                                                  : hf::channel_quantization(kept));
  }
  return config;
}

// Writes the scales of FP8 codes in the layout of the format.
void write_factors(std::vector<float> factors, const hf::TensorSpec& spec, hf::SafetensorsWriter& writer) {
  const auto count = static_cast<std::size_t>(checked_product(spec.shape, spec.name));
  if (factors.size() == 1) factors.resize(count, factors.front());
  writer.begin(spec.name);
  writer.write(std::as_bytes(std::span(factors)));
}

// Writes the scales of FP4 codes: those of a block of 16 x 16 once for each of its rows, then that of the tensor.
void write_fp4_scales(const StoredScales& scales, const std::vector<hf::TensorSpec>& tensors,
                      hf::SafetensorsWriter& writer) {
  const hf::TensorSpec &of_rows = tensors[1], &of_tensor = tensors[2];
  const auto cols = static_cast<std::size_t>(of_rows.shape[1]);
  writer.begin(of_rows.name);
  for (std::int64_t r = 0; r < of_rows.shape[0]; ++r)
    writer.write(std::span(scales.bytes).subspan(static_cast<std::size_t>(r / quant::kFp4Block) * cols, cols));
  const float scale = dtype::fp4_scale(scales.amax);
  writer.begin(of_tensor.name);
  writer.write(std::as_bytes(std::span(&scale, 1)));
}

// How a weight is cast for the format.
CastRule rule_of(const Entry& entry, ExportFormat format) {
  if (format == ExportFormat::nvfp4)
    return {.format = DType::e2m1, .scaling = quant::Granularity::block16x16, .amax = entry.amax, .losses = false};
  const bool rows = format == ExportFormat::compressed_tensors;
  return {.scaling = rows ? quant::Granularity::row : quant::Granularity::block128x128, .losses = false};
}

void write_entry(const OpenModel& model, const Entry& entry, ExportFormat format, hf::SafetensorsWriter& writer) {
  const model::Parameter& p = *entry.parameter;
  const StoredMatrix x = stored_matrix(model.source, p);
  const WriteBytes write = [&](std::span<const std::byte> bytes) { writer.write(bytes); };
  writer.begin(entry.tensors.front().name);
  if (entry.way == Way::copy) return write_as(x, entry.tensors.front().dtype, write);
  if (entry.way == Way::dequantize)
    return uncast_matrix(x, read_scales(model.source, p.name), grid_of(model.source, p), DType::bf16, write);
  CastResult cast;
  if (entry.way == Way::quantize) {
    cast = cast_matrix(x, rule_of(entry, format), write);
  } else {
    for_pieces(x, [&](std::int64_t, std::int64_t, std::span<const std::byte> bytes) { write(bytes); });
    cast.inverse_scales = read_scales(model.source, p.name);
    cast.scales = stored_scales(model.source, p.name);
  }
  if (format == ExportFormat::nvfp4) return write_fp4_scales(cast.scales, entry.tensors, writer);
  write_factors(std::move(cast.inverse_scales), entry.tensors.back(), writer);
}

void write_text(const std::string& path, std::string_view text) {
  File file = File::create_exclusive(path);
  file.write_all(text);
  file.sync();
  file.close();
}

// The ids of tokens in the text of a tokenizer.json.
std::vector<std::int64_t> ids_of(const std::vector<std::string>& tokens, const std::optional<std::string>& tokenizer,
                                 const std::string& path) {
  std::vector<std::int64_t> ids;
  if (tokens.empty()) return ids;
  if (!tokenizer) throw Error(path + ": has no tokenizer.json, so the id of " + tokens.front() + " is unknown");
  const std::string what = path + ": /tokenizer";
  (void)hf::parse_tokenizer_identity(*tokenizer, what);  // checks the parts that are read below
  const json::Value parsed = json::parse(*tokenizer, what, {.max_depth = 64, .max_bytes = hf::kMaxTokenizerBytes});
  for (const std::string& token : tokens) {
    const std::optional<std::int64_t> id = hf::token_id(parsed, token);
    if (!id) throw Error(what + ": has no token " + token);
    ids.push_back(*id);
  }
  return ids;
}

// Name of file `index` of `count` files of weights.
std::string file_name(ExportFormat format, std::size_t index, std::size_t count) {
  return format == ExportFormat::peft ? hf::kAdapterTensors : hf::shard_name(index, count);
}

// The files of the folder besides the weights, by name: those `stored` beside the tokenizer, and new ones.
std::map<std::string, std::string> texts_of(const OpenModel& model, const std::vector<Entry>& entries,
                                            const std::map<std::string, std::string>& stored,
                                            const ExportOptions& options, ExportReport& report) {
  const bool peft = options.format == ExportFormat::peft;
  std::map<std::string, std::string> texts;
  const auto add = [&](const char* name, const json::Value& value) { texts[name] = json::dump(value, 2) + "\n"; };
  const auto stored_at = [&](const char* name) { return model.source.path() + ": /huggingface/" + name; };
  if (peft) {
    add(hf::kAdapterConfig, hf::adapter_config(model.config));
  } else {
    add("config.json", config_json(model, entries, options.format));
  }
  std::optional<std::string> tokenizer = model.source.tokenizer();
  const std::vector<std::int64_t> ends = ids_of(options.end_tokens, tokenizer, model.source.path());
  json::Value generation;
  for (const auto& [name, text] : stored) {
    if (name == kGenerationConfig) {
      generation = json::parse(text, stored_at(kGenerationConfig));
    } else {
      texts.try_emplace(name, text);
    }
  }
  generation = hf::generation_config(model.config, generation, ends, stored_at(kGenerationConfig));
  add(kGenerationConfig, generation);
  if (tokenizer) {
    texts["tokenizer.json"] = std::move(*tokenizer);
    if (!generation.as_object().contains("eos_token_id"))
      report.notes.emplace_back(
          "no token ends a text: neither the model nor --template has one, so that generated "
          "texts go on to the limit of their length");
  } else {
    report.notes.emplace_back("the checkpoint has no tokenizer.json, so the folder has none");
  }
  if (entries.back().file > 0) {
    std::map<std::string, std::string> file_of;
    for (const ExportedTensor& t : report.tensors) file_of[t.name] = t.file;
    add("model.safetensors.index.json", hf::shard_index(file_of, report.bytes));
  }
  return texts;
}

void write_weights(const OpenModel& model, const std::vector<Entry>& entries, const std::string& folder,
                   const ExportOptions& options) {
  const std::size_t files = entries.back().file + 1;
  std::size_t next = 0;
  for (std::size_t file = 0; file < files; ++file) {
    std::vector<hf::TensorSpec> specs;
    for (const Entry& e : entries)
      if (e.file == file) specs.insert(specs.end(), e.tensors.begin(), e.tensors.end());
    hf::SafetensorsWriter writer(folder + "/" + file_name(options.format, file, files), std::move(specs));
    for (; next < entries.size() && entries[next].file == file; ++next) {
      if (options.progress) options.progress(entries[next].parameter->name, next, entries.size());
      write_entry(model, entries[next], options.format, writer);
    }
    writer.finish();
  }
}

std::string origin_of(const OpenModel& model, const Entry& entry, std::size_t tensor) {
  if (tensor > 0) return "scales";
  switch (entry.way) {
    case Way::copy:
      return model.source.at(stored_name(*entry.parameter)).dtype == entry.tensors.front().dtype ? "copied" : "rounded";
    case Way::dequantize:
      return "dequantized";
    case Way::quantize:
      return "quantized";
    case Way::keep_codes:
      return "codes kept";
  }
  return {};
}

// Numbers, ascending: "{0-2,5}", or "0" for one.
std::string numbers_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (last > i) text += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text.find_first_of(",-") == std::string::npos ? text : "{" + text + "}";
}

// Weights whose names differ in the numbers of their layers and experts.
struct Kind {
  std::string text;  // with '\n' for the layer and '\t' for the expert
  std::vector<int> experts, layers;
  std::string filled() const {
    std::string out = text;
    for (const auto& [gap, numbers] : {std::pair{'\n', &layers}, {'\t', &experts}})
      if (const std::size_t at = out.find(gap); at != std::string::npos) out.replace(at, 1, numbers_text(*numbers));
    return out;
  }
};

// The kinds of weights of a list, first those of one layer, then of layers with the same experts.
std::vector<Kind> kinds_of(const std::vector<const model::Parameter*>& weights, bool shapes) {
  std::vector<Kind> of_layers, kinds;
  std::map<std::pair<std::string, int>, std::size_t> index;
  for (const model::Parameter* p : weights) {
    std::string text = p->name;
    const auto leave_gap = [&](int number, const std::string& before, const char* gap) {
      const std::string part = before + std::to_string(number) + ".";
      if (const std::size_t at = text.find(part); at != std::string::npos)
        text.replace(at + before.size(), part.size() - before.size() - 1, gap);
    };
    leave_gap(p->unit - 1, ".layers.", "\n");
    if (p->expert >= 0) leave_gap(p->expert, ".experts.", "\t");
    if (shapes) text += " [" + std::to_string(p->rows()) + ", " + std::to_string(p->cols()) + "]";
    const auto [at, fresh] = index.try_emplace({text, p->unit}, of_layers.size());
    if (fresh) of_layers.push_back({text, {}, {p->unit - 1}});
    if (p->expert >= 0) of_layers[at->second].experts.push_back(p->expert);
  }
  for (Kind& kind : of_layers) {
    const auto same =
        std::ranges::find_if(kinds, [&](const Kind& k) { return k.text == kind.text && k.experts == kind.experts; });
    if (same == kinds.end())
      kinds.push_back(std::move(kind));
    else
      same->layers.push_back(kind.layers.front());
  }
  return kinds;
}

// All weights of a list, with their shapes if `shapes`. Those that differ in the numbers of the layer and of the expert
// have one name: "model.layers.{0-2,5}.mlp.up_proj.weight [176, 64] and model.layers.0.mlp.down_proj.weight [64, 176]".
std::string text_of(const std::vector<const model::Parameter*>& weights, bool shapes) {
  const std::vector<Kind> kinds = kinds_of(weights, shapes);
  std::string list;
  for (std::size_t i = 0; i < kinds.size(); ++i)
    list += (i == 0 ? "" : i + 1 < kinds.size() ? ", " : " and ") + kinds[i].filled();
  return list;
}

// Linears that servers compute as one matrix, with one scale of the tensor: q, k and v; gate and up of an MLP or
// expert.
std::vector<std::vector<Entry*>> fused_linears(std::vector<Entry>& entries) {
  using model::Slot;
  return grouped_linears(entries, [](const Entry& e) -> std::optional<GroupKey> {
    const model::Parameter& p = *e.parameter;
    const bool fused = p.slot == Slot::qkv || p.slot == Slot::gate_up || p.slot == Slot::experts_gate_up;
    return fused && e.tensors.size() > 1 ? std::optional(GroupKey{p.unit, p.slot, p.expert}) : std::nullopt;
  });
}

// Gives linears that servers compute as one the same amax. Those of codes that are kept stay, and are noted where
// they differ: vLLM and SGLang take the largest scale of the tensors for all of them.
void share_amaxes(const OpenModel& model, std::vector<Entry>& entries, ExportReport& report) {
  std::vector<const model::Parameter*> differ;
  for (const std::vector<Entry*>& group : fused_linears(entries)) {
    std::vector<float> amaxes;
    for (const Entry* e : group)
      amaxes.push_back(e->way == Way::quantize ? amax_of(stored_matrix(model.source, *e->parameter))
                                               : stored_scales(model.source, e->parameter->name).amax);
    const bool same =
        std::ranges::all_of(amaxes, [&](float a) { return dtype::fp4_scale(a) == dtype::fp4_scale(amaxes.front()); });
    for (Entry* e : group) {
      if (!same && e->way == Way::keep_codes) differ.push_back(e->parameter);
      e->amax = std::ranges::max(amaxes);
    }
  }
  if (differ.empty()) return;
  report.notes.push_back(text_of(differ, false) +
                         " have codes under different scales of the tensor; vLLM and SGLang compute them as one matrix "
                         "under one of these, and read other values; an export of the model that was quantized gives "
                         "them one scale");
}

// Linears that servers compute as one must have one precision.
void warn_of_mixed_projections(const std::vector<Entry>& entries, ExportReport& report) {
  std::vector<const model::Parameter*> mixed;
  for (const std::vector<const Entry*>& group : merged_projections(entries))
    if (!std::ranges::all_of(group, [&](const Entry* e) { return e->tensors.size() == group.front()->tensors.size(); }))
      for (const Entry* e : group) mixed.push_back(e->parameter);
  if (mixed.empty()) return;
  report.warnings.push_back(text_of(mixed, false) +
                            " differ in precision; vLLM and SGLang compute them as one matrix and refuse that");
}

// vLLM and SGLang refuse a block that spans two parts of a merged matrix, and quantize activations in groups of 128
// columns; transformers, where it dequantizes, divides a weight into as many equal blocks as there are scales.
void warn_of_partial_blocks(const std::vector<Entry>& entries, ExportReport& report) {
  std::vector<const model::Parameter*> partial;
  for (const Entry& e : entries) {
    const model::Parameter& p = *e.parameter;
    if (e.tensors.size() > 1 && (p.rows() % hf::kQuantizationBlock != 0 || p.cols() % hf::kQuantizationBlock != 0))
      partial.push_back(&p);
  }
  if (partial.empty()) return;
  report.warnings.push_back(text_of(partial, true) + (partial.size() == 1 ? ": does not consist" : ": do not consist") +
                            " of whole blocks of 128 x 128: vLLM and SGLang refuse that, and transformers dequantizes "
                            "to other values; --format compressed-tensors has no blocks");
}

// PEFT computes the experts of a layer as one tensor for gate and up and one for down, and takes every module
// with the name of a linear of an expert for one. Source: PEFT 0.21, utils/transformers_weight_conversion.py.
void warn_of_split_adapters(const OpenModel& model, ExportReport& report) {
  if (!model.config.experts) return;
  // Adapters of experts in each layer, on gate or up and on down.
  std::map<int, std::array<std::int64_t, 2>> experts;
  std::vector<const model::Parameter*> dense;
  for (const model::Parameter& p : model.table) {
    if (p.slot == model::Slot::experts_gate_up_a) ++experts[p.unit][0];
    if (p.slot == model::Slot::experts_down_a) ++experts[p.unit][1];
    if (p.slot == model::Slot::gate_up_a || p.slot == model::Slot::down_a) dense.push_back(&p);
  }
  const std::int64_t all = model.config.experts->count;
  const bool whole = std::ranges::all_of(experts, [&](const auto& layer) {
    const auto& [gate_up, down] = layer.second;
    return (gate_up == 0 || gate_up == 2 * all) && (down == 0 || down == all);
  });
  if (!whole)
    report.warnings.emplace_back(
        "adapters are on some experts of a layer, or on gate without up: PEFT loads those of all experts of a layer, "
        "gate and up together");
  const auto any = [&](std::size_t kind) {
    return std::ranges::any_of(experts, [&](const auto& layer) { return layer.second[kind] > 0; });
  };
  if (any(0) && !any(1))
    report.warnings.emplace_back("adapters of experts are on gate or up and on no down: PEFT drops them silently");
  if (!dense.empty())
    report.warnings.push_back(text_of(dense, false) + ": PEFT takes " + (dense.size() == 1 ? "it" : "them") +
                              " for adapters of experts, and loads none of a layer without experts");
}

// The configuration of LLaMA models in transformers 5 (LlamaConfig.validate_architecture) refuses such sizes, although
// head_dim is given; configurations of the other families do not.
void warn_of_head_sizes(const hf::ModelConfig& config, ExportReport& report) {
  if (config.family != hf::Family::llama || config.hidden_size % config.num_attention_heads == 0) return;
  report.warnings.push_back("hidden_size " + std::to_string(config.hidden_size) +
                            " is not a multiple of num_attention_heads " + std::to_string(config.num_attention_heads) +
                            ": transformers refuses LLaMA models of such sizes");
}

// Throws for what servers refuse, unless that is to be written.
void check_servers(const ExportOptions& options, const ExportReport& report) {
  if (!options.strict || report.warnings.empty()) return;
  std::string all;
  for (const std::string& warning : report.warnings) all += (all.empty() ? "" : "; ") + warning;
  throw Error(all, Exit::no, {{"any-server", "to write it all the same"}});
}

// Throws unless a folder that is to be replaced holds only files that an export writes.
void check_replaceable(const std::string& path) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.ends_with(".safetensors") || name.ends_with(".json") || name.ends_with(".jinja");
    if (!ours || !entry.is_regular_file(error))
      throw Error(path + ": holds " + name + ", which no export writes; remove the folder, or choose another");
  }
}

}  // namespace

ExportReport export_folder(const std::string& source, const std::string& output, const ExportOptions& asked) {
  OpenModel model = open_model(source);
  check_adapters(model.source.path(), model.config, asked.format);
  ExportReport report;
  std::map<std::string, std::string> stored = model.source.huggingface();
  const ExportOptions options = with_template(asked, model, stored, report);
  if (options.format == ExportFormat::peft)
    std::erase_if(model.table, [](const model::Parameter& p) { return p.role != model::ParameterRole::adapter; });
  std::vector<Entry> entries = plan(model, options);
  const std::size_t files = entries.back().file + 1;
  report.source = model.source.path();
  for (const std::string& message : model.source.passed_over()) report.notes.push_back(message);
  for (const Entry& e : entries) {
    report.bytes = checked_add(report.bytes, bytes_of(e.tensors), source);
    for (std::size_t t = 0; t < e.tensors.size(); ++t)
      report.tensors.push_back({e.tensors[t].name, e.tensors[t].shape, e.tensors[t].dtype,
                                file_name(options.format, e.file, files), origin_of(model, e, t)});
  }
  if (options.format == ExportFormat::peft) warn_of_split_adapters(model, report);
  if (options.format != ExportFormat::peft) warn_of_head_sizes(model.config, report);
  if (quantizes(options.format)) warn_of_mixed_projections(entries, report);
  if (options.format == ExportFormat::fp8) warn_of_partial_blocks(entries, report);
  if (options.format == ExportFormat::nvfp4) share_amaxes(model, entries, report);
  check_servers(options, report);
  const std::map<std::string, std::string> texts = texts_of(model, entries, stored, options, report);
  for (std::size_t file = 0; file < files; ++file) report.files.push_back(file_name(options.format, file, files));
  for (const auto& [name, text] : texts) report.files.push_back(name);
  std::vector<std::string> inputs = options.inputs;
  inputs.push_back(model.source.path());
  check_not_input(output, inputs);
  check_not_of_run(output);
  if (options.force) check_replaceable(output);
  AtomicFolder folder(output, options.force);
  ckpt::check_space(folder.path(), report.bytes);
  if (options.dry_run) return report;
  for (const auto& [name, text] : texts) write_text(folder.path() + "/" + name, text);
  write_weights(model, entries, folder.path(), options);
  for (std::size_t file = 0; file < files; ++file)  // the files that were written can be read
    (void)hf::SafetensorsFile(folder.path() + "/" + file_name(options.format, file, files));
  folder.commit();
  return report;
}

}  // namespace fp8::convert
