// Conversion: names and shapes are checked first, then tensors are copied from the source into one checkpoint.
#include "fp8/convert/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/ckpt/writer.h"
#include "fp8/convert/stored_weight.h"
#include "fp8/dtype/convert.h"
#include "fp8/dtype/element.h"
#include "fp8/hf/tokenizer.h"
#include "fp8/model/checkpoint.h"
#include "fp8/model/output.h"
#include "fp8/token/tokenizer.h"
#include "merge_lora.h"
#include "pad.h"
#include "source.h"

namespace fp8::convert {
namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kEmbedding = "model.embed_tokens.weight";

// Buffers that old releases of transformers saved; they are computed from the configuration.
bool is_derived(const std::string& name) { return name.ends_with(".rotary_emb.inv_freq"); }

std::int64_t rows_of(const std::vector<std::int64_t>& shape) { return shape.empty() ? 1 : shape.front(); }

std::int64_t cols_of(const std::vector<std::int64_t>& shape) { return shape.size() < 2 ? 1 : shape[1]; }

// Some folders of tied models also store the head: it must equal the embedding.
void check_tied_head(const Source& source) {
  const SourceTensor* head = source.find(kHead);
  const SourceTensor* embedding = source.find(kEmbedding);
  if (head == nullptr || embedding == nullptr || head->shape != embedding->shape) return;
  std::vector<std::byte> a, b;
  RowReader read_head(source, *head, dtype::DType::f32), read_embedding(source, *embedding, dtype::DType::f32);
  for_pieces(rows_of(head->shape), cols_of(head->shape), [&](std::int64_t begin, std::int64_t end) {
    a.resize(static_cast<std::size_t>((end - begin) * cols_of(head->shape)) * sizeof(float));
    b.resize(a.size());
    read_head.read(begin, end, a);
    read_embedding.read(begin, end, b);
    if (std::memcmp(a.data(), b.data(), a.size()) != 0) {
      throw Error(source.path() + ": lm_head.weight differs from the embedding, though tie_word_embeddings is true");
    }
  });
}

// The names that must match the model: all except droppable ones.
std::vector<std::string> needed_names(const Source& source) {
  std::vector<std::string> names;
  const SourceTensor* embedding = source.find(kEmbedding);
  for (const SourceTensor& t : source.tensors()) {
    const bool tied_head =
        t.name == kHead && source.config().tie_word_embeddings && embedding != nullptr && embedding->shape == t.shape;
    if (!tied_head && !is_derived(t.name)) names.push_back(t.name);
  }
  return names;
}

// Throws unless weights can be converted from the tensor's format.
void check_format(const Source& source, const SourceTensor& t) {
  using dtype::DType;
  if (t.format == DType::f32 || t.format == DType::bf16 || t.format == DType::f16 || t.codes()) return;
  throw Error(source.path() + ": " + t.name + ": stored as " + t.format_name + "; weights must be f32, bf16 or f16");
}

void check_source(const Source& source, const std::vector<model::Parameter>& table, const ConvertOptions& options) {
  if (const ckpt::Checkpoint* c = source.checkpoint()) {
    if (c->kind() == ckpt::FileKind::quantized && !options.merge_lora) {
      throw Error(source.path() + ": quantized; dequantize it with fp8-quantize first");
    }
    if (c->world() > 1 && !options.merge && !options.weights_only && !options.merge_lora) {
      throw Error(source.path() + ": sharded over " + std::to_string(c->world()) + " files",
                  {{"merge", "for one file"}, {"weights-only", ""}});
    }
  }
  model::check_tensors(source.path(), table, needed_names(source), [&](const std::string& name) {
    const SourceTensor* t = source.find(name);
    return t == nullptr ? nullptr : &t->shape;
  });
  for (const model::Parameter& p : table) check_format(source, *source.find(p.name));
  if (source.config().tie_word_embeddings) check_tied_head(source);
  if (options.merge_lora && !source.config().lora)
    throw Error(source.path() + ": has no LoRA adapters, so there is nothing to merge");
  if (options.pad && source.config().lora && !options.merge_lora)
    throw Error(source.path() + ": its LoRA adapters are not padded", {{"merge-lora", "to merge them too"}});
}

bool has_codes(const Source& source) {
  return std::any_of(source.tensors().begin(), source.tensors().end(), [](const SourceTensor& t) { return t.codes(); });
}

// Throws where an option would change codes that are kept, or asks for codes that do not exist, and for codes that are
// kept of a weight, such as a router, that no tool reads as codes.
void check_codes(const Source& source, const std::vector<model::Parameter>& table, const ConvertOptions& options) {
  if (!has_codes(source)) {
    if (options.dequantize) throw Error(source.path() + ": has no codes, so there is nothing to dequantize");
    return;
  }
  if (options.dequantize) return;
  const auto refuse = [&](const std::string& what) {
    throw Error(source.path() + ": holds codes, which are kept; " + what, {{"dequantize", ""}});
  };
  if (options.dtype) refuse("they have no other format");
  if (options.pad) refuse("they are not padded");
  if (options.precisions) refuse("they determine which linears are FP8");
  for (const model::Parameter& p : table)
    if (p.role != model::ParameterRole::linear && source.find(p.name)->codes())
      refuse("those of " + p.name + " are of no linear of a layer");
}

// The compute precisions of a folder with FP8 codes: FP8 where a linear is codes.
void follow_codes(const Source& source, std::vector<model::Parameter>& table) {
  for (model::Parameter& p : table) {
    const bool codes = source.find(p.name)->codes();
    if (p.fp8 && !codes) p.reason = "not quantized in the folder";
    if (codes && model::aligned(p.shape)) p.reason.clear();
    p.fp8 = p.reason.empty();
  }
}

// The granularity of the scales of codes in the output.
quant::Granularity scaling_of(const SourceTensor& tensor) {
  if (dtype::is_fp4(*tensor.format)) return quant::Granularity::block16x16;
  return *find_granularity(tensor.scales_type, tensor.scales_shape, tensor.shape);
}

// The name of that granularity.
const char* scaling_text(const SourceTensor& tensor) {
  if (dtype::is_fp4(*tensor.format)) return "nvfp4";
  if (tensor.scales_shape.size() == 2) return "block";
  return tensor.scales_shape.front() == tensor.shape.front() ? "row" : "tensor";
}

// The conversion of a source.
struct Plan {
  ckpt::FileKind kind = ckpt::FileKind::model;  // kind of the output
  hf::ModelConfig config;                       // configuration of the output
  std::vector<model::Parameter> table;          // parameters of the output
  std::vector<PaddedSize> padded_sizes;         // sizes in which the configurations differ

