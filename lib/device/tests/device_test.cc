// Devices: the host is always available, a GPU is opened or the error has a reason, bytes are copied between devices.
#include "fp8/device/device.h"

#include <gtest/gtest.h>

#include <array>

#include "fp8/base/error.h"
#include "fp8/device/arena.h"
#include "fp8/device/library.h"
#include "fp8/device/runtime.h"
#include "fp8_test.h"

namespace fp8::device {
namespace {

TEST(Device, HostNeedsNoSetup) {
  const Device host;
  Arena arena;
  EXPECT_EQ(host.name(), "CPU");
  EXPECT_EQ(host.compute_capability(), 0);
  EXPECT_EQ(host.context(arena).stream, nullptr);
  std::array<int, 3> from{1, 2, 3}, to{};
  copy_bytes(host.context(arena), to.data(), DeviceType::host, from.data(), DeviceType::host, sizeof from);
  EXPECT_EQ(to, from);
  synchronize(host.context(arena));
}

TEST(Device, GpuOrReason) {
  EXPECT_EQ(cuda_device_count() == 0, !why_no_cuda().empty());
  if (cuda_device_count() == 0) {
    EXPECT_EQ(test::error_of([] { const Device gpu(DeviceType::cuda); }), "no usable GPU: " + why_no_cuda());
    return;
  }
  const Device gpu(DeviceType::cuda);
  Arena arena(1 << 20, DeviceType::cuda);
  const Context ctx = gpu.context(arena);
  std::array<int, 3> from{1, 2, 3}, to{};
  std::byte* const there = arena.allocate(sizeof from, "test");
  copy_bytes(ctx, there, DeviceType::cuda, from.data(), DeviceType::host, sizeof from);
  copy_bytes(ctx, to.data(), DeviceType::host, there, DeviceType::cuda, sizeof from);
  EXPECT_EQ(to, from);
  EXPECT_THROW(Device(DeviceType::cuda, cuda_device_count()), Error);
}

// The other runtime is that of make check-cuda12, which asks fp8-doctor.
TEST(Runtime, NeedsTheDriverOfItsMajorVersion) {
  const std::string version = runtime_version();
  EXPECT_EQ(runtime_driver(), version.empty()                   ? ""
                              : version.starts_with("CUDA 12.") ? "driver 525 or newer"
                                                                : "driver 580 or newer");
}

// A build without CUDA loads none; the order of a build with CUDA 12 is that of make check-cuda12.
TEST(Runtime, LooksForLibrariesOfItsMajorVersionFirst) {
  const bool twelve = runtime_version().starts_with("CUDA 12.");
  EXPECT_EQ(cuda_libraries("libx.so").front(), twelve ? "libx.so.12" : "libx.so.13");
  EXPECT_EQ(cuda_libraries("libx.so").back(), twelve ? "libx.so.13" : "libx.so.12");
}

TEST(Library, MissingLibrariesAreNamedWithAHint) {
  EXPECT_EQ(test::error_of([] {
              Library({"libnone.so.9", "libnone.so"}, "install none");
            }),
            "libnone.so.9: cannot be loaded: install none");
  const Library c({"libc.so.6"}, "");
  EXPECT_EQ(c.function<int (*)(int)>("abs")(-3), 3);
  EXPECT_NE(test::error_of([&] { c.function<int (*)()>("none_such"); }).find("has no function none_such"),
            std::string::npos);
}

}  // namespace
}  // namespace fp8::device
