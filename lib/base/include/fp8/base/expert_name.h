/// Names of linears: those of experts, MODULE.experts.N.REST, and short ones for narrow tables.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fp8 {

/// The parts of the name of an expert's tensor.
struct ExpertName {
  std::string experts{};    ///< "model.layers.3.mlp.experts"
  std::int64_t number = 0;  ///< of the expert, from 0
  std::string rest{};       ///< "up_proj.weight"
};

/// The parts of a name; nullopt if it is not that of an expert's tensor.
std::optional<ExpertName> expert_name(const std::string& name);

/// A name of an expert's tensor with * for the number of the expert; other names as they are.
std::string glob_of_experts(const std::string& name);

/// What tells the linears of a model apart: "0.q_proj" of model.layers.0.self_attn.q_proj.weight.
std::string brief_name(std::string linear);

/// Keeps, of the items that are the same but for the number of the expert, the first; items of no expert stay. `key_of`
/// gives what tells items apart, the name of a tensor first. Whether any is of an expert.
template <class T, class KeyOf>
bool fold_experts(std::vector<T>& items, const KeyOf& key_of) {
  bool any = false;
  std::set<std::array<std::string, 4>> seen;
  std::erase_if(items, [&](const T& item) {
    std::array<std::string, 4> key = key_of(item);
    std::string glob = glob_of_experts(key.front());
    if (glob == key.front()) return false;
    any = true;
    key.front() = std::move(glob);
    return !seen.insert(std::move(key)).second;
  });
  return any;
}

}  // namespace fp8