  bool training() const { return kind == ckpt::FileKind::training; }
};

// The weights of the output with their compute precisions.
std::vector<model::Parameter> table_with_precisions(const Source& source, const hf::ModelConfig& config,
                                                    const ConvertOptions& options) {
  std::vector<model::Parameter> table = model::parameter_table(config);
  if (options.precisions) {
    model::assign_precisions(table, *options.precisions);
  } else if (source.checkpoint() != nullptr) {
    const std::vector<model::Parameter> fresh = table;
    model::read_precisions(*source.checkpoint(), table);
    for (std::size_t i = 0; i < table.size(); ++i) {  // the reason that padding removed
      if (source.find(table[i].name)->shape == table[i].shape || !table[i].reason.ends_with(kNotAligned)) continue;
      table[i].fp8 = fresh[i].fp8;
      table[i].reason = fresh[i].reason;
    }
  } else if (has_codes(source)) {
    follow_codes(source, table);
  }
  if (options.pad) explain_unpadded(table);
  return table;
}

Plan plan_of(const Source& source, const ConvertOptions& options) {
  const std::vector<model::Parameter> table = model::parameter_table(source.config());
  check_source(source, table, options);
  check_codes(source, table, options);
  Plan plan;
  const bool training = options.merge && !options.weights_only && !options.merge_lora &&
                        source.checkpoint() != nullptr && source.checkpoint()->kind() == ckpt::FileKind::training;
  if (has_codes(source) && !options.dequantize) plan.kind = ckpt::FileKind::quantized;
  if (training) plan.kind = ckpt::FileKind::training;
  if (options.pad && training) {
    throw Error(source.path() + ": a training checkpoint; its moments are not padded",
                {{"weights-only", "to pad its weights"}});
  }
  plan.config = source.config();
  if (options.merge_lora) plan.config.lora.reset();
  if (options.pad) plan.padded_sizes = pad(plan.config, pads_vocabulary(source.config(), options.precisions));
  plan.table = table_with_precisions(source, plan.config, options);
  return plan;
}

// Format in which a weight is written.
dtype::DType output_type(const model::Parameter& p, const SourceTensor& tensor, const ConvertOptions& options) {
  if (tensor.codes() && !options.dequantize) return *tensor.format;
  const bool rounded = tensor.codes() || tensor.format == dtype::DType::bf16;
  return model::stored_type(p, options.dtype.value_or(rounded ? dtype::DType::bf16 : dtype::DType::f32));
}

// Reads rows of a merged weight in the format `type`.
ReadRows read_merged(const std::string& name, const std::shared_ptr<MergedRows>& merged, dtype::DType type) {
  return [name, merged, type](std::int64_t begin, std::int64_t end, std::span<std::byte> out) {
    std::vector<float> values(out.size() / dtype::size_of(type));
    merged->read(begin, end, values);
    store_rows(name, values, begin, std::ssize(values) / (end - begin), type, out);
  };
}

// Reads rows of a weight of the output, as far as the source has them, in the format in which they are written.
ReadRows rows_of_weight(const Source& source, const model::Parameter& p, dtype::DType type,
                        const ConvertOptions& options) {
  if (!options.merge_lora || !has_adapter(source, p)) {
    const auto reader = std::make_shared<RowReader>(source, *source.find(p.name), type);
    return [reader](std::int64_t begin, std::int64_t end, std::span<std::byte> out) { reader->read(begin, end, out); };
  }
  return read_merged(source.path() + ": " + p.name, std::make_shared<MergedRows>(source, p, *source.config().lora),
                     type);
}

// Writes a weight in the format `type`; rows and columns that the source lacks are zeros.
void copy_padded(const Source& source, const model::Parameter& p, dtype::DType type, const ConvertOptions& options,
                 ckpt::ModelWriter& writer) {
  const SourceTensor& tensor = *source.find(p.name);
  const std::int64_t rows = rows_of(tensor.shape), cols = cols_of(tensor.shape);
  const auto bytes_of = [type](std::int64_t count) {
    return static_cast<std::size_t>(count / dtype::packed(type)) * dtype::size_of(type);
  };
  const ReadRows read = rows_of_weight(source, p, type, options);
  writer.begin_tensor(model::meta_of(p, type));
  std::vector<std::byte> stored, out;
  for_pieces(p.rows(), p.cols(), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t there = std::max<std::int64_t>(0, std::min(end, rows) - begin);
    stored.resize(bytes_of(there * cols));
    if (there > 0) read(begin, begin + there, stored);
    if (p.cols() == cols && there == end - begin) return writer.write(stored);
    out.assign(bytes_of((end - begin) * p.cols()), std::byte{0});
    place_rows(stored, bytes_of(cols), out, bytes_of(p.cols()));
    writer.write(out);
  });
  writer.end_tensor();
}

