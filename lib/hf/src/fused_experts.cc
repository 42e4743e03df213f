// Parts of fused tensors of experts.
#include "fused_experts.h"

#include <string_view>

namespace fp8::hf {
namespace {

constexpr std::string_view kLayers = "model.layers.", kRouter = "mlp.gate.weight";
constexpr std::string_view kGateUp = "mlp.experts.gate_up_proj", kDown = "mlp.experts.down_proj";

// The part of `tensor` that begins `row` rows of a matrix of `columns` after its start.
TensorInfo matrix_at(const TensorInfo& tensor, std::string name, std::int64_t row, std::int64_t rows,
                     std::int64_t columns) {
  TensorInfo part = tensor;
  part.name = std::move(name);
  part.shape = {rows, columns};
  part.begin += static_cast<std::uint64_t>(row * columns) * tensor.element_size;
  part.end = part.begin + static_cast<std::uint64_t>(rows * columns) * tensor.element_size;
  return part;
}

}  // namespace

std::vector<TensorInfo> split_experts(const TensorInfo& tensor, const ModelConfig& config) {
  const std::string_view name = tensor.name;
  const std::size_t dot = name.starts_with(kLayers) ? name.find('.', kLayers.size()) : std::string_view::npos;
  if (!config.experts || dot == std::string_view::npos) return {};
  const std::string_view rest = name.substr(dot + 1);
  const ExpertNames names = expert_names(config.family);
  const std::string block = std::string(name.substr(0, dot + 1)) + names.block;
  const auto named = [&](std::int64_t expert, const char* part) {
    return block + ".experts." + std::to_string(expert) + "." + part + ".weight";
  };
  const std::int64_t experts = config.experts->count, width = config.experts->intermediate_size;
  const std::int64_t hidden = config.hidden_size;
  std::vector<TensorInfo> parts;
  if (rest == kRouter && tensor.shape == std::vector{experts, hidden}) {
    if (block + ".gate.weight" != name) parts.push_back(matrix_at(tensor, block + ".gate.weight", 0, experts, hidden));
  } else if (rest == kGateUp && tensor.shape == std::vector{experts, 2 * width, hidden}) {
    for (std::int64_t e = 0; e < experts; ++e) {
      parts.push_back(matrix_at(tensor, named(e, names.gate), 2 * e * width, width, hidden));
      parts.push_back(matrix_at(tensor, named(e, names.up), (2 * e + 1) * width, width, hidden));
    }
  } else if (rest == kDown && tensor.shape == std::vector{experts, hidden, width}) {
    for (std::int64_t e = 0; e < experts; ++e)
      parts.push_back(matrix_at(tensor, named(e, names.down), e * hidden, hidden, width));
  }
  return parts;
}

}  // namespace fp8::hf
