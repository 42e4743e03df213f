// Converts row ranges to blocks of bytes and floats for the communicator.
#include "fp8/shard/shard.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "fp8/base/error.h"

namespace fp8::shard {
namespace {

/// Elements of one row.
std::int64_t columns_of(const View& v) {
  std::int64_t n = 1;
  for (int d = 1; d < v.rank; ++d) n *= v.shape[static_cast<std::size_t>(d)];
  return n;
}

/// Throws Error unless `mine` has the shape, type and device of this rank's rows of `all`.
void check(const comm::Communicator& device_comm, const View& mine, const View& all, const std::string& what) {
  if (all.rank < 1) throw Error(what + ": a scalar has no rows");
  if (mine.dtype != all.dtype || mine.device != all.device)
    throw Error(what + ": the shard and the tensor differ in type or device");
  if (!mine.contiguous() || !all.contiguous()) throw Error(what + ": needs contiguous views");
  const bool same_columns =
      mine.rank == all.rank && std::equal(mine.shape.begin() + 1, mine.shape.begin() + all.rank, all.shape.begin() + 1);
  if (!same_columns || mine.shape[0] != rows_of(all.shape[0], device_comm.rank(), device_comm.size()).count()) {
    throw Error(what + ": the shard does not have this rank's rows of the tensor");
  }
}

}  // namespace

RowRange rows_of(std::int64_t rows, int rank, int size) {
  if (rows < 0 || rank < 0 || rank >= size) throw Error("rows of a rank: negative rows or rank outside the group");
  const std::int64_t each = rows / size, more = rows % size;
  const std::int64_t begin = each * rank + std::min<std::int64_t>(rank, more);
  return {begin, begin + each + (rank < more ? 1 : 0)};
}

std::vector<std::int64_t> blocks_of(std::int64_t rows, std::int64_t row, int size) {
  std::vector<std::int64_t> blocks;
  for (int r = 0; r < size; ++r) blocks.push_back(rows_of(rows, r, size).count() * row);
  return blocks;
}

comm::Request start_gathers(comm::Communicator& device_comm, std::span<const Sharded> tensors) {
  std::vector<comm::GatheredTensor> all;
  for (const auto& [mine, whole] : tensors) {
    check(device_comm, mine, whole, "gather");
    const std::int64_t row = columns_of(whole) * static_cast<std::int64_t>(size_of(whole.dtype));
    all.push_back({static_cast<const std::byte*>(mine.data), static_cast<std::byte*>(whole.data),
                   blocks_of(whole.shape[0], row, device_comm.size())});
  }
  return device_comm.start_all_gathers(all);
}

comm::Request start_reduce_scatters(comm::Communicator& device_comm, std::span<const Sharded> tensors) {
  std::vector<comm::ScatteredTensor> all;
  for (const auto& [mine, whole] : tensors) {
    check(device_comm, mine, whole, "reduce-scatter");
    all.push_back(
        {whole.as<float>(), mine.as<float>(), blocks_of(whole.shape[0], columns_of(whole), device_comm.size())});
  }
  return device_comm.start_reduce_scatters(all);
}

}  // namespace fp8::shard
