// The kernels of this crate on the host, thread by thread, compared with the host's casts: the same codes, scales and
// counts in every layout, also at sizes that are not multiples of a tile.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "codes.h"
#include "cuda.h"
#include "device_cast.h"
#include "fp8/quant/tile_sizes.h"
#include "shim_launches.h"

namespace fp8::quant {
namespace {

using dtype::Bf16;
using dtype::DType;
using tensor::Tensor;

constexpr Cast kTensorE4m3{DType::e4m3, Granularity::tensor}, kTensorE5m2{DType::e5m2, Granularity::tensor},
    kRowE4m3{DType::e4m3, Granularity::row}, kRowE5m2{DType::e5m2, Granularity::row};

// A context of type CUDA with host memory.
struct Device {
  Device() : arena(std::size_t{1} << 22, device::DeviceType::host) {
    context.device = device::DeviceType::cuda;
    context.arena = &arena;
  }
  device::Arena arena;
  Context context;
};

struct Size {
  std::int64_t rows, cols;
};
// 260 columns: rows of bf16 begin at multiples of 8 bytes, rows of codes at multiples of 4.
constexpr Size kSizes[] = {{1, 1}, {15, 17}, {33, 16}, {128, 128}, {129, 257}, {130, 260}, {3, 300}, {260, 8}};

TEST(QuantizeCuda, CodesScalesAndCountsEqualTheHosts) {
  for (const Size size : kSizes)
    for (const DType type : {DType::f32, DType::bf16})
      for (const CastPair& casts :
           {CastPair{kTensorE5m2, kTensorE5m2}, CastPair{kRowE4m3, kRowE5m2}, CastPair{kTensorE4m3, kTensorE5m2},
            CastPair{kRowE4m3, kTensorE4m3}, CastPair{kRowE4m3, {}}})
        for (const Layout layout : {Layout::contiguous, Layout::strided_rows}) {
          const Matrix x(type, size.rows, size.cols, layout);
          Host host;
          Device device;
          CastCounts counts, expected;
          const CastOptions options{size.rows % 2 == 0, &expected};
          const QuantizedPair on_host = quantize_both(host.context, x.view, casts, options);
          const QuantizedPair bytes = cuda::quantize(device.context, x.view, casts, {options.power_of_2, &counts});
          expect_same(bytes.last, on_host.last);
          if (casts.first.fp8()) expect_same(bytes.first, on_host.first);
          EXPECT_EQ(counts.elements, expected.elements);
          EXPECT_EQ(counts.underflowed, expected.underflowed);
          EXPECT_EQ(counts.saturated, expected.saturated);
        }
}

// Tiles that are whole, with aligned rows, beside tiles that are not; `offset` elements before the matrix, so that its
// rows are or are not aligned.
TEST(QuantizeCuda, WholeTilesEqualTheHosts) {
  constexpr std::int64_t kRows = 260, kCols = 264;
  for (const DType type : {DType::f32, DType::bf16})
    for (const std::int64_t offset : {0, 3})
      for (const CastPair& casts : {CastPair{kTensorE5m2, kTensorE5m2}, CastPair{kRowE4m3, kRowE4m3},
                                    CastPair{kTensorE4m3, kTensorE5m2}, CastPair{{}, kRowE5m2}}) {
        const Matrix wide(type, kRows, kCols + 2 * 8);
        const View x = wide.view.columns(offset, offset + kCols);
        Host host;
        Device counted, uncounted;
        CastCounts counts, expected;
        const QuantizedPair on_host = quantize_both(host.context, x, casts, {.counts = &expected}),
                            bytes = cuda::quantize(counted.context, x, casts, {.counts = &counts}),
                            same_bytes = cuda::quantize(uncounted.context, x, casts, {});
        for (const QuantizedPair& q : {bytes, same_bytes}) {
          if (casts.last.fp8()) expect_same(q.last, on_host.last);
          expect_same(q.first, on_host.first);
        }
        EXPECT_EQ(counts.elements, expected.elements);
        EXPECT_EQ(counts.underflowed, expected.underflowed);
        EXPECT_EQ(counts.saturated, expected.saturated);
      }
}

// A known scale that saturates and underflows, with the amax recorded in the same pass, without NaN.
TEST(QuantizeCuda, WholeTilesWithAKnownScale) {
  for (const std::int64_t rows : {256, 130})
    for (const bool counts_wanted : {false, true}) {
      Matrix x(DType::bf16, rows, 256);
      x.set(rows - 1, 255, std::numeric_limits<float>::quiet_NaN());
      x.set(0, 3, -77.0f);
      const Tensor scale(DType::f32, {1}), inverse(DType::f32, {1}), amax(DType::f32, {1}), host_amax(DType::f32, {1});
      *scale.as<float>() = 300.0f;
      *inverse.as<float>() = 1 / 300.0f;
      CastCounts counts, expected;
      Host host;
      Device device;
      const CastPair casts{kTensorE4m3, kTensorE4m3};
      const KnownScale known{scale.view(), inverse.view(), amax.view()},
          host_known{scale.view(), inverse.view(), host_amax.view()};
      const QuantizedPair on_host =
                              quantize_both(host.context, x.view, casts, {.counts = &expected, .known = host_known}),
                          bytes = cuda::quantize(device.context, x.view, casts,
                                                 {.counts = counts_wanted ? &counts : nullptr, .known = known});
      expect_same(bytes.last, on_host.last);
      expect_same(bytes.first, on_host.first);
      EXPECT_EQ(*amax.as<float>(), 77.0f);
      EXPECT_EQ(*host_amax.as<float>(), 77.0f);
      EXPECT_GT(expected.saturated, 0);
      EXPECT_EQ(counts.elements, counts_wanted ? rows * 256 : 0);
      EXPECT_EQ(counts.saturated, counts_wanted ? expected.saturated : 0);
      EXPECT_EQ(counts.underflowed, counts_wanted ? expected.underflowed : 0);
    }
}

// The amax that a cast records is in each row and column of a patch, with each warp, and in tiles that are not whole.
TEST(QuantizeCuda, MaximaOfACastInEveryPlace) {
  constexpr std::int64_t kRows = kTile + 2, kCols = kTile + 8;
  const Tensor scale(DType::f32, {1}), amax(DType::f32, {1});
  *scale.as<float>() = 1.0f;
  Device device;
  for (const DType type : {DType::f32, DType::bf16}) {
    Matrix x(type, kRows, kCols);
    const auto expect_found = [&](std::int64_t r, std::int64_t c) {
      const float before = x.at(r, c);
      x.set(r, c, -77.0f);
      *amax.as<float>() = 0;
      device.arena.release(0);
      cuda::quantize(device.context, x.view, {kTensorE4m3, {}}, {.known = {scale.view(), scale.view(), amax.view()}});
      EXPECT_EQ(*amax.as<float>(), 77.0f) << r << ", " << c;
      x.set(r, c, before);
    };
    for (std::int64_t p = 0; p < kGroups; ++p)
      expect_found(p * kPiece + p % kPiece, p * 11 % kGroups * kPiece + (p * 3 + p / kPiece) % kPiece);
    expect_found(kRows - 1, 3);
    expect_found(5, kCols - 1);
    expect_found(kRows - 2, kCols - 3);
  }
}

constexpr Cast kRow128{DType::e4m3, Granularity::block1x128}, kSquare128{DType::e4m3, Granularity::block128x128},
    kRow32{DType::e4m3, Granularity::block1x32}, kRow32E5m2{DType::e5m2, Granularity::block1x32};

constexpr Size kBlockSizes[] = {{1, 1}, {33, 16}, {128, 128}, {129, 257}, {40, 600}, {300, 31}, {256, 264}};

// Codes and scales of 128-blocks are those of the host, also beside a cast without blocks.
TEST(QuantizeCuda, BlocksEqualTheHosts) {
  for (const Size size : kBlockSizes)
    for (const DType type : {DType::f32, DType::bf16})
      for (const CastPair& casts :
           {CastPair{kRow128, kRow128}, CastPair{kSquare128, kSquare128}, CastPair{kRow128, kTensorE5m2},
            CastPair{kRowE4m3, kSquare128}, CastPair{{}, kRow128}})
        for (const bool power_of_2 : {false, true}) {
          Matrix x(type, size.rows, size.cols, size.cols == 264 ? Layout::contiguous : Layout::strided_rows);
          x.set(size.rows / 2, size.cols / 2, std::numeric_limits<float>::quiet_NaN());
          x.set(size.rows - 1, size.cols - 1, -std::numeric_limits<float>::infinity());
          Host host;
          Device device;
          CastCounts counts, expected;
          const QuantizedPair on_host =
              quantize_both(host.context, x.view, casts, {.power_of_2 = power_of_2, .counts = &expected});
          const QuantizedPair bytes =
              cuda::quantize(device.context, x.view, casts, {.power_of_2 = power_of_2, .counts = &counts});
          if (casts.last.fp8()) expect_same(bytes.last, on_host.last);
          if (casts.first.fp8()) expect_same(bytes.first, on_host.first);
          EXPECT_EQ(counts.elements, expected.elements);
          EXPECT_EQ(counts.underflowed, expected.underflowed);
          EXPECT_EQ(counts.saturated, expected.saturated);
        }
}

// Blocks of 32, and others on request, become values times their scales, like on the host.
TEST(QuantizeCuda, EmulatedBlocksEqualTheHosts) {
  for (const Size size : kBlockSizes)
    for (const CastPair& casts : {CastPair{kRow128, kRow128}, CastPair{kSquare128, kSquare128},
                                  CastPair{kRow32, kRow32E5m2}, CastPair{kRow32, {}}}) {
      const Matrix x(DType::bf16, size.rows, size.cols);
      Host host;
      Device device;
      device::Arena dry_arena;
      const CastOptions options{.power_of_2 = true, .emulate = casts.last.granularity != Granularity::block1x32};
      const QuantizedPair on_host = quantize_both(host.context, x.view, casts, {.power_of_2 = true, .fold = true});
      const QuantizedPair emulated = cuda::quantize(device.context, x.view, casts, options);
      ASSERT_TRUE(on_host.last.folded);
      expect_folded(emulated.last, on_host.last);
      if (casts.first.fp8()) expect_folded(emulated.first, on_host.first);
      Context dry = device.context.with(dry_arena);
      dry.dry = true;
      plan_pair(dry, x.view, casts, options, nullptr);
      EXPECT_EQ(dry_arena.peak(), device.arena.peak());
    }
}

// Without powers of two the products are f32.
TEST(QuantizeCuda, EmulatedBlocksInF32) {
  const Matrix x(DType::bf16, 129, 257);
  Host host;
  Device device;
  const Quantized on_host = quantize(host.context, x.view, kRow128, ContractionAxis::last, {}),
                  emulated = cuda::quantize(device.context, x.view, {kRow128, {}}, {.emulate = true}).last;
  expect_same_scales(emulated, on_host);
  ASSERT_EQ(emulated.codes.dtype, DType::f32);
  for (std::int64_t r = 0; r < 129; ++r)
    for (std::int64_t c = 0; c < 257; ++c) {
      const float inverse =
          on_host.inverse_scale.as<float>()[r * on_host.scale.stride[0] + c / 128 * on_host.scale.stride[1]];
      const float code = dtype::to_float(on_host.codes.as<Bf16>()[r * 257 + c]);
      ASSERT_EQ(emulated.codes.as<float>()[r * emulated.codes.stride[0] + c], code * inverse);
    }
}

// A NaN makes a block of 32 NaN, and only that one.
TEST(QuantizeCuda, NanInABlockOf32) {
  Matrix x(DType::bf16, 40, 80);
  x.set(3, 40, std::numeric_limits<float>::quiet_NaN());
  Device device;
  const Quantized q = cuda::quantize(device.context, x.view, {kRow32, {}}, {}).last;
  for (std::int64_t r = 0; r < 40; ++r)
    for (std::int64_t c = 0; c < 80; ++c)
      ASSERT_EQ(std::isnan(dtype::to_float(q.codes.as<Bf16>()[r * q.codes.stride[0] + c])), r == 3 && c / 32 == 1);
}

TEST(QuantizeCuda, OneLayoutEqualsThatOfAPair) {
  const Matrix x(DType::bf16, 40, 75);
  for (const Cast& cast : {kTensorE4m3, kRowE5m2})
    for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first}) {
      const bool last = contract == ContractionAxis::last;
      Host host;
      Device device;
      const CastPair casts{.last = last ? cast : Cast{}, .first = last ? Cast{} : cast};
      const QuantizedPair bytes = cuda::quantize(device.context, x.view, casts, {});
      expect_same(last ? bytes.last : bytes.first, quantize(host.context, x.view, cast, contract, {}));
      EXPECT_TRUE((last ? bytes.first : bytes.last).codes.empty());
    }
}