// Merges the adapter of a weight that is codes, and quantizes the sum with scales of the same layout; powers of two if
// the old ones are.
void requantize(const Source& source, const model::Parameter& p, ckpt::ModelWriter& writer, ConvertReport& report) {
  const SourceTensor& tensor = *source.find(p.name);
  const std::vector<float> old = source.scales(tensor);
  const auto power_of_2 = [](float s) {
    int exponent = 0;
    return std::frexp(s, &exponent) == 0.5F;
  };
  const CastRule rule{.format = *tensor.format,
                      .scaling = scaling_of(tensor),
                      .power_of_2 = std::all_of(old.begin(), old.end(), power_of_2)};
  const auto rows = std::make_shared<MergedRows>(source, p, *source.config().lora);
  const StoredMatrix merged{.name = source.path() + ": " + p.name,
                            .rows = p.rows(),
                            .cols = p.cols(),
                            .dtype = dtype::DType::f32,
                            .read = read_merged("", rows, dtype::DType::f32)};
  writer.begin_tensor(model::meta_of(p, *tensor.format));
  const CastResult cast = cast_matrix(merged, rule, [&](std::span<const std::byte> codes) { writer.write(codes); });
  writer.end_tensor();
  write_scales(p.name, cast.scales, writer);
  const double distance = cast.signal > 0 ? std::sqrt(cast.noise / cast.signal) : 0;
  const double change = rows->change();
  report.requantized.push_back({p.name, distance, {}});
  if (change > 0) report.requantized.back().of_change = std::sqrt(cast.noise) / change;
}

