// Blocks of heads, of the intermediate dimension in units of the recipe's blocks, and of the vocabulary.
#include "fp8/model/split.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "alignment.h"
#include "fp8/base/error.h"
#include "fp8/base/round.h"
#include "fp8/quant/scale.h"

namespace fp8::model {
namespace {

// First indices of blocks of whole units, and `size`.
std::vector<std::int64_t> bounds_of(std::int64_t size, std::int64_t unit, int blocks) {
  const std::int64_t units = divide_up(size, unit);
  std::vector<std::int64_t> bounds;
  for (int i = 0; i <= blocks; ++i) bounds.push_back(std::min(size, units * i / blocks * unit));
  return bounds;
}

// How the dimensions of a model are divided.
class Division {
 public:
  Division(const hf::ModelConfig& config, const std::vector<Parameter>& table, const TensorRank& at)
      : config_(config), at_(at) {
    const auto fp8_in = [&](std::initializer_list<Slot> slots) {
      std::int64_t unit = 1;
      for (const Parameter& p : table) {
        if (!p.fp8 || std::ranges::find(slots, p.slot) == slots.end()) continue;
        const quant::Recipe* const recipe = p.recipe != nullptr ? p.recipe : at.recipe;
        unit = std::max({unit, kAlignment, recipe != nullptr ? block_of(*recipe) : 1});
      }
      return unit;
    };
    mlp_unit_ = fp8_in({Slot::gate_up, Slot::down});
    vocabulary_unit_ = fp8_in({Slot::head});
    dense_ = std::ranges::any_of(table, [](const Parameter& p) { return p.slot == Slot::gate_up; });
    if (mlp_unit_ == 1 && divide_up(config.intermediate_size, kAlignment) >= at.ranks) mlp_unit_ = kAlignment;
    if (vocabulary_unit_ == 1 && divide_up(config.vocab_size, kAlignment) >= at.ranks) vocabulary_unit_ = kAlignment;
    check();
  }

  int key_value_copies() const {
    return std::max(1, at_.ranks / static_cast<int>(std::min<std::int64_t>(config_.num_key_value_heads, at_.ranks)));
  }
  std::vector<std::int64_t> query_bounds() const {
    return bounds_of(config_.query_size(), config_.head_dim, at_.ranks);
  }
  std::vector<std::int64_t> key_value_bounds() const {
    return bounds_of(config_.key_value_size(), config_.head_dim, at_.ranks / key_value_copies());
  }
  std::vector<std::int64_t> mlp_bounds() const { return bounds_of(config_.intermediate_size, mlp_unit_, at_.ranks); }
  std::vector<std::int64_t> vocabulary_bounds() const {
    return bounds_of(config_.vocab_size, vocabulary_unit_, at_.ranks);
  }
  bool dense() const { return dense_; }

 private:
  // Elements that share a scale along a dimension.
  static std::int64_t block_of(const quant::Recipe& recipe) {
    std::int64_t most = 1;
    for (const quant::Cast& cast : {recipe.forward.x, recipe.forward.w, recipe.dgrad.dy, recipe.dgrad.w})
      most = std::max(most, quant::block_extent(cast.granularity).along);
    return most;
  }

  void check() const {
    const std::int64_t ranks = at_.ranks, heads = config_.num_attention_heads, kv = config_.num_key_value_heads;
    if (heads % ranks != 0) throw Error("the model has " + std::to_string(heads) + " heads, which it does not divide");
    if (kv % ranks != 0 && ranks % kv != 0)
      throw Error("the model has " + std::to_string(kv) +
                  " key and value heads, which it neither divides nor is a "
                  "multiple of");
    const auto enough = [&](std::int64_t size, std::int64_t unit, const std::string& what) {
      const std::int64_t blocks = divide_up(size, unit);
      if (blocks < ranks)
        throw Error(what + " " + std::to_string(size) + " has only " + std::to_string(blocks) +
                    (blocks == 1 ? " block of " : " blocks of ") + std::to_string(unit));
    };
    if (dense_) enough(config_.intermediate_size, mlp_unit_, "the intermediate size");
    enough(config_.vocab_size, vocabulary_unit_, "the vocabulary of");
  }

