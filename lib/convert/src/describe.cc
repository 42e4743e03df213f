// Descriptions and comparisons of checkpoints: every pass over a tensor uses a buffer of fixed size.
#include "fp8/convert/describe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/convert/open.h"
#include "fp8/hf/config.h"
#include "fp8/model/output.h"
#include "fp8/model/parameters.h"

namespace fp8::convert {
namespace {

bool is_float(dtype::DType type) {
  using dtype::DType;
  switch (type) {
    case DType::f32:
    case DType::bf16:
    case DType::f16:
    case DType::f64:
    case DType::e4m3:
    case DType::e5m2:
    case DType::e2m1:
    case DType::e8m0:
      return true;
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64:
    case DType::i32:
    case DType::i64:
      return false;
  }
  return false;
}

std::int64_t row_elements(const ckpt::TensorMeta& meta) {
  const std::vector<std::int64_t> extents = meta.extents();
  return extents.empty() ? 1 : checked_product(std::span(extents).subspan(1), meta.name);
}

// Calls visit(begin, end, elements) for pieces of rows that cover the tensor; nothing for an empty one.
template <class Visit>
void for_row_pieces(const ckpt::TensorMeta& meta, const Visit& visit) {
  const std::int64_t width = row_elements(meta);
  if (width == 0) return;
  model::for_pieces(meta.rows(), width, [&](std::int64_t begin, std::int64_t end) {
    visit(begin, end, static_cast<std::size_t>((end - begin) * width));
  });
}

json::Value tensor_record(const ckpt::Checkpoint& checkpoint, const ckpt::TensorMeta& meta, bool with_statistics) {
  json::Object record;
  record.set("name", meta.name);
  record.set("dtype", dtype::name_of(meta.dtype));
  record.set("shape", json::Array(meta.shape.begin(), meta.shape.end()));
  if (!meta.precision.empty())
    record.set("precision", dtype::is_fp4(meta.dtype) && meta.precision == "fp8" ? "fp4" : meta.precision);
  if (!meta.reason.empty()) record.set("reason", meta.reason);
  const bool scale =
      meta.name.starts_with(ckpt::kScales) || meta.name.starts_with(ckpt::kGlobals) || meta.name.ends_with("/scale");
  if (scale && is_float(meta.dtype) && checked_product(meta.shape, meta.name) == 1) {
    float value = 0;
    checkpoint.read_rows_as_f32(meta.name, 0, 1, std::span(&value, 1));
    record.set("value", value);
  }
  if (!with_statistics) return record;
  if (const std::optional<TensorStatistics> s = statistics(checkpoint, meta.name)) {
    record.set("mean", s->mean);
    record.set("rms", s->rms);
    record.set("absmax", s->absmax);
    record.set("nonfinite", s->nonfinite);
  }
  return record;
}

// Running sums of a comparison.
struct ComparisonSums {
  double difference = 0;  // sum of (a - b)^2
  double size = 0;        // sum of a^2
  double max_abs = 0;
  bool equal = true;

