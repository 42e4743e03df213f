// A zero column of down_proj ignores its intermediate value, so the padded MLP computes the same sums; so does an
// expert. The hidden size
// is not padded because RMSNorm divides by it, nor are heads, since attention divides by the square root of head_dim
// and rope derives its frequencies from it.
#include "pad.h"

#include <algorithm>

#include "fp8/base/round.h"

namespace fp8::convert {
namespace {

constexpr std::int64_t kMultiple = 16;

// The size that gives a linear its rows or columns.
std::string_view size_of_extent(const model::Parameter& p, bool rows) {
  if (p.slot == model::Slot::qkv && rows) return "the heads";
  if (p.slot == model::Slot::o && !rows) return "the heads";
  return "the hidden size";
}

}  // namespace

bool pads_vocabulary(const hf::ModelConfig& config, const std::optional<model::PrecisionRules>& precisions) {
  if (!precisions || !precisions->lm_head || config.tie_word_embeddings) return false;
  hf::ModelConfig padded = config;
  padded.vocab_size = round_up(config.vocab_size, kMultiple);
  std::vector<model::Parameter> table = model::parameter_table(padded);
  model::assign_precisions(table, *precisions);
  return table.back().fp8;
}

std::vector<PaddedSize> pad(hf::ModelConfig& config, bool vocabulary) {
  std::vector<PaddedSize> changes;
  const auto raise = [&](std::string_view key, std::int64_t& size) {
    const std::int64_t padded = round_up(size, kMultiple);
    if (padded != size) changes.push_back({std::string(key), size, padded});
    size = padded;
  };
  const bool own = config.experts && config.family != hf::Family::mixtral;  // experts have a width of their own
  bool dense = !own;
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) dense = dense || !config.is_sparse(i);
  if (dense) raise("intermediate_size", config.intermediate_size);
  if (own) raise("moe_intermediate_size", config.experts->intermediate_size);
  if (config.experts && !own) config.experts->intermediate_size = config.intermediate_size;
  if (vocabulary) raise(kVocabulary, config.vocab_size);
  return changes;
}

std::string vocabulary_note(const PaddedSize& size) {
  const std::string added = std::to_string(size.to - size.from);
  return size.key + " " + std::to_string(size.from) + " becomes " + std::to_string(size.to) + ": the " + added +
         " tokens added have logit 0, so the loss grows by ln(1 + " + added + " / sum of exp(logit))";
}

void explain_unpadded(std::vector<model::Parameter>& table) {
  for (model::Parameter& p : table) {
    if (!p.reason.ends_with(kNotAligned)) continue;
    p.reason += ", and ";
    p.reason += size_of_extent(p, p.rows() % kMultiple != 0);
    p.reason += " cannot be padded";
  }
}

void place_rows(std::span<const std::byte> from, std::size_t from_row, std::span<std::byte> to, std::size_t to_row) {
  for (; !from.empty(); from = from.subspan(from_row), to = to.subspan(to_row))
    std::copy_n(from.begin(), from_row, to.begin());
}

}  // namespace fp8::convert