// For chips without FP8: the BF16 values of the codes, in the layout of the codes.
TEST(QuantizeCuda, EmulatedCodesEqualTheHosts) {
  for (const Size size : kSizes)
    for (const CastPair& casts :
         {CastPair{kTensorE5m2, kTensorE5m2}, CastPair{kRowE4m3, kTensorE4m3}, CastPair{kRowE4m3, {}}}) {
      const Matrix x(DType::bf16, size.rows, size.cols);
      Host host;
      Device device;
      device::Arena dry_arena;
      const QuantizedPair on_host = quantize_both(host.context, x.view, casts, {}),
                          emulated = cuda::quantize(device.context, x.view, casts, {false, nullptr, true});
      expect_emulated(emulated.last, on_host.last);
      if (casts.first.fp8()) expect_emulated(emulated.first, on_host.first);
      Context dry = device.context.with(dry_arena);
      dry.dry = true;
      plan_pair(dry, x.view, casts, {false, nullptr, true}, nullptr);
      EXPECT_EQ(dry_arena.peak(), device.arena.peak());
    }
}

TEST(UpcastCuda, EveryCode) {
  Device device;
  const Tensor codes(DType::u8, {16, 16});
  for (int i = 0; i < 256; ++i) codes.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i);
  for (const DType format : {DType::e4m3, DType::e5m2}) {
    const View values = cuda::upcast(device.context, codes.view(), format);
    for (int i = 0; i < 256; ++i) {
      const auto code = static_cast<std::uint8_t>(i);
      ASSERT_TRUE(same(dtype::to_float(values.as<Bf16>()[i]),
                       format == DType::e4m3 ? dtype::from_e4m3(code) : dtype::from_e5m2(code)))
          << i;
    }
  }
}

