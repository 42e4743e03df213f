// A GEMM without scales and bias is one oneDNN call that writes C. Others are computed in tiles of C whose f32 sums are
// still in the cache when the epilogue reads them. With HostSums::fixed, own kernels multiply inputs by weights. The
// scales of oneDNN 2.6 are not used: row scales run in a reference loop 1000 times slower, others in slower kernels,
// and none rounds after each multiplication. With scales for blocks both operands are multiplied in f32.
#include "host.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "fp8/base/checked.h"
#include "fp8/base/round.h"
#include "fp8/dtype/convert.h"
#include "fp8/gemm/row_stride.h"

namespace fp8::gemm {
namespace {

constexpr std::int64_t kTileColumns = 4096;      // a row of sums fits the L1 cache
constexpr std::int64_t kTileElements = 1 << 20;  // 4 MiB of sums
constexpr std::int64_t kTileAlign = 64;          // rows and columns of a tile, so that kernels have no remainders
constexpr std::int64_t kParallelFrom = 16384;    // elements; fewer run on one thread

// Length of equal pieces of `extent`, at most about `limit`, such that no piece has one column only, see HostGemm::run.
// The pieces of an extent that varies have equal lengths in all calls, so that fewer rows do not need more scratch.
std::int64_t piece(std::int64_t extent, std::int64_t limit, bool varies = false) {
  if (varies) return std::min(extent, varying_piece(limit));
  const std::int64_t pieces = divide_up(extent, limit);
  const std::int64_t length = round_up(divide_up(extent, pieces), kTileAlign);
  return pieces <= 1 ? extent : extent % length == 1 ? length + kTileAlign : length;
}

// Where the piece after the one at `at` begins. A dry run visits the first two pieces and the last: between them all
// have the shape of the second.
std::int64_t next_piece(bool dry, std::int64_t at, std::int64_t length, std::int64_t extent) {
  const std::int64_t next = at + length;
  return dry && at > 0 ? std::max(next, (extent - 1) / length * length) : next;
}

View tile_of_sums(void* data, std::int64_t rows, std::int64_t columns) {
  return tensor::make_view(data, DType::f32, device::DeviceType::host, {rows, columns});
}

}  // namespace

HostGemm::HostGemm(HostBf16 bf16, HostSums sums)
    : upcast_(bf16 == HostBf16::upcast || (bf16 == HostBf16::detect && !PlanCache::fast_bf16())),
      fixed_(sums == HostSums::fixed) {}

std::size_t HostGemm::scratch_bytes() const {
  return planned_.scratch_bytes() + sums_.bytes() + a_.bytes() + b_.bytes() + dense_a_.bytes() + dense_b_.bytes() +
         row_products_.scratch_bytes() + tensor_core_.scratch_bytes();
}

void HostGemm::run(bool dry, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options) {
  if (c.size() == 0) return;
  varying_ = !rows_vary_ ? Varying::none : options.role == GemmRole::wgrad ? Varying::contraction : Varying::rows;
  if (options.accumulation != Accumulation::f32 && kind_of(a.format, b.format) == OperandKind::fp8)
    return tensor_core_.run(dry, a, b, c, options);
  if (a.blocks == ScaleBlocks::none && b.blocks == ScaleBlocks::none) return run_dense(dry, a, b, c, options);
  // A dry run does not know whether the cast will have multiplied codes by their scales, which leaves bf16 operands.
  if (dry && varying_ != Varying::none && a.matrix.dtype == b.matrix.dtype)
    run_dense(true, {a.matrix, a.format, {}}, {b.matrix, b.format, {}}, c, options);
  run_dense(dry, dequantized(dry, a, false, dense_a_), dequantized(dry, b, true, dense_b_), c, options);
}

// The operand in f32, multiplied by the inverse scales of its blocks if it has blocks.
Operand HostGemm::dequantized(bool dry, const Operand& o, bool columns, Scratch& scratch) {
  Operand out = o;
  if (o.blocks == ScaleBlocks::none) {
    out.matrix = upcast(dry, o.matrix, scratch);
    return out;
  }
  const BlockScales from(o, columns);
  const bool by_rows = from.codes.stride[1] == 1;
  const std::int64_t rows = from.codes.shape[by_rows ? 0 : 1], length = from.codes.shape[by_rows ? 1 : 0];
  const std::int64_t stride = row_stride(length);
  View to = tensor::make_view(nullptr, DType::f32, device::DeviceType::host, {rows, stride}).columns(0, length);
  if (!by_rows) to = to.transposed();
  scratch.need(static_cast<std::size_t>(rows * stride) * sizeof(float));
  if (!dry) {
    to.data = scratch.memory();
    dequantize(from, to);
  }
  out.matrix = columns ? to.transposed() : to;
  out.inverse_scale = {};
  out.blocks = ScaleBlocks::none;
  return out;
}

void HostGemm::run_dense(bool dry, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options) {
  const View &left = a.matrix, &right = b.matrix;
  const Epilogue epilogue = epilogue_of(a, b, options);
  if (fixed_ && RowProducts::fits(left, right)) return row_products_.run(dry, left, right, c, epilogue);
  const bool scaled = epilogue.scale_a != nullptr || epilogue.scale_b != nullptr;
  const bool rounded = c.dtype == DType::bf16 && (upcast_ || left.dtype == DType::f32);
  const bool in_parts = c.dtype == DType::bf16 && (left.shape[1] > kLongest || varying_ == Varying::contraction);
  const bool column = c.shape[1] == 1 && c.shape[0] > 1 && c.stride[0] != 1;  // oneDNN 3.7 writes outside of such a C
  if (scaled || rounded || in_parts || column || !epilogue.bias.empty() || left.shape[1] == 0) {
    run_tiles(dry, left, right, c, epilogue);
  } else {
    multiply(dry, left, right, c, options.accumulate);
  }
}

// An f32 copy of a bf16 matrix with the same unit stride and row_stride().
View HostGemm::upcast(bool dry, const View& v, Scratch& scratch) {
  const bool by_columns = v.stride[1] != 1;
  const View from = by_columns ? v.transposed() : v;
  const std::int64_t rows = from.shape[0], columns = from.shape[1];
  const std::int64_t stride = row_stride(columns);
  View to = tensor::make_view(nullptr, DType::f32, device::DeviceType::host, {rows, stride}).columns(0, columns);
  scratch.need(static_cast<std::size_t>(rows * stride) * sizeof(float));
  if (!dry) {
    to.data = scratch.memory();
    const auto n = static_cast<std::size_t>(columns);
    const auto* in = static_cast<const dtype::Bf16*>(from.data);
    auto* out = static_cast<float*>(to.data);
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelFrom)
    for (std::int64_t i = 0; i < rows; ++i) {
      dtype::convert(std::span(in + i * from.stride[0], n), std::span(out + i * stride, n));
    }
  }
  return by_columns ? to.transposed() : to;
}

