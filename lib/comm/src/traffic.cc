// Counts of bytes, and their names.
#include "fp8/comm/traffic.h"

#include <numeric>

#include "fp8/base/error.h"

namespace fp8::comm {
namespace {

using dtype::DType;

Element element_of(DType type) {
  if (type == DType::f32) return Element::f32;
  if (type == DType::bf16) return Element::bf16;
  return type == DType::u8 || dtype::is_fp8(type) ? Element::fp8 : Element::other;
}

}  // namespace

std::string_view name_of(Along along) {
  constexpr std::array<std::string_view, SentBytes::kAlongs> kNames{"dp_shard", "dp_replicate", "ep",
                                                                    "tp",       "pp",           "several"};
  return kNames.at(static_cast<std::size_t>(along));
}

std::string_view name_of(Element element) {
  constexpr std::array<std::string_view, SentBytes::kElements> kNames{"f32", "bf16", "fp8", "other"};
  return kNames.at(static_cast<std::size_t>(element));
}

std::int64_t SentBytes::total() const { return std::accumulate(values.begin(), values.end(), std::int64_t{0}); }

SentBytes SentBytes::operator-(const SentBytes& before) const {
  SentBytes since = *this;
  for (std::size_t i = 0; i < values.size(); ++i) since.values[i] -= before.values[i];
  return since;
}

void Traffic::add(Along along, DType type, std::int64_t bytes) { sent_.of(along, element_of(type)) += bytes; }

void Traffic::add_all_reduce(Along along, const Communicator& group, DType type, std::int64_t elements) {
  const std::int64_t ranks = group.size(), own = elements / ranks + (group.rank() < elements % ranks ? 1 : 0);
  add(along, type, static_cast<std::int64_t>(dtype::size_of(type)) * (elements - own + (ranks - 1) * own));
}

}  // namespace fp8::comm
