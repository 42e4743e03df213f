// Conversion: names and shapes are checked first, then tensors are copied from the source into one checkpoint.
#include "fp8/model/convert.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/ckpt/writer.h"
#include "output.h"
#include "source.h"

namespace fp8::model {
namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kEmbedding = "model.embed_tokens.weight";

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (const std::int64_t extent : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(extent);
  return out + "]";
}

// "a, b, c and 4 more"
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 4;
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) out += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kShown) out += " and " + std::to_string(names.size() - kShown) + " more";
  return out;
}

// Throws unless `find` returns exactly the tensors of `table`; `names` are all existing names.
template <class Find>
void check_tensors(const std::string& path, const std::vector<Parameter>& table, const std::vector<std::string>& names,
                   const Find& find) {
  std::vector<std::string> missing, wrong, extra, known;
  for (const Parameter& p : table) {
    known.push_back(p.name);
    const std::vector<std::int64_t>* shape = find(p.name);
    if (shape == nullptr) {
      missing.push_back(p.name);
    } else if (*shape != p.shape) {
      wrong.push_back(p.name + " " + shape_text(*shape) + " instead of " + shape_text(p.shape));
    }
  }
  std::sort(known.begin(), known.end());
  for (const std::string& name : names) {
    if (!std::binary_search(known.begin(), known.end(), name)) extra.push_back(name);
  }
  std::string problem;
  const auto add = [&](const char* what, const std::vector<std::string>& list) {
    if (!list.empty()) problem += (problem.empty() ? "" : "; ") + std::string(what) + some_of(list);
  };
  add("missing tensors: ", missing);
  add("tensors of the wrong shape: ", wrong);
  add("unexpected tensors: ", extra);
  if (!problem.empty()) throw Error(path + ": " + problem);
}

// Buffers that old releases of transformers saved; they are computed from the configuration.
bool is_derived(const std::string& name) { return name.ends_with(".rotary_emb.inv_freq"); }

std::int64_t rows_of(const std::vector<std::int64_t>& shape) { return shape.empty() ? 1 : shape.front(); }

std::int64_t cols_of(const std::vector<std::int64_t>& shape) { return shape.size() < 2 ? 1 : shape[1]; }

// Rows per piece.
std::int64_t piece_rows(std::int64_t cols) { return std::max<std::int64_t>(1, kPieceElements / cols); }

// Some folders of tied models also store the head: it must equal the embedding.
void check_tied_head(const Source& source) {
  const SourceTensor* head = source.find(kHead);
  const SourceTensor* embedding = source.find(kEmbedding);
  if (head == nullptr || embedding == nullptr || head->shape != embedding->shape) return;
  const std::int64_t rows = rows_of(head->shape), cols = cols_of(head->shape);
  std::vector<std::byte> a, b;
  std::vector<float> scratch;
  for (std::int64_t begin = 0; begin < rows; begin += piece_rows(cols)) {
    const std::int64_t end = std::min(rows, begin + piece_rows(cols));
    a.resize(static_cast<std::size_t>((end - begin) * cols) * sizeof(float));
    b.resize(a.size());
    source.read_rows(*head, begin, end, dtype::DType::f32, a, scratch);
    source.read_rows(*embedding, begin, end, dtype::DType::f32, b, scratch);
    if (std::memcmp(a.data(), b.data(), a.size()) != 0) {
      throw Error(source.path() + ": lm_head.weight differs from the embedding, though tie_word_embeddings is true");
    }
  }
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
  if (t.format == DType::f32 || t.format == DType::bf16 || t.format == DType::f16) return;
  throw Error(source.path() + ": " + t.name + ": stored as " + t.format_name + "; weights must be f32, bf16 or f16");
}

void check_source(const Source& source, const std::vector<Parameter>& table, const ConvertOptions& options) {
  if (const ckpt::Checkpoint* c = source.checkpoint()) {
    if (c->kind() == ckpt::FileKind::quantized) {
      throw Error(source.path() + ": quantized; dequantize it with fp8-quantize first");
    }
    if (c->world() > 1 && !options.merge && !options.weights_only) {
      throw Error(source.path() + ": sharded over " + std::to_string(c->world()) + " files",
                  {{"merge", "for one file"}, {"weights-only", ""}});
    }
  }
  check_tensors(source.path(), table, needed_names(source), [&](const std::string& name) {
    const SourceTensor* t = source.find(name);
    return t == nullptr ? nullptr : &t->shape;
  });
  for (const Parameter& p : table) check_format(source, *source.find(p.name));
  if (source.config().tie_word_embeddings) check_tied_head(source);
}