TEST(QuantizeCuda, NonFiniteElementsAffectTheSameCodesAsOnTheHost) {
  for (const float poison : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
    Matrix x(DType::bf16, 20, 40);
    x.set(1, 7, poison);
    Host host;
    Device device;
    const CastPair casts{kRowE4m3, kTensorE5m2};
    const QuantizedPair on_host = quantize_both(host.context, x.view, casts, {}),
                        bytes = cuda::quantize(device.context, x.view, casts, {});
    expect_same(bytes.last, on_host.last);
    expect_same(bytes.first, on_host.first);
  }
}

// Under the rule of current an amax leaves out NaN, and an amax of 0 or infinity gives scale 1.
TEST(QuantizeCuda, RuleOfCurrentEqualsTheHosts) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float special : {nan, inf, 0.0f})
    for (const DType type : {DType::f32, DType::bf16}) {
      Matrix x(type, 20, 40);
      x.set(1, 7, special);
      x.set(19, 39, special);
      Host host;
      Device device;
      const CastPair casts{kTensorE4m3, kTensorE5m2};
      const CastOptions options{.rule = ScaleRule::current};
      const QuantizedPair on_host = quantize_both(host.context, x.view, casts, options),
                          bytes = cuda::quantize(device.context, x.view, casts, options);
      expect_same(bytes.last, on_host.last);
      expect_same(bytes.first, on_host.first);
    }
}

