/// Names of the tensors of experts: MODULE.experts.N.REST.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

}  // namespace fp8