std::vector<Parameter> table_with_precisions(const Source& source, const ConvertOptions& options) {
  std::vector<Parameter> table = parameter_table(source.config());
  check_source(source, table, options);
  if (options.precisions) {
    assign_precisions(table, *options.precisions);
  } else if (source.checkpoint() != nullptr) {
    read_precisions(*source.checkpoint(), table);
  }
  return table;
}

// Format in which a weight is written.
dtype::DType output_type(const Parameter& p, const SourceTensor& tensor, const ConvertOptions& options) {
  const dtype::DType kept = tensor.format == dtype::DType::bf16 ? dtype::DType::bf16 : dtype::DType::f32;
  return stored_type(p, options.dtype.value_or(kept));
}

void copy_weight(const Source& source, const Parameter& p, dtype::DType type, ckpt::ModelWriter& writer) {
  const SourceTensor& tensor = *source.find(p.name);
  writer.begin_tensor(meta_of(p, type));
  std::vector<std::byte> bytes;
  std::vector<float> scratch;
  for (std::int64_t begin = 0; begin < p.rows(); begin += piece_rows(p.cols())) {
    const std::int64_t end = std::min(p.rows(), begin + piece_rows(p.cols()));
    bytes.resize(static_cast<std::size_t>((end - begin) * p.cols()) * dtype::size_of(type));
    source.read_rows(tensor, begin, end, type, bytes, scratch);
    writer.write(bytes);
  }
  writer.end_tensor();
}

// Names of the other tensors that a training checkpoint keeps.
std::vector<std::string> state_names(const Source& source, bool training) {
  std::vector<std::string> names;
  if (!training) return names;
  for (const std::string_view section : {ckpt::kMomentM, ckpt::kMomentV, ckpt::kFp8}) {
    for (const ckpt::TensorMeta& meta : source.checkpoint()->tensors(section)) names.push_back(meta.name);
  }
  return names;
}

json::Value output_config(const Source& source, const std::vector<Parameter>& table, const ConvertOptions& options) {
  // The embedding, usually the largest tensor, determines the dtype of the configuration.
  return config_with_dtype(source.config(), output_type(table.front(), *source.find(table.front().name), options));
}

// Returns the tensors of the output with forbidden values.
std::vector<std::string> write_output(const Source& source, const std::string& output,
                                      const std::vector<Parameter>& table, bool training,
                                      const ConvertOptions& options) {
  const std::vector<std::string> state = state_names(source, training);
  const ckpt::Checkpoint* checkpoint = source.checkpoint();
  const std::size_t count = table.size() + state.size();
  ckpt::ModelWriter writer(output, training ? ckpt::FileKind::training : ckpt::FileKind::model, options.force);
  writer.document("config", output_config(source, table, options));
  writer.document("provenance",
                  with_origin(checkpoint != nullptr ? checkpoint->provenance() : json::Value(), options.origin));
  if (training) writer.document("train", checkpoint->train());
  if (checkpoint != nullptr) ckpt::copy_texts(*checkpoint, writer);
  if (const std::optional<std::string> tokenizer = source.folder_tokenizer()) writer.tokenizer(*tokenizer);
  writer.huggingface(source.folder_texts());
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (options.progress) options.progress(table[i].name, i, count);
    copy_weight(source, table[i], output_type(table[i], *source.find(table[i].name), options), writer);
  }
  for (std::size_t i = 0; i < state.size(); ++i) {
    if (options.progress) options.progress(state[i], table.size() + i, count);
    ckpt::copy_tensor(*checkpoint, state[i], writer);
  }
  if (checkpoint != nullptr) ckpt::copy_unknown(*checkpoint, writer);
  std::vector<std::string> invalid;
  writer.commit([&](const std::string& reason) { invalid.push_back(reason); });
  return invalid;
}

