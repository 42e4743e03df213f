// Downloads on streams of the stand-in: what they wait for, and what they do not.
#include "fp8/device/download.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "fp8/device/cuda.h"
#include "fp8/device/device.h"
#include "fp8_test.h"
#include "runtime.h"

namespace fp8::device {
namespace {

using Values = std::array<std::int32_t, 5>;
constexpr Values kValues{3, 1, 4, 1, 5};
constexpr std::size_t kBytes = sizeof kValues;

// Puts a copy of the values to `to` on the stream. It lets operations of other streams run first, unless they wait.
void write_later(const Context& ctx, std::byte* to, const Values& values = kValues) {
  runtime::launch(stream_of(ctx), "write", [to, values, others = 8]() mutable {
    if (others-- > 0) return false;
    std::memcpy(to, values.data(), kBytes);
    return true;
  });
}

TEST(Download, FollowsTheWorkBeforeIt) {
  const Device device(DeviceType::cuda);
  const Context ctx = device.context();
  const Buffer memory(kBytes, DeviceType::cuda, "test");
  for (int repeat = 0; repeat < 3; ++repeat) {  // the first one also waits for its memory, and so for all work
    Values values = kValues, got{};
    values[0] = repeat;
    write_later(ctx, memory.data(), values);
    Download download(ctx, memory.data(), DeviceType::cuda, kBytes);
    download.finish(got.data());
    EXPECT_EQ(got, values);
  }
}

TEST(Download, DoesNotWaitForTheWorkAfterIt) {
  const Device device(DeviceType::cuda);
  const Context ctx = device.context();
  const Buffer memory(kBytes, DeviceType::cuda, "test");
  write_later(ctx, memory.data());
  Download download(ctx, memory.data(), DeviceType::cuda, kBytes);
  // An operation that ends when the host allows it or, so that a failure ends too, after some seconds.
  struct Gate {
    std::atomic<bool> open = false, late = false;
  };
  const auto gate = std::make_shared<Gate>();
  const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  runtime::launch(stream_of(ctx), "gate", [gate, last] {
    if (!gate->open && std::chrono::steady_clock::now() > last) gate->late = true;
    return gate->open || gate->late;
  });
  Values got{};
  download.finish(got.data());
  EXPECT_EQ(got, kValues);
  EXPECT_FALSE(gate->late) << "the download waited for work that was enqueued after its start";
  gate->open = true;
  synchronize(ctx);
}

TEST(Download, GrowsAndCanBeAbandoned) {
  const Device device(DeviceType::cuda);
  const Context ctx = device.context();
  const Buffer memory(std::size_t{1} << 16, DeviceType::cuda, "test");
  write_later(ctx, memory.data());
  { const Download abandoned(ctx, memory.data(), DeviceType::cuda, 4); }
  std::vector<std::int32_t> got(memory.size() / 4, -1);
  Download download(ctx, memory.data(), DeviceType::cuda, memory.size());
  EXPECT_EQ(test::error_of([&] { const Download second(ctx, memory.data(), DeviceType::cuda, 4); }),
            "CUDA: a download starts before another has finished");
  download.finish(got.data());
  EXPECT_EQ(got[2], kValues[2]);
  EXPECT_EQ(got.back(), 0);
}

}  // namespace
}  // namespace fp8::device