  void add(float a, float b) {
    if (a == b || (std::isnan(a) && std::isnan(b))) {
      if (std::isfinite(a)) size += static_cast<double>(a) * static_cast<double>(a);
      return;
    }
    equal = false;
    const double d = static_cast<double>(a) - static_cast<double>(b);
    difference += d * d;
    size += static_cast<double>(a) * static_cast<double>(a);
    if (!(std::abs(d) <= max_abs)) max_abs = std::isnan(max_abs) ? max_abs : std::abs(d);
  }
  double relative() const {
    if (equal) return 0;
    return size == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(difference / size);
  }
};

void compare_floats(const ckpt::Checkpoint& a, const ckpt::Checkpoint& b, const ckpt::TensorMeta& meta,
                    TensorDistance& out) {
  ComparisonSums sums;
  std::vector<float> x, y;
  for_row_pieces(meta, [&](std::int64_t begin, std::int64_t end, std::size_t elements) {
    x.resize(elements);
    y.resize(elements);
    a.read_rows_as_f32(meta.name, begin, end, x);
    b.read_rows_as_f32(meta.name, begin, end, y);
    for (std::size_t i = 0; i < elements; ++i) sums.add(x[i], y[i]);
  });
  out.equal = sums.equal;
  out.max_abs = sums.max_abs;
  out.relative_l2 = sums.relative();
}

void compare_bytes(const ckpt::Checkpoint& a, const ckpt::Checkpoint& b, const ckpt::TensorMeta& meta,
                   TensorDistance& out) {
  out.equal = true;
  std::vector<std::byte> x, y;
  for_row_pieces(meta, [&](std::int64_t begin, std::int64_t end, std::size_t elements) {
    x.resize(elements * dtype::size_of(meta.dtype));
    y.resize(x.size());
    a.read_rows(meta.name, begin, end, x);
    b.read_rows(meta.name, begin, end, y);
    out.equal = out.equal && x == y;
  });
  if (!out.equal) out.note = "bytes differ";
}

TensorDistance tensor_distance(const ckpt::Checkpoint& a, const ckpt::Checkpoint& b, const std::string& name) {
  TensorDistance out;
  out.name = name;
  const ckpt::TensorMeta* x = a.find(name);
  const ckpt::TensorMeta* y = b.find(name);
  if (y == nullptr) {
    out.note = "only in A";
  } else if (x == nullptr) {
    out.note = "only in B";
  } else if (x->extents() != y->extents()) {
    out.note = "shapes differ";
  } else if (is_float(x->dtype) && is_float(y->dtype)) {
    compare_floats(a, b, *x, out);
  } else if (x->dtype != y->dtype) {
    out.note = "formats differ";
  } else {
    compare_bytes(a, b, *x, out);
  }
  return out;
}

bool same_config(const ckpt::Checkpoint& a, const ckpt::Checkpoint& b) {
  return hf::same_model(hf::parse_config(a.config(), a.path() + ": /config"),
                        hf::parse_config(b.config(), b.path() + ": /config"));
}

// The number of parameters that a token uses, if the model has experts.
std::optional<std::int64_t> active_parameters(const ckpt::Checkpoint& checkpoint) {
  try {
    const hf::ModelConfig config = hf::parse_config(checkpoint.config(), checkpoint.path() + ": /config");
    if (!config.experts) return std::nullopt;
    return model::active_count(config, model::parameter_table(config));
  } catch (const Error&) {  // a model of another kind can be described
    return std::nullopt;
  }
}

// The name of the chat template; null if there is none or it cannot be read.
json::Value template_record(const ckpt::Checkpoint& checkpoint) {
  try {
    const std::optional<chat::Carried> own = own_template(checkpoint);
    if (!own) return {};
    return own->equivalent ? own->equivalent->form.name : own->where + " (Jinja that is not known)";
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::optional<TensorStatistics> statistics(const ckpt::Checkpoint& checkpoint, const std::string& name) {
  const ckpt::TensorMeta& meta = checkpoint.at(name);
  if (!is_float(meta.dtype)) return std::nullopt;
  TensorStatistics s;
  double sum = 0, squares = 0;
  std::int64_t finite = 0;
  std::vector<float> values;
  for_row_pieces(meta, [&](std::int64_t begin, std::int64_t end, std::size_t elements) {
    values.resize(elements);
    checkpoint.read_rows_as_f32(name, begin, end, values);
    for (const float value : values) {
      if (!std::isfinite(value)) {
        ++s.nonfinite;
        continue;
      }
      const double v = static_cast<double>(value);
      sum += v;
      squares += v * v;
      s.absmax = std::max(s.absmax, std::abs(v));
      ++finite;
    }
  });
  if (finite > 0) {
    s.mean = sum / static_cast<double>(finite);
    s.rms = std::sqrt(squares / static_cast<double>(finite));
  }
  return s;
}

json::Value describe(const ckpt::Checkpoint& checkpoint, bool with_statistics, const model::ProgressSink& progress) {
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;
  json::Array tensors;
  const std::vector<ckpt::TensorMeta>& all = checkpoint.tensors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (progress) progress(all[i].name, i, all.size());
    bytes = checked_add(bytes, all[i].bytes(), checkpoint.path());
    if (all[i].name.starts_with(ckpt::kWeights)) {
      parameters = checked_add(parameters, checked_product(all[i].extents(), all[i].name), checkpoint.path());
    }
    tensors.push_back(tensor_record(checkpoint, all[i], with_statistics));
  }
  json::Object record;
  record.set("type", "info");
  record.set("path", checkpoint.path());
  record.set("kind", ckpt::name_of(checkpoint.kind()));
  record.set("version", checkpoint.version());
  record.set("files", checkpoint.file_count());
  record.set("config", checkpoint.config());
  record.set("parameters", parameters);
  if (const auto active = active_parameters(checkpoint)) record.set("active_parameters", *active);
  record.set("bytes", bytes);
  record.set("tensors", std::move(tensors));
  record.set("train", checkpoint.train());
  record.set("tokenizer", checkpoint.tokenizer().has_value());
  json::Array files;
  for (const auto& [name, text] : checkpoint.huggingface()) files.emplace_back(name);
  record.set("huggingface", std::move(files));
  record.set("template", template_record(checkpoint));
  record.set("tokenizer_id", checkpoint.tokenizer_id() ? json::Value(*checkpoint.tokenizer_id()) : json::Value());
  record.set("provenance", checkpoint.provenance());
  return record;
}

Distance distance(const ckpt::Checkpoint& a, const ckpt::Checkpoint& b, const model::ProgressSink& progress) {
  std::set<std::string> names;
  for (const ckpt::TensorMeta& meta : a.tensors()) names.insert(meta.name);
  for (const ckpt::TensorMeta& meta : b.tensors()) names.insert(meta.name);
  Distance out;
  out.same_config = same_config(a, b);
  out.same_train = a.train() == b.train();
  out.equal = out.same_config;
  for (const std::string& name : names) {
    if (progress) progress(name, out.tensors.size(), names.size());
    out.tensors.push_back(tensor_distance(a, b, name));
    out.equal = out.equal && out.tensors.back().equal;
  }
  return out;
}

}  // namespace fp8::convert
