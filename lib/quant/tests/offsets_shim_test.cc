// Offsets of the kernels that cast, in matrices that are too large to run whole.
#include "cuda_shim.h"
//
#include <gtest/gtest.h>

#include <tuple>

#include "codes.h"
#include "cuda.h"
#include "decode.cuh"
#include "far_rows.h"
#include "fp8/quant/block_scale.cuh"

namespace fp8::quant {
namespace {

using dtype::Bf16;
using dtype::DType;
using tensor::Tensor;

// The last tile, of n rows and columns, of a matrix of more than 2^32 elements: offsets of elements, codes and values
// need more than 32 bits.
template <class T>
struct LastTile {
  std::int64_t n;
  DType type = std::is_same_v<T, float> ? DType::f32 : DType::bf16;
  std::int64_t rows = (std::int64_t{1} << 20) - kTile + n, cols = 32 * kTile - kTile + n;
  dim3 grid{blocks_for(cols, kTile), blocks_for(rows, kTile)}, threads{kCastThreads};
  Matrix x{type, n, n};
  test::FarRows far{type, rows, cols}, by_row{DType::u8, rows, cols}, by_column{DType::u8, cols, rows};
  Tensor codes{DType::u8, {n, n}};
  shim::Launcher launch{};

  Source<T> source() const { return {far.view.as<T>(), rows, cols, far.view.stride[0]}; }
  static CodeLines lines(const test::FarRows& to) { return {to.view.as<std::uint8_t>(), to.view.stride[0]}; }
  void expect_codes(const test::FarRows& in, bool transposed) const {
    const Tensor got(DType::u8, {n, n});
    in.get(got.view());
    for (std::int64_t r = 0; r < n; ++r)
      for (std::int64_t c = 0; c < n; ++c)
        ASSERT_EQ(got.as<std::uint8_t>()[transposed ? c * n + r : r * n + c], codes.as<std::uint8_t>()[r * n + c]);
  }
  void casts() {
    far.put(x.view);
    const float scale = 3.0f;
    cast_to_bytes(Context{}, x.view, DType::e4m3, &scale, codes.view(), nullptr);
    launch("cast", grid, threads, cast_kernel<Source<T>, dtype::E4m3Grid, false>, source(),
           Target{lines(by_row), &scale, {}}, Target{lines(by_column), &scale, {}}, true, nullptr, nullptr);
    expect_codes(by_row, false);
    expect_codes(by_column, true);
    const test::FarRows moved(DType::u8, rows, cols), across(DType::u8, cols, rows);
    launch("codes", grid, threads, repack_kernel<std::uint8_t>,
           Source<std::uint8_t>{by_row.view.as<std::uint8_t>(), rows, cols, by_row.view.stride[0]}, lines(moved),
           lines(across));
    expect_codes(moved, false);
    expect_codes(across, true);
  }
  // Amaxes of rows and columns, and the scales of the only block in each row and in each column of the tile.
  void scales() {
    const Tensor of_row(DType::f32, {rows}), of_column(DType::f32, {cols}), inverse(DType::f32, {rows}),
        row(DType::f32, {n}), column(DType::f32, {n});
    const auto expect_equal = [&] {
      for (std::int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(of_row.as<float>()[rows - n + i], row.as<float>()[i]);
        ASSERT_EQ(of_column.as<float>()[cols - n + i], column.as<float>()[i]);
      }
    };
    for (const auto& [contract, of_far, of_near] :
         {std::tuple{ContractionAxis::last, &of_row, &row}, {ContractionAxis::first, &of_column, &column}}) {
      cuda::amax({}, far.view, Granularity::row, contract, of_far->view(), false);
      cuda::amax({}, x.view, Granularity::row, contract, of_near->view(), false);
    }
    expect_equal();
    const auto blocks = [&](const Tensor& to, bool by_rows) {
      return BlockScales{to.as<float>(),
                         inverse.as<float>() + (by_rows ? 0 : rows / 2),
                         {.line_stride = 1, .along_shift = kTileShift},
                         {}};
    };
    const auto scale_blocks = [&](dim3 tiles, const Source<T>& from, const Tensor& rows_to, const Tensor& columns_to) {
      launch("cast", tiles, threads, block_cast_kernel<Source<T>, dtype::E4m3Grid, false>, from, Target{}, Target{},
             TileScales{blocks(rows_to, true), blocks(columns_to, false)}, false, static_cast<unsigned*>(nullptr),
             static_cast<unsigned long long*>(nullptr));
    };
    scale_blocks(grid, source(), of_row, of_column);
    scale_blocks(dim3(1), {x.view.as<T>(), n, n, x.view.stride[0]}, row, column);
    expect_equal();
  }
  // The codes as values, with a scale and without.
  void values() {
    const test::FarRows to(type, rows, cols);
    const Tensor got(type, {n, n});
    const auto expect_values = [&](std::int64_t first, float by) {
      to.get(got.view());
      for (std::int64_t i = first; i < n * n; ++i)
        ASSERT_EQ(dtype::to_float(got.as<T>()[i]), by * dtype::from_e4m3(codes.as<std::uint8_t>()[i])) << i;
    };
    const float half = 0.5f;
    launch("fold", grid, threads, fold_kernel<dtype::E4m3Grid, T>, lines(by_row), rows, cols, &half, ScaleGrid{},
           to.view.as<T>());
    expect_values(0, half);
    const std::int64_t size = (rows - 1) * by_row.view.stride[0] + cols;
    launch("upcast", dim3(blocks_for(size, kCastThreads * kPiece)), threads, upcast_kernel<dtype::E4m3Grid, T>,
           by_row.view.as<std::uint8_t>(), size, to.view.as<T>());
    expect_values(n * n - 8, 1.0f);  // at least these are in the last block
  }
  void all() {
    const shim::Launches launches(shim::Blocks::last);
    casts();
    scales();
    values();
  }
};
TEST(QuantizeCuda, OffsetsBeyond32Bits) {
  for (const std::int64_t n : {kTile, kTile - 9}) {
    LastTile<float>{n}.all();
    LastTile<Bf16>{n}.all();
  }
}

}  // namespace
}  // namespace fp8::quant