  const hf::ModelConfig& config_;
  TensorRank at_;
  std::int64_t mlp_unit_ = 1, vocabulary_unit_ = 1;
  bool dense_ = false;
};

std::int64_t size_on(const std::vector<std::int64_t>& bounds, int block) {
  const auto i = static_cast<std::size_t>(block);
  return bounds[i + 1] - bounds[i];
}

// Whether a parameter belongs to a key or value projection: its weight, bias, or adapter.
bool is_key_or_value(const Parameter& p) {
  return p.name.find(".k_proj.") != std::string::npos || p.name.find(".v_proj.") != std::string::npos;
}

// The first indices of the blocks of a parameter that is divided.
std::vector<std::int64_t> bounds_for(const Division& division, const Parameter& p) {
  switch (p.slot) {
    case Slot::embedding:
    case Slot::head:
      return division.vocabulary_bounds();
    case Slot::qkv:
    case Slot::qkv_bias:
    case Slot::qkv_b:
      return is_key_or_value(p) ? division.key_value_bounds() : division.query_bounds();
    case Slot::o:
    case Slot::o_a:
      return division.query_bounds();
    default:
      return division.mlp_bounds();
  }
}

}  // namespace

DividedSizes whole_sizes(const hf::ModelConfig& config) {
  const auto whole = [](std::int64_t size) { return DividedSize{size, size}; };
  return {whole(config.num_attention_heads), whole(config.num_key_value_heads), whole(config.intermediate_size),
          whole(config.vocab_size), config.head_dim};
}

DividedSizes local_sizes(const hf::ModelConfig& config, const std::vector<Parameter>& table, const TensorRank& at) {
  DividedSizes sizes = whole_sizes(config);
  if (at.ranks == 1) return sizes;
  const Division division(config, table, at);
  sizes.heads.local /= at.ranks;
  sizes.key_value_heads.local = std::max<std::int64_t>(1, config.num_key_value_heads / at.ranks);
  if (division.dense()) sizes.intermediate.local = size_on(division.mlp_bounds(), at.rank);
  sizes.vocabulary.local = size_on(division.vocabulary_bounds(), at.rank);
  sizes.first_token = division.vocabulary_bounds()[static_cast<std::size_t>(at.rank)];
  return sizes;
}

std::vector<Parameter> local_table(const hf::ModelConfig& config, std::vector<Parameter> table, const TensorRank& at) {
  if (at.ranks == 1) return table;
  const Division division(config, table, at);
  const Parameter* before = nullptr;
  for (Parameter& p : table) {
    if (p.expert < 0) p.copies = at.ranks;
    if (p.tensor_parallel_axis >= 0) {
      p.bounds = bounds_for(division, p);
      p.whole = p.shape;
      p.copies = at.ranks / static_cast<int>(p.bounds.size() - 1);
      p.block = at.rank / p.copies;
      p.shape[static_cast<std::size_t>(p.tensor_parallel_axis)] = size_on(p.bounds, p.block);
    }
    const bool follows = before != nullptr && before->unit == p.unit && before->slot == p.slot;
    p.slot_row = follows ? before->slot_row + before->rows() : 0;
    before = &p;
  }
  return table;
}

std::int64_t grain_of(const Parameter& p) {
  std::int64_t grain = 0;
  for (std::size_t i = 0; i + 1 < p.bounds.size(); ++i) grain = std::gcd(grain, p.bounds[i]);
  return grain;
}

std::int64_t straddling_block(const Parameter& p, const quant::Recipe& recipe) {
  const std::int64_t block = std::max(quant::block_extent(recipe.forward.w.granularity).along,
                                      quant::block_extent(recipe.forward.x.granularity).along);
  return block > 0 && grain_of(p) % block != 0 ? block : 0;
}

}  // namespace fp8::model
