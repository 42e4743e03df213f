/// Helpers of the kernels of this crate: element-wise loops over rows of views in groups of adjacent elements, sums
/// over a team of threads. Private to this crate.
#pragma once

#include "fp8/device/groups.h"
#include "fp8/ops/amax.h"
#include "rows.h"

namespace fp8::ops {

using device::Bits;
using device::bits_of;
using device::floats_of;
using device::Group;
using device::load;
using device::load_bits;
using device::load_floats;
using device::store;
using device::store_bits;
using device::store_floats;
using dtype::from_float;
using dtype::to_float;

inline constexpr int kWide = 8;        ///< elements of a group: 16 bytes of bf16, twice 16 bytes of f32
inline constexpr int kThreads = 256;   ///< threads of a block, with some exceptions
inline constexpr int kBlocksEach = 8;  ///< blocks of kThreads that a multiprocessor holds at once

/// Adds the W elements from p on to `sum`; alignment as device::load_bits().
template <int W, class T>
__device__ inline void add_floats(const T* p, Group<float, W>& sum) {
  const Group<float, W> v = load_floats<W>(p);
  FP8_UNROLL
  for (int j = 0; j < W; ++j) sum.at[j] += v.at[j];
}

/// Maximum, for warp_combine() and block_combine(); the second value if one is NaN.
struct Larger {
  /// The larger value.
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a > b ? a : b;
  }
};

/// Where a kernel records the largest magnitude that its threads write; see Amax.
struct AmaxOf {
  unsigned* bits;  ///< bits of the amax, or null if none is wanted
  bool skip_nan;
  /// Refers to element `index` of the amaxes.
  explicit AmaxOf(const Amax& amax, int index = 0)
      : bits(amax.value.empty() ? nullptr : static_cast<unsigned*>(amax.value.data) + index), skip_nan(amax.skip_nan) {}
  /// Records the amax over all Threads threads of a block.
  template <int Threads>
  __device__ void record(const device::Largest& largest) const {
    if (bits != nullptr) largest.record<Threads>(bits);
  }
};

/// Whether every row of a view with unit last stride begins at a multiple of 16 bytes; true for an empty view.
inline bool packs(const View& v) {
  const auto bytes = static_cast<std::int64_t>(dtype::size_of(v.dtype));
  bool all = reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0;
  for (int d = 0; d < v.rank - 1; ++d) {
    const auto at = static_cast<std::size_t>(d);
    all = all && (v.shape[at] <= 1 || v.stride[at] * bytes % 16 == 0);
  }
  return all;
}

/// Calls op.row(i).at<W>(c) for groups of W elements from column c of row i on, and then op.finish(), if it exists, of
/// the thread's copy of op. Adjacent threads process adjacent groups; `lanes` threads of a block share a row.
template <int W, class Op>
__global__ void each_kernel(Op op, std::int64_t rows, std::int64_t columns, int lanes) {
  const int lane = static_cast<int>(threadIdx.x) % lanes, side = static_cast<int>(threadIdx.x) / lanes;
  const int sides = static_cast<int>(blockDim.x) / lanes;
  const std::int64_t whole = columns / W * W, step = static_cast<std::int64_t>(gridDim.x) * lanes * W;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * sides + side; i < rows;
       i += static_cast<std::int64_t>(gridDim.y) * sides) {
    const auto row = op.row(i);
    for (std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * lanes + lane) * W; c < whole; c += step)
      row.template at<W>(c);
    if (W > 1 && blockIdx.x == 0 && lane < columns - whole) row.template at<1>(whole + lane);
  }
  if constexpr (requires { op.finish(); }) op.finish();
}

/// Launches each_kernel on rows x columns; `packed`: groups of W elements are aligned in all views.
template <int W = kWide, class Launcher, class Op>
void for_each(const Launcher& launch, const char* name, const Op& op, std::int64_t rows, std::int64_t columns,
              bool packed) {
  if (rows == 0 || columns == 0) return;
  const std::int64_t groups = packed ? divide_up(columns, W) : columns;
  int lanes = W;  // not fewer, because they also process the remaining columns
  while (lanes < kThreads && lanes < groups) lanes *= 2;
  void (*const kernel)(Op, std::int64_t, std::int64_t, int) = packed ? each_kernel<W, Op> : each_kernel<1, Op>;
  const std::int64_t most = launch.places(kernel, kThreads);
  const std::int64_t x = std::min(divide_up(groups, lanes), most);
  const std::int64_t y = std::min({divide_up(rows, kThreads / lanes), most / x, std::int64_t{65535}});
  launch(name, dim3(static_cast<unsigned>(x), static_cast<unsigned>(y)), dim3(kThreads), kernel, op, rows, columns,
         lanes);
}

/// Sum over a team of threads (one warp, or the whole block); all get the same bits.
template <int Team>
__device__ inline float team_sum(float v) {
  if constexpr (Team == device::kWarp) {
    return device::warp_combine(v, device::Add{});
  } else {
    return device::block_combine<Team>(v, device::Add{});
  }
}

}  // namespace fp8::ops
