// Casts on a GPU against the host: codes, scales and counts are equal bit for bit, in both layouts, as FP8 and
// emulated.
#include "../../lib/quant/tests/codes.h"
#include "gpu.h"

namespace fp8::quant {
namespace {

using dtype::DType;
using tensor::Tensor;

constexpr Cast kTensorE4m3{DType::e4m3, Granularity::tensor}, kTensorE5m2{DType::e5m2, Granularity::tensor},
    kRowE4m3{DType::e4m3, Granularity::row}, kRowE5m2{DType::e5m2, Granularity::row},
    kRow128{DType::e4m3, Granularity::block1x128}, kSquare128{DType::e4m3, Granularity::block128x128},
    kRow32{DType::e4m3, Granularity::block1x32};

// A copy of a Quantized on the host with the same strides, and its memory.
struct HostCopy {
  Tensor codes, scale, inverse_scale;
  Quantized q;
  HostCopy(test::Gpu& gpu, const Quantized& there) : q(there) {
    const bool by_row = there.contract == ContractionAxis::last;
    const std::int64_t span =
        by_row ? there.codes.shape[0] * there.codes.stride[0] : there.codes.shape[1] * there.codes.stride[1];
    bring(gpu, there.codes, {span}, codes, q.codes);
    bring(gpu, there.scale, {elements(there.scale)}, scale, q.scale);
    bring(gpu, there.inverse_scale, {elements(there.scale)}, inverse_scale, q.inverse_scale);
  }

 private:
  // Elements from the first to the last, with gaps.
  static std::int64_t elements(const View& v) {
    if (v.rank != 2) return v.size();
    return (v.shape[0] - 1) * v.stride[0] + (v.shape[1] - 1) * v.stride[1] + 1;
  }
  static void bring(test::Gpu& gpu, const View& from, tensor::Shape span, Tensor& memory, View& to) {
    memory = Tensor(from.dtype, span);
    gpu.get(from, memory.view());
    to.data = memory.view().data;
    to.device = device::DeviceType::host;
  }
};

void check(test::Gpu& gpu, const Matrix& x, const CastPair& casts, bool emulate) {
  const device::Scope scope(gpu.arena());
  Host host;
  CastCounts expected;
  const QuantizedPair on_host = quantize_both(host.context, x.view, casts, {true, &expected, false, emulate});
  const Tensor counts(DType::i64, {3}), got(DType::i64, {3});
  const View there = gpu.put(counts.view());
  const QuantizedPair both =
      quantize_both(gpu.context(), gpu.put(x.view), casts, {true, static_cast<CastCounts*>(there.data), emulate});
  const auto compare = [&](const Quantized& on_gpu, const Quantized& here) {
    const auto same = !emulate ? expect_same : here.folded ? expect_folded : expect_emulated;
    same(HostCopy(gpu, on_gpu).q, here);
  };
  compare(both.last, on_host.last);
  if (casts.first.fp8()) compare(both.first, on_host.first);
  gpu.get(there, got.view());
  EXPECT_EQ(got.as<std::int64_t>()[0], expected.elements);
  EXPECT_EQ(got.as<std::int64_t>()[1], expected.saturated);
  EXPECT_EQ(got.as<std::int64_t>()[2], expected.underflowed);
  gpu.clear();
}

// The conversion instruction has the codes of the host for every BF16 value.
TEST(QuantGpu, EveryBf16ValueHasTheCodeOfTheHost) {
  FP8_NEED_GPU();
  test::Gpu gpu;
  const Matrix x(DType::bf16, 256, 256);
  for (int i = 0; i < 1 << 16; ++i) x.view.as<dtype::Bf16>()[i].bits = static_cast<std::uint16_t>(i);
  const Tensor one(DType::f32, {1});
  *one.as<float>() = 1.0f;
  for (const Cast& cast : {kTensorE4m3, kTensorE5m2}) {
    Host host;
    const View there = gpu.put(one.view());
    const CastPair casts{cast, cast};
    const QuantizedPair on_host = quantize_both(host.context, x.view, casts, {.known = {one.view(), one.view(), {}}}),
                        on_gpu = quantize_both(gpu.context(), gpu.put(x.view), casts, {.known = {there, there, {}}});
    expect_same(HostCopy(gpu, on_gpu.last).q, on_host.last);
    expect_same(HostCopy(gpu, on_gpu.first).q, on_host.first);
    gpu.clear();
  }
}

TEST(QuantGpu, CodesScalesAndCountsMatchTheHost) {
  FP8_NEED_GPU();
  test::Gpu gpu;
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                   {15, 17},
                                   {128, 128},
                                   {129, 257},
                                   {3, 300},
                                   {260, 8},
                                   {256, 264},
                                   {1000, 1030}})
    for (const DType type : {DType::f32, DType::bf16})
      for (const CastPair& casts :
           {CastPair{kTensorE5m2, kTensorE5m2}, CastPair{kRowE4m3, kRowE5m2}, CastPair{kTensorE4m3, kTensorE5m2},
            CastPair{kRowE4m3, kTensorE4m3}, CastPair{kRowE4m3, {}}})
        for (const bool emulate : {false, true}) {
          SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols) + (emulate ? ", emulated" : ""));
          check(gpu, Matrix(type, rows, cols), casts, emulate);
          check(gpu, Matrix(type, rows, cols, Layout::strided_rows), casts, emulate);
        }
}

TEST(QuantGpu, BlocksMatchTheHost) {
  FP8_NEED_GPU();
  test::Gpu gpu;
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {33, 16}, {128, 128}, {129, 257}, {260, 8}, {1000, 1030}})
    for (const DType type : {DType::f32, DType::bf16})
      for (const CastPair& casts :
           {CastPair{kRow128, kRow128}, CastPair{kSquare128, kSquare128}, CastPair{kRow32, kRow32}})
        for (const bool emulate : {false, true}) {
          if (!emulate && casts.last == kRow32) continue;  // always emulated
          SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols) + (emulate ? ", emulated" : ""));
          check(gpu, Matrix(type, rows, cols), casts, emulate);
          check(gpu, Matrix(type, rows, cols, Layout::strided_rows), casts, emulate);
        }
}

TEST(QuantGpu, FromBytesMatchesTheHostForBothContractionAxes) {
  FP8_NEED_GPU();
  test::Gpu gpu;
  const Matrix x(DType::f32, 48, 75);
  const float scale = 3.0f, inverse = 1.0f / scale;
  const Tensor codes(DType::u8, {48, 75}), one(DType::f32, {1}), reciprocal(DType::f32, {1});
  *one.as<float>() = scale;
  *reciprocal.as<float>() = inverse;
  Host host;
  cast_to_bytes(host.context, x.view, DType::e4m3, &scale, codes.view(), nullptr);
  const View there = gpu.put(codes.view()), s = gpu.put(one.view()), r = gpu.put(reciprocal.view());
  cast_to_bytes(gpu.context(), gpu.put(x.view), DType::e4m3, s.as<float>(), there, nullptr);
  for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first})
    for (const bool emulate : {false, true}) {
      const Quantized on_host =
          from_bytes(host.context, codes.view(), DType::e4m3, contract, one.view(), reciprocal.view());
      const Quantized got = from_bytes(gpu.context(), there, DType::e4m3, contract, s, r, emulate);
      (emulate ? expect_emulated : expect_same)(HostCopy(gpu, got).q, on_host);
    }
}

}  // namespace
}  // namespace fp8::quant