// Bytes of all tensors that will be written.
std::uint64_t output_bytes(const Source& source, const std::vector<Parameter>& table, bool training,
                           const ConvertOptions& options) {
  std::uint64_t bytes = 0;
  const auto add = [&](std::uint64_t n) { bytes = checked_add(bytes, n, source.path()); };
  for (const Parameter& p : table) {
    add(static_cast<std::uint64_t>(p.size()) * dtype::size_of(output_type(p, *source.find(p.name), options)));
  }
  for (const std::string& name : state_names(source, training)) add(source.checkpoint()->at(name).bytes());
  if (source.checkpoint() != nullptr) {
    for (const ckpt::TensorMeta& meta : source.checkpoint()->unknown()) add(meta.bytes());
  }
  return bytes;
}

bool aligned(const std::vector<std::int64_t>& shape) {
  return std::all_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent % 16 == 0; });
}

}  // namespace

std::vector<LinearRow> linear_rows(const hf::ModelConfig& config, const std::vector<Parameter>& table) {
  std::vector<LinearRow> rows;
  for (const Parameter& p : table) {
    if (p.matmul()) rows.push_back({p.name, p.shape, p.fp8, p.reason, aligned(p.shape), p.gemms});
  }
  if (config.tie_word_embeddings) {
    const std::vector<std::int64_t> shape{config.vocab_size, config.hidden_size};
    rows.push_back({std::string(kHead), shape, false, "LM head, tied to the embedding", aligned(shape)});
  }
  return rows;
}

void check_weights(const ckpt::Checkpoint& checkpoint, const std::vector<Parameter>& table) {
  std::vector<std::string> names;
  for (const ckpt::TensorMeta& meta : checkpoint.tensors(ckpt::kWeights)) {
    names.push_back(meta.name.substr(ckpt::kWeights.size()));
  }
  check_tensors(checkpoint.path(), table, names, [&](const std::string& name) {
    const ckpt::TensorMeta* meta = checkpoint.find(std::string(ckpt::kWeights) + name);
    return meta == nullptr ? nullptr : &meta->shape;
  });
}

void read_precisions(const ckpt::Checkpoint& checkpoint, std::vector<Parameter>& table) {
  for (Parameter& p : table) {
    const ckpt::TensorMeta* meta = checkpoint.find(std::string(ckpt::kWeights) + p.name);
    if (meta == nullptr || meta->precision.empty()) continue;
    if (meta->precision != "fp8" && meta->precision != "bf16") {
      throw Error(checkpoint.path() + ": /" + meta->name + ": unknown precision \"" + excerpt(meta->precision) + "\"");
    }
    if (meta->precision == "fp8" && !(p.matmul() && aligned(p.shape))) {
      throw Error(checkpoint.path() + ": /" + meta->name + ": its precision is fp8, but it cannot be");
    }
    p.fp8 = meta->precision == "fp8";
    p.reason = p.fp8 ? "" : meta->reason;
  }
}

ConvertReport convert(const std::string& source_path, const std::string& output, const ConvertOptions& options) {
  if (options.dtype && *options.dtype != dtype::DType::f32 && *options.dtype != dtype::DType::bf16) {
    throw Error("dtype: weights are f32 or bf16");
  }
  const Source source(source_path);
  const std::vector<Parameter> table = table_with_precisions(source, options);
  const bool training = options.merge && !options.weights_only && source.checkpoint() != nullptr &&
                        source.checkpoint()->kind() == ckpt::FileKind::training;
  ConvertReport report;
  report.kind = ckpt::name_of(training ? ckpt::FileKind::training : ckpt::FileKind::model);
  report.linears = linear_rows(source.config(), table);
  report.tensors = static_cast<std::int64_t>(table.size());
  report.parameters = parameter_count(table);
  report.bytes = output_bytes(source, table, training, options);
  check_output(output, options.force);
  ckpt::check_space(parent_directory(output), report.bytes);
  if (source.checkpoint() != nullptr) source.checkpoint()->verify();  // damaged data would get a valid digest
  if (!options.dry_run) report.invalid = write_output(source, output, table, training, options);
  return report;
}

}  // namespace fp8::model
