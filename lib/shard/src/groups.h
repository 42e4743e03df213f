// Tensors of one unit by the ranks that share them, and the buffers that units share. Private to the crate.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "fp8/shard/layout.h"

namespace fp8::shard {

// The ranks that share the parameters of a slot.
inline comm::Communicator& group_of(const comm::Mesh& mesh, const SlotLayout& s) {
  return s.of_experts ? mesh.expert_shards() : mesh.shards();
}

// The buffer of a unit: its own, or one of four. Of these the first and the last unit have one each, and layers
// alternate between two.
inline std::size_t buffer_of(const Layout& layout, int unit, bool every_unit) {
  if (every_unit) return static_cast<std::size_t>(unit);
  if (unit == 0) return 0;
  if (unit + 1 == layout.unit_count()) return 1;
  return 2 + static_cast<std::size_t>(unit % 2);
}

// The number of buffers that buffer_of() may need.
inline std::size_t number_of_buffers(const Layout& layout) { return std::max<std::size_t>(4, layout.units().size()); }

// The largest size of a slot in any unit, for a buffer that layers share: adapters may differ in number.
template <class Size>
std::int64_t largest(const Layout& layout, std::size_t slot, const Size& size_of) {
  std::int64_t most = 0;
  for (const UnitLayout& unit : layout.units()) most = std::max<std::int64_t>(most, size_of(unit[slot]));
  return most;
}

// Tensors by the ranks that share them, for one collective of each group.
using ByGroup = std::vector<std::pair<comm::Communicator*, std::vector<Sharded>>>;

inline void add(ByGroup& all, comm::Communicator& group, const Sharded& tensor) {
  auto found = std::ranges::find(all, &group, &ByGroup::value_type::first);
  if (found == all.end()) found = all.insert(found, {&group, {}});
  found->second.push_back(tensor);
}

// Bytes of the whole tensors.
inline double bytes_of_whole(const std::vector<Sharded>& tensors) {
  double bytes = 0;
  for (const Sharded& tensor : tensors) bytes += tensor::bytes_of(tensor.whole);
  return bytes;
}

}  // namespace fp8::shard