// The amax of the whole matrix is the one given, on both devices; a cast by rows beside it computes its own.
TEST(QuantizeCuda, KnownAmaxEqualsTheHosts) {
  for (const CastPair& casts : {CastPair{kTensorE4m3, kTensorE4m3}, CastPair{kTensorE4m3, kTensorE5m2},
                                CastPair{kRowE4m3, kTensorE5m2}, CastPair{kRowE4m3, {}}})
    for (const float known : {0.0f, 3.0f, std::numeric_limits<float>::infinity()}) {
      const Matrix x(DType::bf16, 40, 75);
      const Tensor amax(DType::f32, {1});
      *amax.as<float>() = known;
      Host host;
      Device device;
      const CastOptions options{.rule = ScaleRule::current, .amax = amax.view()};
      const QuantizedPair on_host = quantize_both(host.context, x.view, casts, options),
                          bytes = cuda::quantize(device.context, x.view, casts, options);
      expect_same(bytes.last, on_host.last);
      if (casts.first.fp8()) expect_same(bytes.first, on_host.first);
      EXPECT_EQ(*amax.as<float>(), known);
      const Quantized& whole = casts.last.granularity == Granularity::tensor ? bytes.last : bytes.first;
      if (whole.codes.empty()) continue;
      EXPECT_EQ(*whole.scale.as<float>(), current_scale(known, dtype::max_of(whole.format), false));
    }
}