// A copy of a [1, columns] matrix whose elements are adjacent.
View HostGemm::contiguous_row(bool dry, const View& v, Scratch& scratch) {
  View to = tensor::make_view(nullptr, v.dtype, device::DeviceType::host, {1, v.shape[1]});
  scratch.need(to.bytes());
  if (dry) return to;
  to.data = scratch.memory();
  const auto size = static_cast<std::int64_t>(size_of(v.dtype));
  for (std::int64_t i = 0; i < v.shape[1]; ++i) {
    std::memcpy(static_cast<std::byte*>(to.data) + i * size,
                static_cast<const std::byte*>(v.data) + i * v.stride[1] * size, static_cast<std::size_t>(size));
  }
  return to;
}

// Divides long dimensions: oneDNN packs whole operands, and upcasts are of whole operands, so scratch would grow with
// the vocabulary and not fit the caches. A long contraction is accumulated in c.
void HostGemm::multiply(bool dry, const View& a, const View& b, const View& c, bool accumulate) {
  const std::int64_t m = c.shape[0], n = c.shape[1], k = a.shape[1];
  const std::int64_t rows = piece(m, kLongest, varying_ == Varying::rows), columns = piece(n, kLongest),
                     depth = piece(k, kLongest, varying_ == Varying::contraction);
  for (std::int64_t j = 0; j < n; j = next_piece(dry, j, columns, n)) {
    for (std::int64_t i = 0; i < m; i = next_piece(dry, i, rows, m)) {
      const std::int64_t i_end = std::min(m, i + rows), j_end = std::min(n, j + columns);
      const View part = c.rows(i, i_end).columns(j, j_end);
      for (std::int64_t p = 0; p < k; p = next_piece(dry, p, depth, k)) {
        const std::int64_t p_end = std::min(k, p + depth);
        multiply_once(dry, a.rows(i, i_end).columns(p, p_end), b.rows(p, p_end).columns(j, j_end), part,
                      accumulate || p > 0);
      }
    }
  }
}

void HostGemm::multiply_once(bool dry, const View& a, const View& b, const View& c, bool accumulate) {
  const bool upcast_both = upcast_ && a.dtype == DType::bf16;
  const bool row_apart = a.shape[0] == 1 && a.stride[1] != 1;  // oneDNN 3.7 misreads such an A
  const View left = upcast_both ? upcast(dry, a, a_) : row_apart ? contiguous_row(dry, a, a_) : a;
  const View right = upcast_both ? upcast(dry, b, b_) : b;
  planned_.run_varying(dry, varying_, left, right, c, accumulate);
}

void HostGemm::run_tiles(bool dry, const View& a, const View& b, const View& c, const Epilogue& epilogue) {
  const std::int64_t m = c.shape[0], n = c.shape[1], k = a.shape[1];
  const std::int64_t columns = piece(n, kTileColumns);
  const std::int64_t rows = piece(m, std::max(kTileAlign, kTileElements / columns), varying_ == Varying::rows);
  sums_.need(tile_of_sums(nullptr, rows, columns).bytes());
  // An f32 C holds the sums itself if nothing is added to it.
  const bool in_place = c.dtype == DType::f32 && c.contiguous() && columns == n && !epilogue.accumulate && k > 0;
  std::byte* sums = dry || in_place ? nullptr : sums_.memory();
  for (std::int64_t j = 0; j < n; j = next_piece(dry, j, columns, n)) {
    const std::int64_t j_end = std::min(n, j + columns);
    for (std::int64_t i = 0; i < m; i = next_piece(dry, i, rows, m)) {
      const std::int64_t i_end = std::min(m, i + rows);
      const View part = c.rows(i, i_end).columns(j, j_end),
                 tile = in_place ? part : tile_of_sums(sums, i_end - i, j_end - j);
      if (k > 0) multiply(dry, a.rows(i, i_end), b.columns(j, j_end), tile, false);
      if (dry) continue;
      if (k == 0) std::memset(sums, 0, tile.bytes());
      finish(static_cast<float*>(tile.data), j_end - j, epilogue.shifted(i, j, j_end - j), part);
    }
  }
}

}  // namespace fp8::gemm
