// Prefix sums of block sizes, checked.
#include "blocks.h"

#include "fp8/base/checked.h"

namespace fp8::comm {

std::vector<std::int64_t> offsets_of(std::span<const std::int64_t> sizes, int ranks, const std::string& what) {
  if (!std::cmp_equal(sizes.size(), ranks)) throw Error(what + ": needs one block size for each rank");
  std::vector<std::int64_t> offsets{0};
  for (const std::int64_t size : sizes) {
    if (size < 0) throw Error(what + ": negative block size");
    offsets.push_back(checked_add(offsets.back(), size, what));
  }
  return offsets;
}

}  // namespace fp8::comm