// Writes a weight, and its scales if it is codes.
void write_weight(const Source& source, const model::Parameter& p, const ConvertOptions& options,
                  ckpt::ModelWriter& writer, ConvertReport& report) {
  const SourceTensor& tensor = *source.find(p.name);
  const bool codes = tensor.codes() && !options.dequantize;
  if (codes && options.merge_lora && has_adapter(source, p)) return requantize(source, p, writer, report);
  copy_padded(source, p, output_type(p, tensor, options), options, writer);
  if (codes) write_scales(p.name, source.stored_scales(tensor), writer);
}

// Names of the other tensors that a training checkpoint keeps.
std::vector<std::string> state_names(const Source& source, const Plan& plan) {
  std::vector<std::string> names;
  if (!plan.training()) return names;
  for (const ckpt::Section& section : ckpt::kSections) {
    if (!section.training) continue;
    for (const ckpt::TensorMeta& meta : source.checkpoint()->tensors(section.prefix)) names.push_back(meta.name);
  }
  return names;
}

void write_documents(const Source& source, const Plan& plan, const ConvertOptions& options, ckpt::ModelWriter& writer) {
  const ckpt::Checkpoint* checkpoint = source.checkpoint();
  // The embedding, usually the largest tensor, determines the dtype of the configuration.
  const dtype::DType type = output_type(plan.table.front(), *source.find(plan.table.front().name), options);
  writer.document("config", model::config_with_dtype(plan.config, type));
  writer.document("provenance",
                  model::with_origin(checkpoint != nullptr ? checkpoint->provenance() : json::Value(), options.origin));
  if (plan.training()) writer.document("train", checkpoint->train());
  if (checkpoint != nullptr) ckpt::copy_texts(*checkpoint, writer);
  if (const std::optional<std::string> tokenizer = source.folder_tokenizer()) writer.tokenizer(*tokenizer);
  writer.huggingface(source.folder_texts());
}

void write_output(const Source& source, const std::string& output, const Plan& plan, const ConvertOptions& options,
                  ConvertReport& report) {
  const std::vector<std::string> state = state_names(source, plan);
  const std::size_t count = plan.table.size() + state.size();
  ckpt::ModelWriter writer(output, plan.kind, options.force);
  write_documents(source, plan, options, writer);
  for (std::size_t i = 0; i < plan.table.size(); ++i) {
    const model::Parameter& p = plan.table[i];
    if (options.progress) options.progress(p.name, i, count);
    write_weight(source, p, options, writer, report);
  }
  for (std::size_t i = 0; i < state.size(); ++i) {
    if (options.progress) options.progress(state[i], plan.table.size() + i, count);
    ckpt::copy_tensor(*source.checkpoint(), state[i], writer);
  }
  if (source.checkpoint() != nullptr) ckpt::copy_unknown(*source.checkpoint(), writer);
  if (plan.kind == ckpt::FileKind::quantized) return writer.commit();
  writer.commit([&](const std::string& reason) { report.invalid.push_back(reason); });
}

// Bytes of all tensors that will be written.
std::uint64_t output_bytes(const Source& source, const Plan& plan, const ConvertOptions& options) {
  std::uint64_t bytes = 0;
  const auto add = [&](std::uint64_t n) { bytes = checked_add(bytes, n, source.path()); };
  for (const model::Parameter& p : plan.table) {
    const SourceTensor& tensor = *source.find(p.name);
    if (tensor.codes() && !options.dequantize)
      add(bytes_of_codes(p, *tensor.format, scaling_of(tensor)));
    else
      add(static_cast<std::uint64_t>(p.size()) * dtype::size_of(output_type(p, tensor, options)));
  }
  for (const std::string& name : state_names(source, plan)) add(source.checkpoint()->at(name).bytes());
  if (source.checkpoint() != nullptr) {
    for (const ckpt::TensorMeta& meta : source.checkpoint()->unknown()) add(meta.bytes());
  }
  return bytes;
}

