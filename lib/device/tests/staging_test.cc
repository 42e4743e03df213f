// Copies through pinned memory, with a mover that delays every transfer until the wait: reusing a piece too early, or
// reading it before the transfer, corrupts the bytes.
#include "staging.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <vector>

namespace fp8::device {
namespace {

class Late final : public Mover {
 public:
  void begin(void* to, const void* from, std::size_t bytes, bool upload) override {
    pending_.push_back([=] { std::memcpy(to, from, bytes); });
    uploads += upload ? 1 : 0;
  }
  void note(std::size_t mark) override { noted_[mark] = done_ + pending_.size(); }
  void wait(std::size_t mark) override {
    const auto found = noted_.find(mark);
    while (found != noted_.end() && done_ < found->second) first();
  }
  void finish() {
    while (!pending_.empty()) first();
  }
  std::size_t under_way() const { return pending_.size(); }
  int uploads = 0;

 private:
  void first() {
    pending_.front()();
    pending_.erase(pending_.begin());
    ++done_;
  }
  std::vector<std::function<void()>> pending_;
  std::map<std::size_t, std::size_t> noted_;
  std::size_t done_ = 0;
};

std::vector<std::byte> numbers(std::size_t n, unsigned seed) {
  std::vector<std::byte> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<std::byte>((i * 7 + i / 251 + seed) & 0xFFu);
  return v;
}

struct Kit {
  Late late;
  std::vector<std::byte> pinned = std::vector<std::byte>(Staging::kPieces * 64);
  Staging staging{late, pinned};
};

TEST(Staging, RoundTrip) {
  for (const std::size_t n : {0UL, 1UL, 63UL, 64UL, 65UL, 512UL, 513UL, 5000UL}) {
    Kit kit;
    const std::vector<std::byte> values = numbers(n, 3);
    std::vector<std::byte> from = values, there(n), back(n);
    kit.staging.upload(there.data(), from.data(), n);
    from.assign(n, std::byte{0});  // may be changed after the return
    kit.staging.download(back.data(), there.data(), n);
    EXPECT_EQ(back, values) << n;
    EXPECT_EQ(kit.late.under_way(), 0U);
  }
}

TEST(Staging, UploadThatFitsIsAsynchronous) {
  Kit kit;
  std::vector<std::byte> there(Staging::kPieces * 10);
  for (unsigned i = 0; i < Staging::kPieces; ++i) {
    const std::vector<std::byte> values = numbers(10, i);
    kit.staging.upload(there.data() + 10 * i, values.data(), 10);
  }
  EXPECT_EQ(kit.late.under_way(), Staging::kPieces);
  const std::vector<std::byte> more = numbers(10, 99);
  std::vector<std::byte> elsewhere(10);
  kit.staging.upload(elsewhere.data(), more.data(), 10);
  EXPECT_EQ(kit.late.under_way(), Staging::kPieces) << "only the first piece has been waited for";
  kit.late.finish();
  EXPECT_EQ(elsewhere, more);
  for (unsigned i = 0; i < Staging::kPieces; ++i)
    EXPECT_EQ(std::vector<std::byte>(there.begin() + 10 * i, there.begin() + 10 * i + 10), numbers(10, i));
}

TEST(Staging, DownloadFollowsPrecedingUploads) {
  Kit kit;
  const std::vector<std::byte> one = numbers(100, 1), two = numbers(100, 2);
  std::vector<std::byte> there(100), back(100);
  kit.staging.upload(there.data(), one.data(), 100);
  kit.staging.upload(there.data(), two.data(), 100);
  kit.staging.download(back.data(), there.data(), 100);
  EXPECT_EQ(back, two);
  EXPECT_EQ(kit.late.uploads, 4);
}

}  // namespace
}  // namespace fp8::device
