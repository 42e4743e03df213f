// Digests: published values, independence of the piece sizes, hexadecimal both ways.
#include "fp8/base/digest.h"

#include <gtest/gtest.h>

#include <vector>

namespace fp8 {
namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Digest, PublishedValues) {
  EXPECT_EQ(digest_of({}).hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(digest_of(bytes("a")).hex(), "a96faf705af16834e6c632b61e964e1f");
}

TEST(Digest, IsIndependentOfPieceSizes) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 7);
  const Digest whole = digest_of(bytes(text));
  for (const std::size_t piece : {1U, 3U, 255U, 256U, 4999U, 5000U}) {
    Digester d;
    for (std::size_t at = 0; at < text.size(); at += piece) d.update(bytes(std::string_view(text).substr(at, piece)));
    EXPECT_EQ(d.finish(), whole) << piece;
  }
}

TEST(Digest, FinishMayBeFollowedByMore) {
  Digester d;
  EXPECT_EQ(d.finish(), digest_of({}));
  d.update(bytes("ab"));
  EXPECT_EQ(d.finish(), digest_of(bytes("ab")));
  d.update({});
  d.update(bytes("c"));
  EXPECT_EQ(d.finish(), digest_of(bytes("abc")));
  Digester moved = std::move(d);
  EXPECT_EQ(moved.finish(), digest_of(bytes("abc")));
}

TEST(Digest, DistinguishesRunsOfZerosAndOnes) {
  const std::vector<std::byte> zeros(600, std::byte{0});
  const std::vector<std::byte> ones(600, std::byte{0xFF});
  EXPECT_NE(digest_of(zeros), digest_of(ones));
  EXPECT_NE(digest_of(zeros), digest_of(std::span(zeros).first(599)));
}

TEST(Digest, HexBothWays) {
  const Digest d{0x0123456789abcdefULL, 0xfedcba9876543210ULL};
  EXPECT_EQ(d.hex(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(Digest::from_hex(d.hex()), d);
  EXPECT_EQ(Digest::from_hex(""), std::nullopt);
  EXPECT_EQ(Digest::from_hex("0123456789abcdeffedcba987654321"), std::nullopt);
  EXPECT_EQ(Digest::from_hex("0123456789abcdeffedcba98765432100"), std::nullopt);
  EXPECT_EQ(Digest::from_hex("0123456789ABCDEFfedcba9876543210"), std::nullopt);
  EXPECT_EQ(Digest::from_hex("0123456789abcdeffedcba987654321g"), std::nullopt);
}

}  // namespace
}  // namespace fp8
