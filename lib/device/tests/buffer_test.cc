// Buffers: alignment, zero fill, ownership, and error messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "fp8/device/device.h"
#include "fp8_test.h"

namespace fp8::device {
namespace {

using test::error_of;

TEST(Buffer, IsZeroedAndAligned) {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{63}, std::size_t{4096}, std::size_t{1} << 20, std::size_t{5000001}}) {
    const Buffer b(bytes, DeviceType::host, "test");
    ASSERT_NE(b.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % 64, 0u) << bytes;
    EXPECT_EQ(b.size(), bytes);
    EXPECT_EQ(b.device(), DeviceType::host);
    EXPECT_TRUE(std::all_of(b.data(), b.data() + bytes, [](std::byte v) { return v == std::byte{0}; })) << bytes;
    b.data()[bytes - 1] = std::byte{1};
  }
}

TEST(Buffer, EmptyIsNull) {
  EXPECT_EQ(Buffer().data(), nullptr);
  EXPECT_EQ(Buffer(0, DeviceType::host, "nothing").data(), nullptr);
  EXPECT_EQ(Buffer(0, DeviceType::host, "nothing").size(), 0u);
}

TEST(Buffer, MovesItsMemory) {
  Buffer a(100, DeviceType::host, "a");
  std::byte* const memory = a.data();
  Buffer b(std::move(a));
  EXPECT_EQ(b.data(), memory);
  Buffer c(std::size_t{2} << 20, DeviceType::host, "c");
  c = std::move(b);
  EXPECT_EQ(c.data(), memory);
  EXPECT_EQ(c.size(), 100u);
  Buffer& same = c;
  c = std::move(same);
  EXPECT_EQ(c.data(), memory);
}

TEST(Buffer, OutOfMemoryNamesTheBuffer) {
  EXPECT_EQ(error_of([] { Buffer(std::size_t{1} << 62, DeviceType::host, "moments"); }),
            "out of memory: moments needs 4 EiB");
  EXPECT_NE(
      error_of([] { Buffer(~std::size_t{0}, DeviceType::host, "moments"); }).find("out of memory: moments needs "),
      std::string::npos);
}

TEST(Buffer, MissingDeviceIsAnError) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(error_of([] { Buffer(16, DeviceType::cuda, "weights"); }), "weights: no usable GPU: " + why_no_cuda());
}

TEST(HostThreads, IsPositive) { EXPECT_GE(host_threads(), 1); }

}  // namespace
}  // namespace fp8::device