// The identity of a tokenizer.json, without which no tool can compare it with the tokenizer of data.
hf::TokenizerIdentity identity_of(const std::string& text, const std::string& file) {
  try {
    return hf::parse_tokenizer_identity(text, file);
  } catch (const Error& e) {
    throw Error(std::string(e.what()) + "; without this file the folder is converted for data of token ids");
  }
}

// Notes on what the tools will miss in the folder's tokenizer.
void add_tokenizer_notes(const Source& source, const hf::ModelConfig& config, std::vector<std::string>& notes) {
  const std::optional<std::string> text = source.folder_tokenizer();
  if (!text) {
    notes.push_back(source.path() +
                    ": has no tokenizer.json, so the checkpoint has no tokenizer and takes token ids alone" +
                    token::conversion_advice(source.path()));
    return;
  }
  const std::string file = source.path() + "/tokenizer.json";
  const hf::TokenizerIdentity identity = identity_of(*text, file);
  if (!identity.note.empty()) notes.push_back(source.path() + ": " + identity.note);
  if (identity.vocab_size > config.vocab_size)
    notes.push_back(source.path() + ": tokenizer.json has " + std::to_string(identity.vocab_size) +
                    " tokens, but the embedding " + std::to_string(config.vocab_size) +
                    " rows; data of this tokenizer is refused until the embedding is resized (in transformers: "
                    "resize_token_embeddings)");
  try {
    (void)token::Tokenizer::parse(*text, file);
  } catch (const Error& e) {
    notes.push_back(
        std::string(e.what()) +
        "; the tokenizer is kept for an export, but fp8-tokenize and fp8-generate do not encode text with it");
  }
}

// What a folder's configuration leaves to defaults, and its settings that no tool reads.
void add_config_notes(const Source& source, std::vector<std::string>& notes) {
  const std::string file = source.path() + "/config.json: ";
  if (const std::string note = hf::defaults_note(source.config()); !note.empty()) notes.push_back(file + note);
  for (const std::string& note : hf::training_notes(source.config())) notes.push_back(file + note);
}

}  // namespace

ConvertReport convert(const std::string& source_path, const std::string& output, const ConvertOptions& options) {
  if (options.dtype && *options.dtype != dtype::DType::f32 && *options.dtype != dtype::DType::bf16) {
    throw Error("dtype: weights are f32 or bf16");
  }
  const Source source(source_path);
  const Plan plan = plan_of(source, options);
  ConvertReport report;
  report.kind = ckpt::name_of(plan.kind);
  report.linears = model::linear_rows(plan.config, plan.table);
  for (model::LinearRow& row : report.linears) {
    const SourceTensor* tensor = source.find(row.name);
    if (tensor == nullptr) continue;
    if (tensor->shape != row.shape) row.padded_from = tensor->shape;
    if (tensor->codes() && !options.dequantize) row.scaling = scaling_text(*tensor);
  }
  report.padded_sizes = plan.padded_sizes;
  for (const PaddedSize& p : plan.padded_sizes)
    if (p.key == kVocabulary) report.notes.push_back(vocabulary_note(p));
  if (source.activation_scales() > 0)
    report.notes.push_back(source.path() + ": " + std::to_string(source.activation_scales()) +
                           " static scales of activations are not kept; activations are scaled as they are cast");
  if (source.checkpoint() == nullptr) {
    add_tokenizer_notes(source, plan.config, report.notes);
    add_config_notes(source, report.notes);
  } else {
    for (const std::string& message : source.checkpoint()->passed_over()) report.notes.push_back(message);
  }
  report.tensors = static_cast<std::int64_t>(plan.table.size());
  report.parameters = model::parameter_count(plan.table);
  report.bytes = output_bytes(source, plan, options);
  check_output(output, options.force, {source_path});
  ckpt::check_space(parent_directory(output), report.bytes);
  if (source.checkpoint() != nullptr) source.checkpoint()->verify();  // damaged data would get a valid digest
  if (!options.dry_run) write_output(source, output, plan, options, report);
  return report;
}

}  // namespace fp8::convert
