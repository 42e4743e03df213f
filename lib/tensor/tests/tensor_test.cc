// Views and tensors: strides, slices, invalid shapes, ownership.
#include "fp8/tensor/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "fp8_test.h"

namespace fp8::tensor {
namespace {

using dtype::Bf16;
using test::error_of;

// 0, 1, 2, ... in row-major order.
Tensor counted(Shape shape) {
  Tensor t(DType::i32, shape);
  std::iota(t.as<std::int32_t>(), t.as<std::int32_t>() + t.view().size(), 0);
  return t;
}

std::int32_t at(const View& v, std::int64_t i, std::int64_t j) {
  return v.as<std::int32_t>()[i * v.stride[0] + j * v.stride[1]];
}

TEST(View, MakeGivesRowMajorStrides) {
  float data[24];
  const View v = make_view(data, DType::f32, DeviceType::host, {2, 3, 4});
  EXPECT_EQ(v.rank, 3);
  EXPECT_EQ(v.shape, (std::array<std::int64_t, 4>{2, 3, 4, 0}));
  EXPECT_EQ(v.stride, (std::array<std::int64_t, 4>{12, 4, 1, 0}));
  EXPECT_EQ(v.size(), 24);
  EXPECT_EQ(v.bytes(), 96u);
  EXPECT_TRUE(v.contiguous());
  EXPECT_FALSE(v.empty());
}

TEST(View, ScalarsAndEmptyShapes) {
  float data[1] = {};
  const View scalar = make_view(data, DType::f32, DeviceType::host, {});
  EXPECT_EQ(scalar.rank, 0);
  EXPECT_EQ(scalar.size(), 1);
  const View none = make_view(nullptr, DType::bf16, DeviceType::host, {5, 0});
  EXPECT_EQ(none.size(), 0);
  EXPECT_EQ(none.bytes(), 0u);
  EXPECT_TRUE(none.contiguous());
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(View().empty());
}

TEST(View, InvalidShapesAreErrors) {
  EXPECT_EQ(error_of([] {
              make_view(nullptr, DType::f32, DeviceType::host, {1, 1, 1, 1, 1});
            }),
            "tensor: 5 dimensions, at most 4");
  EXPECT_EQ(error_of([] { make_view(nullptr, DType::f32, DeviceType::host, {2, -1}); }), "tensor: negative extent");
  const std::int64_t big = std::int64_t{1} << 40;
  EXPECT_EQ(error_of([&] { make_view(nullptr, DType::u8, DeviceType::host, {big, big}); }), "tensor: too large");
  EXPECT_EQ(error_of([&] { make_view(nullptr, DType::u8, DeviceType::host, {0, big, big}); }), "tensor: too large");
  EXPECT_EQ(error_of([&] { make_view(nullptr, DType::f64, DeviceType::host, {std::int64_t{1} << 62}); }),
            "tensor: too large");
}

TEST(View, RowsAndColumns) {
  const Tensor t = counted({4, 6});
  const View rows = t.view().rows(1, 3);
  EXPECT_EQ(rows.shape[0], 2);
  EXPECT_EQ(at(rows, 0, 0), 6);
  EXPECT_TRUE(rows.contiguous());
  const View block = rows.columns(2, 5);
  EXPECT_EQ(block.shape[1], 3);
  EXPECT_EQ(at(block, 0, 0), 8);
  EXPECT_EQ(at(block, 1, 2), 16);
  EXPECT_FALSE(block.contiguous());
  EXPECT_EQ(block.size(), 6);
  EXPECT_TRUE(t.view().columns(3, 4).rows(0, 1).contiguous());
  EXPECT_EQ(t.view().rows(4, 4).size(), 0);
}

TEST(View, RowsOfOtherRanks) {
  const Tensor line = counted({5}), cube = counted({2, 3, 4});
  EXPECT_EQ(line.view().rows(2, 4).as<std::int32_t>()[0], 2);
  EXPECT_EQ(line.view().columns(3, 5).as<std::int32_t>()[0], 3);
  EXPECT_EQ(cube.view().rows(1, 2).as<std::int32_t>()[0], 12);
  EXPECT_EQ(cube.view().columns(1, 2).as<std::int32_t>()[0], 1);
}

TEST(View, RangesOutsideAreErrors) {
  const Tensor t = counted({4, 6});
  EXPECT_EQ(error_of([&] { t.view().rows(2, 5); }), "tensor [4, 6]: no range 2 to 5 in dimension 0");
  EXPECT_EQ(error_of([&] { t.view().columns(-1, 2); }), "tensor [4, 6]: no range -1 to 2 in dimension 1");
  EXPECT_THROW(t.view().rows(3, 2), Error);
  EXPECT_THROW(View().rows(0, 0), Error);
  EXPECT_THROW(View().columns(0, 0), Error);
}

TEST(View, Transposed) {
  const Tensor t = counted({2, 3});
  const View v = t.view().transposed();
  EXPECT_EQ(v.shape[0], 3);
  EXPECT_EQ(v.stride[0], 1);
  EXPECT_EQ(at(v, 2, 1), 5);
  EXPECT_FALSE(v.contiguous());
  EXPECT_TRUE(v.transposed().contiguous());
  EXPECT_EQ(error_of([] {
              counted({2, 3, 4}).view().transposed();
            }),
            "tensor [2, 3, 4]: only two dimensions can be transposed");
}

TEST(View, Reshaped) {
  const Tensor t = counted({2, 6});
  const View v = t.view().reshaped({3, 4});
  EXPECT_EQ(at(v, 2, 3), 11);
  EXPECT_EQ(t.view().reshaped({2, 2, 3, 1}).rank, 4);
  EXPECT_EQ(error_of([&] { t.view().reshaped({5}); }), "tensor [2, 6]: cannot be reshaped to [5]");
  EXPECT_EQ(error_of([&] { t.view().transposed().reshaped({12}); }),
            "tensor [6, 2]: not contiguous, cannot be reshaped");
}

TEST(View, ContiguousIgnoresStridesOfSingleExtents) {
  View v = counted({1, 4}).view();
  v.data = nullptr;
  v.stride[0] = 99;
  EXPECT_TRUE(v.contiguous());
}

TEST(View, ElementTypeIsChecked) {
  const Tensor codes(DType::e4m3, {3});
  EXPECT_NE(codes.as<std::uint8_t>(), nullptr);
  EXPECT_NE(codes.as<const std::uint8_t>(), nullptr);
  EXPECT_EQ(error_of([&] { codes.as<float>(); }), "tensor [3]: elements are float8_e4m3fn, accessed as another type");
  const Tensor b(DType::bf16, {3});
  EXPECT_NE(b.as<Bf16>(), nullptr);
  EXPECT_THROW(b.as<std::uint16_t>(), Error);
  EXPECT_NE(Tensor(DType::f16, {1}).as<std::uint16_t>(), nullptr);
  EXPECT_NE(Tensor(DType::u32, {1}).as<std::uint32_t>(), nullptr);
  EXPECT_NE(Tensor(DType::u64, {1}).as<std::uint64_t>(), nullptr);
  EXPECT_NE(Tensor(DType::i64, {1}).as<std::int64_t>(), nullptr);
  EXPECT_NE(Tensor(DType::f64, {1}).as<double>(), nullptr);
}

TEST(Take, AllocatesFromTheArena) {
  device::Arena dry;
  device::Context ctx;
  ctx.arena = &dry;
  ctx.dry = true;
  const View a = allocate(ctx, DType::f32, {3, 5}, "activations");
  const View b = allocate(ctx, DType::bf16, {0, 5}, "activations");
  EXPECT_FALSE(a.empty());
  EXPECT_FALSE(b.empty());
  EXPECT_NE(a.data, b.data);
  EXPECT_EQ(dry.peak(), 512u);
  device::Arena real(dry.peak(), DeviceType::host);
  const View c = allocate(ctx.with(real), DType::f32, {3, 5}, "activations");
  c.as<float>()[14] = 1;
  EXPECT_EQ(c.stride[0], 5);
  EXPECT_EQ(error_of([] { allocate(device::Context{}, DType::f32, {1}, "scratch"); }),
            "tensor: scratch: the context has no arena");
}

TEST(Tensor, IsZeroAndOwnsItsMemory) {
  Tensor a(DType::f32, {2, 2});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(a.as<float>()[i], 0.0f);
  a.as<float>()[3] = 7;
  Tensor b(std::move(a));
  EXPECT_EQ(b.as<float>()[3], 7.0f);
  Tensor c;
  EXPECT_TRUE(c.view().empty());
  c = std::move(b);
  EXPECT_EQ(c.as<float>()[3], 7.0f);
  EXPECT_EQ(c.view().shape[1], 2);
}

TEST(Tensor, MovedFromIsEmpty) {
  Tensor a(DType::f32, {2});
  Tensor b(std::move(a));
  EXPECT_TRUE(a.view().empty());  // NOLINT(bugprone-use-after-move): that is the promise
  EXPECT_EQ(a.view().rank, 0);    // NOLINT(bugprone-use-after-move)
  a = std::move(b);
  EXPECT_FALSE(a.view().empty());
}

TEST(Tensor, OutOfMemoryNamesTheTensor) {
  EXPECT_EQ(error_of([] { Tensor(DType::u8, {std::int64_t{1} << 60}, DeviceType::host, "weights"); }),
            "out of memory: weights needs 1 EiB");
}

}  // namespace
}  // namespace fp8::tensor
