// Whether blocks cover a tensor exactly once. Let f be, for each element, the number of blocks that contain it. The
// mixed difference of f over all dimensions determines f; it is a sum of units at the corners of the blocks, positive
// where an even number of coordinates is one past the end of the block, else negative. So f is 1 everywhere exactly if,
// at each point, the units of the blocks cancel those of the whole tensor with the opposite sign. The first point in
// storage order at which they do not is the first element with f != 1, and the rest there is f - 1, because f is the
// sum of the units at all points up to an element, and those before this one are 0. n blocks take n log n time in any
// arrangement.
#include <algorithm>
#include <array>

#include "fp8/base/error.h"
#include "manifest.h"

namespace fp8::ckpt {
namespace {

// A corner of a block and its sign.
struct Corner {
  std::array<std::int64_t, h5::kMaxRank> at{};
  std::int64_t sign = 1;
};

// The dimensions in which a block has not all indices; the others need no corners.
std::vector<std::size_t> divided(const TensorPlaces& tensor) {
  std::vector<std::size_t> dimensions;
  for (std::size_t d = 0; d < tensor.meta.shape.size(); ++d)
    if (std::any_of(tensor.blocks.begin(), tensor.blocks.end(),
                    [&](const BlockPlace& b) { return b.block.extent[d] != tensor.meta.shape[d]; }))
      dimensions.push_back(d);
  return dimensions;
}

void add_corners(const Block& block, const std::vector<std::size_t>& dimensions, std::int64_t sign,
                 std::vector<Corner>& corners) {
  for (std::size_t past = 0; past < std::size_t{1} << dimensions.size(); ++past) {
    Corner corner{{}, sign};
    for (std::size_t i = 0; i < dimensions.size(); ++i) {
      const std::size_t d = dimensions[i];
      const bool end = (past >> i & 1) != 0;
      corner.at[d] = block.offset[d] + (end ? block.extent[d] : 0);
      if (end) corner.sign = -corner.sign;
    }
    corners.push_back(corner);
  }
}

std::string corner_name(const Corner& corner, const TensorPlaces& tensor, const std::vector<std::size_t>& dimensions) {
  if (dimensions.empty() || dimensions.back() == 0) return "row " + std::to_string(corner.at[0]);
  std::string text = "element [";
  for (std::size_t d = 0; d < tensor.meta.shape.size(); ++d)
    text.append(d == 0 ? "" : ",").append(std::to_string(corner.at[d]));
  return text + "]";
}

}  // namespace

void check_cover(const TensorPlaces& tensor, const std::string& what) {
  if (std::count(tensor.meta.shape.begin(), tensor.meta.shape.end(), 0) > 0) return;  // no block is valid, none missing
  const std::vector<std::size_t> dimensions = divided(tensor);
  std::vector<Corner> corners;
  add_corners(whole_block(tensor.meta), dimensions, -1, corners);
  for (const BlockPlace& b : tensor.blocks) add_corners(b.block, dimensions, 1, corners);
  std::sort(corners.begin(), corners.end(), [](const Corner& a, const Corner& b) { return a.at < b.at; });
  for (std::size_t i = 0; i < corners.size();) {
    std::int64_t sum = 0;
    const Corner& first = corners[i];
    for (; i < corners.size() && corners[i].at == first.at; ++i) sum += corners[i].sign;
    if (sum != 0)
      throw Error(what + ": " + corner_name(first, tensor, dimensions) +
                  (sum > 0 ? " is in two blocks" : " is in no block"));
  }
}

}  // namespace fp8::ckpt
