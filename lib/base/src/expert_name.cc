#include "fp8/base/expert_name.h"

#include <string_view>

#include "fp8/base/text.h"

namespace fp8 {

std::optional<ExpertName> expert_name(const std::string& name) {
  constexpr std::string_view kBefore = ".experts.";
  const std::size_t at = name.find(kBefore);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = at + kBefore.size(), end = name.find('.', begin);
  if (end == std::string::npos) return std::nullopt;
  const auto number = parse_int64(std::string_view(name).substr(begin, end - begin));
  if (!number || *number < 0) return std::nullopt;
  return ExpertName{name.substr(0, begin - 1), *number, name.substr(end + 1)};
}

std::string glob_of_experts(const std::string& name) {
  const std::optional<ExpertName> parts = expert_name(name);
  return parts ? parts->experts + ".*." + parts->rest : name;
}

std::string brief_name(std::string linear) {
  for (const std::string_view part : {"model.", "layers.", "self_attn.", "mlp.", "block_sparse_moe."})
    if (const std::size_t at = linear.find(part); at != std::string::npos) linear.erase(at, part.size());
  constexpr std::string_view kWeight = ".weight";
  if (linear.ends_with(kWeight)) linear.resize(linear.size() - kWeight.size());
  return linear;
}

}  // namespace fp8