TEST(QuantizeCuda, DryRunAllocatesTheSameMemory) {
  const Matrix x(DType::bf16, 33, 65);
  Device device;
  device::Arena dry_arena;
  Context dry = device.context.with(dry_arena);
  dry.dry = true;
  cuda::quantize(device.context, x.view, {kRowE4m3, kTensorE4m3}, {});
  plan_pair(dry, x.view, {kRowE4m3, kTensorE4m3}, {}, nullptr);
  EXPECT_EQ(dry_arena.peak(), device.arena.peak());
}

TEST(AmaxCuda, EqualsTheHosts) {
  for (const Size size : kSizes)
    for (const DType type : {DType::f32, DType::bf16})
      for (const Granularity granularity : {Granularity::tensor, Granularity::row})
        for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first}) {
          const Matrix x(type, size.rows, size.cols, Layout::strided_rows);
          const std::int64_t n = granularity == Granularity::tensor  ? 1
                                 : contract == ContractionAxis::last ? size.rows
                                                                     : size.cols;
          const Tensor expected(DType::f32, {n}), out(DType::f32, {n});
          for (std::int64_t i = 0; i < n; ++i) out.as<float>()[i] = 1e30f;  // previous content is ignored
          amax(Context{}, x.view, granularity, contract, expected.view());
          cuda::amax(Context{}, x.view, granularity, contract, out.view(), false);
          for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(out.as<float>()[i], expected.as<float>()[i]);
        }
}

