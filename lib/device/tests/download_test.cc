// Downloads from the host.
#include "fp8/device/download.h"

#include <gtest/gtest.h>

#include "fp8_test.h"

namespace fp8::device {
namespace {

TEST(Download, CopiesFromTheHost) {
  const Device host;
  const int from = 7;
  int to = 0;
  Download download(host.context(), &from, DeviceType::host, sizeof from);
  EXPECT_EQ(to, 0);
  download.finish(&to);
  EXPECT_EQ(to, 7);
}

TEST(Download, CopiesNothingInADryRun) {
  Context ctx = Device().context();
  ctx.dry = true;
  Download(ctx, nullptr, DeviceType::cuda, 4).finish(nullptr);
}

TEST(Download, NeedsAStreamForADevice) {
  EXPECT_EQ(test::error_of([] { const Download d(Device().context(), nullptr, DeviceType::cuda, 4); }),
            "a copy from a device needs a context on that device");
}

}  // namespace
}  // namespace fp8::device
