// Every layout is one loop over runs, the longest parts that are contiguous in both places. A block of whole rows is
// one run, read straight to its place.
#include "read_block.h"

#include <algorithm>

namespace fp8::ckpt {
namespace {

// The runs of a box in a row-major array of `shape`, in the order of the box.
struct Runs {
  std::size_t axis = 0;               // the last dimension in which the box has not all indices, or 0
  std::uint64_t start = 0;            // place of run 0, in bytes
  std::uint64_t bytes = 0;            // of each run
  std::uint64_t count = 1;            // the product of the extents before `axis`
  std::vector<std::uint64_t> extent;  // of the box
  std::vector<std::uint64_t> stride;  // of the array, in bytes

  // Place of a run in the array, in bytes.
  std::uint64_t place(std::uint64_t run) const {
    std::uint64_t at = start;
    for (std::size_t d = axis; d-- > 0; run /= extent[d]) at += run % extent[d] * stride[d];
    return at;
  }
};

Runs runs_of(const std::vector<std::int64_t>& shape, const Block& box, std::uint64_t element_bytes) {
  Runs runs;
  runs.extent.assign(box.extent.begin(), box.extent.end());
  runs.stride.assign(shape.size(), element_bytes);
  for (std::size_t d = shape.size() - 1; d > 0; --d)
    runs.stride[d - 1] = runs.stride[d] * static_cast<std::uint64_t>(shape[d]);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    runs.start += static_cast<std::uint64_t>(box.offset[d]) * runs.stride[d];
    if (box.extent[d] != shape[d]) runs.axis = d;
  }
  runs.bytes = runs.extent[runs.axis] * runs.stride[runs.axis];
  for (std::size_t d = 0; d < runs.axis; ++d) runs.count *= runs.extent[d];
  return runs;
}

}  // namespace

void read_block(const h5::Reader& file, const TensorMeta& meta, const Block& block, std::int64_t begin,
                std::int64_t end, std::span<std::byte> out) {
  const std::int64_t first = std::max(begin, block.begin_row()), last = std::min(end, block.end_row());
  if (first >= last) return;
  std::vector<std::int64_t> shape = meta.shape;
  Block box = block;
  if (shape.empty()) shape = {1}, box = {{0}, {1}};
  shape.front() = end - begin;
  box.offset.front() = first - begin;
  box.extent.front() = last - first;
  const Runs runs = runs_of(shape, box, dtype::size_of(meta.dtype));
  const h5::Entry& entry = file.at(meta.name);
  std::uint64_t from = entry.offset + static_cast<std::uint64_t>(first - block.begin_row()) * entry.row_bytes();
  const std::uint64_t step = std::max<std::uint64_t>(1, kReadPiece / runs.bytes);
  std::vector<std::byte> buffer;
  for (std::uint64_t r = 0; r < runs.count; r += step) {
    const std::uint64_t n = std::min(step, runs.count - r);
    if (n == 1) {
      file.file().pread_exact(out.subspan(runs.place(r), runs.bytes), from);
    } else {
      buffer.resize(n * runs.bytes);
      file.file().pread_exact(buffer, from);
      for (std::uint64_t i = 0; i < n; ++i)
        std::copy_n(buffer.begin() + static_cast<std::ptrdiff_t>(i * runs.bytes), runs.bytes,
                    out.subspan(runs.place(r + i)).begin());
    }
    from += n * runs.bytes;
  }
}

}  // namespace fp8::ckpt