// The largest magnitude is in each place that a thread of a tile can find it in, and beyond the first tile.
TEST(AmaxCuda, MaximaInEveryPlace) {
  constexpr std::int64_t kRows = kAmaxRows + 5, kCols = kAmaxColumns + 8;
  for (const DType type : {DType::f32, DType::bf16}) {
    Matrix x(type, kRows, kCols);
    const auto largest = [&](Granularity granularity, ContractionAxis contract, std::int64_t n) {
      Tensor out(DType::f32, {n});
      cuda::amax(Context{}, x.view, granularity, contract, out.view(), false);
      return out;
    };
    const auto plant = [&](std::int64_t r, std::int64_t c, float value) {
      const float before = x.at(r, c);
      x.set(r, c, value);
      return before;
    };
    for (std::int64_t r = 0; r < kRows; ++r) plant(r, r * 37 % kCols, static_cast<float>(100 + r));
    const Tensor of_rows = largest(Granularity::row, ContractionAxis::last, kRows);
    for (std::int64_t r = 0; r < kRows; ++r) ASSERT_EQ(of_rows.as<float>()[r], static_cast<float>(100 + r)) << r;
    for (std::int64_t c = 0; c < kCols; ++c) plant(c * 53 % kRows, c, static_cast<float>(512 + c % 64 * 4));
    const Tensor of_columns = largest(Granularity::row, ContractionAxis::first, kCols);
    for (std::int64_t c = 0; c < kCols; ++c)
      ASSERT_EQ(of_columns.as<float>()[c], static_cast<float>(512 + c % 64 * 4)) << c;
    for (std::int64_t i = 0; i < 40; ++i) {  // each row of a thread, each element of a piece, each warp
      const std::int64_t r = i < 32 ? i * 4 + i % 4 : kRows - 1 - i % 4, c = (i * 11 + i / 8) % kCols;
      const float before = plant(r, c, -8192.0f);
      ASSERT_EQ(*largest(Granularity::tensor, ContractionAxis::last, 1).as<float>(), 8192.0f) << r << ", " << c;
      plant(r, c, before);
    }
  }
}

// Long matrices, and wide ones, have grids within the limits.
TEST(QuantizeCuda, GridsOfLargeMatrices) {
  const shim::Launches launches(shim::Blocks::none);
  device::Arena arena;  // addresses that no kernel accesses
  const Context context{.device = device::DeviceType::cuda, .arena = &arena};
  float value = 1;
  for (const auto& [rows, cols] : {Size{kTile * 65535, 64}, Size{64, kTile * 65536}}) {
    const auto view = [&value](DType type, std::int64_t m, std::int64_t n) {
      return tensor::make_view(&value, type, device::DeviceType::host, {m, n});
    };
    const View x = view(DType::bf16, rows, cols), codes = view(DType::u8, rows, cols), one = view(DType::f32, 1, 1);
    cuda::quantize(context, x, {kTensorE4m3, kTensorE4m3}, {.known = {one, one, {}}});
    repack(context, codes, ContractionAxis::first);
    cuda::record_amax(context, x, one);
    cuda::quantize(context, x, {kRow128, {}}, {});
  }
  ASSERT_EQ(launches.grids().size(), 8u);
  EXPECT_EQ(launches.grids()[0].y, 65535u);
  EXPECT_EQ(launches.grids()[4].x, 65536u);
}

TEST(QuantizeCuda, CodesThatAreKeptOutliveTheArenasScope) {
  constexpr Cast kBlocks{DType::e4m3, Granularity::block1x128};
  for (const CastPair& casts :
       {CastPair{kTensorE4m3, kTensorE4m3}, CastPair{kRowE4m3, kRowE4m3}, CastPair{kBlocks, kBlocks}}) {
    const Matrix x(DType::bf16, 130, 260);
    Host host;
    Device device;
    CastCounts counts, expected;
    const QuantizedPair on_host = quantize_both(host.context, x.view, casts, {});
    quantize(host.context, x.view, casts.last, ContractionAxis::last, {.counts = &expected});
    quantize(host.context, x.view, casts.first, ContractionAxis::first, {.counts = &expected});
    device::PooledMemory keep(device.arena);
    Quantized kept;
    {
      const device::Scope scope(device.arena);
      const QuantizedPair both = cuda::quantize(device.context, x.view, casts, {.counts = &counts}, &keep);
      expect_same(both.last, on_host.last);
      kept = both.first;
    }
    const View scratch = tensor::allocate(device.context, DType::u8, {1 << 20}, "test");
    std::memset(scratch.data, 0x7f, scratch.bytes());
    expect_same(kept, on_host.first);
    EXPECT_EQ(counts.elements, expected.elements);
    EXPECT_EQ(counts.underflowed, expected.underflowed);
  }
}

