// The weights of a checkpoint against a parameter table, and the compute precisions that it records.
#include "fp8/model/checkpoint.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/ckpt/tensor_meta.h"

namespace fp8::model {
namespace {

constexpr std::string_view kHead = "lm_head.weight";

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

}  // namespace

bool aligned(const std::vector<std::int64_t>& shape) {
  return std::all_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent % 16 == 0; });
}

void check_tensors(const std::string& path, const std::vector<Parameter>& table, const std::vector<std::string>& names,
                   const std::function<const std::vector<std::int64_t>*(const std::string&)>& find) {
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

std::vector<LinearRow> linear_rows(const hf::ModelConfig& config, const std::vector<Parameter>& table) {
  std::vector<LinearRow> rows;
  std::string first;  // name of the first of the projections that are fused
  for (const Parameter& p : table) {
    if (!p.matmul()) continue;
    rows.push_back({p.name, p.shape, p.fp8, p.reason, aligned(p.shape), p.gemms});
    const std::string module = p.name.substr(0, p.name.rfind('.'));
    if (p.recipe != nullptr) rows.back().recipe = p.recipe->name;
    if (p.fused) rows.back().fused_with = first;
    if (!p.fused) first = module.substr(module.rfind('.') + 1);
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
  std::vector<std::int64_t> extents;  // of the last tensor asked for
  check_tensors(checkpoint.path(), table, names, [&](const std::string& name) {
    const ckpt::TensorMeta* meta = checkpoint.find(std::string(ckpt::kWeights) + name);
    if (meta != nullptr) extents = meta->extents();
    return meta == nullptr ? nullptr : &extents;
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

}  // namespace fp8::model