TEST(CastToBytesCuda, EqualsTheHosts) {
  for (const Size size : kSizes)
    for (const DType format : {DType::e4m3, DType::e5m2})
      for (const float scale : {0x1p-13f, 3.0f, 1e6f}) {
        const Matrix x(DType::f32, size.rows, size.cols, scale == 3.0f ? Layout::contiguous : Layout::strided_rows);
        const Tensor expected(DType::u8, {size.rows, size.cols}), codes(DType::u8, {size.rows, size.cols});
        CastCounts counts, host_counts;
        cast_to_bytes(Context{}, x.view, format, &scale, expected.view(), &host_counts);
        cuda::cast_to_bytes(Context{}, x.view, format, &scale, codes.view(), &counts);
        for (std::int64_t i = 0; i < size.rows * size.cols; ++i)
          ASSERT_EQ(codes.as<std::uint8_t>()[i], expected.as<std::uint8_t>()[i]);
        EXPECT_EQ(counts.elements, host_counts.elements);
        EXPECT_EQ(counts.saturated, host_counts.saturated);
        EXPECT_EQ(counts.underflowed, host_counts.underflowed);
      }
}

TEST(RepackCuda, MovesBytesAndPadsWithZeros) {
  for (const Size size : {Size{1, 1}, {15, 17}, {33, 16}, {129, 257}, {260, 8}, {130, 132}, {256, 128}, {272, 264}})
    for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first}) {
      const Tensor codes(DType::u8, {size.rows, size.cols});
      for (std::int64_t i = 0; i < size.rows * size.cols; ++i)
        codes.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 37 + 1);
      Device device;
      const View out = repack(device.context, codes.view(), contract);
      const bool by_row = contract == ContractionAxis::last;
      ASSERT_EQ(out.stride[by_row ? 1 : 0], 1);
      EXPECT_EQ(out.data == codes.view().data, by_row && size.cols % 16 == 0);
      const std::int64_t stride = out.stride[by_row ? 0 : 1], length = by_row ? size.cols : size.rows;
      for (std::int64_t line = 0; line < (by_row ? size.rows : size.cols); ++line)
        for (std::int64_t i = 0; i < stride; ++i) {
          const std::int64_t from = by_row ? line * size.cols + i : i * size.cols + line;
          ASSERT_EQ(out.as<std::uint8_t>()[line * stride + i], i < length ? codes.as<std::uint8_t>()[from] : 0);
        }
    }
}

TEST(ScalesCuda, EqualTheHosts) {
  const std::int64_t n = 300;
  const Tensor amax(DType::f32, {n}), scale(DType::f32, {n}), inverse(DType::f32, {n}), s(DType::f32, {n}),
      i(DType::f32, {n});
  Numbers numbers;
  for (std::int64_t k = 0; k < n; ++k) amax.as<float>()[k] = std::fabs(numbers.next());
  amax.as<float>()[1] = std::numeric_limits<float>::infinity();
  amax.as<float>()[2] = std::numeric_limits<float>::quiet_NaN();
  for (const ScaleRule rule : {ScaleRule::torchao, ScaleRule::current})
    for (const bool power_of_2 : {false, true}) {
      const ScaleOptions options{DType::e5m2, rule, power_of_2};
      scales_from_amax(Context{}, amax.view(), options, scale.view(), inverse.view());
      cuda::scales_from_amax(Context{}, amax.view(), options, s.view(), i.view());
      for (std::int64_t k = 0; k < n; ++k) {
        ASSERT_TRUE(same(s.as<float>()[k], scale.as<float>()[k]));
        ASSERT_TRUE(same(i.as<float>()[k], inverse.as<float>()[k]));
      }
    }
}

}  // namespace
}  // namespace fp8::quant
