// Digests: published values, independence of how bytes are cut, hexadecimal both ways.
#include "fp8/base/digest.h"

#include <gtest/gtest.h>

#include <vector>

#include "fp8_test.h"

namespace fp8 {
namespace {

using test::error_of;
using test::TemporaryFolder;
using test::write_file;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Digest, PublishedValues) {
  EXPECT_EQ(digest_of({}).hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(digest_of(bytes("a")).hex(), "a96faf705af16834e6c632b61e964e1f");
}

TEST(Digest, CutsDoNotMatter) {
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

TEST(Digest, SeesRunsOfZerosAndOnes) {
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

TEST(Digest, OfFile) {
  const TemporaryFolder folder;
  std::string text((std::size_t{4} << 20U) + 513, 'x');  // more than one piece
  text[text.size() - 1] = 'y';
  const std::string path = folder.at("f");
  write_file(path, text);
  EXPECT_EQ(digest_of_file(path), digest_of(bytes(text)));
  EXPECT_EQ(digest_of_file(path, 512), digest_of(bytes(std::string_view(text).substr(512))));
  EXPECT_EQ(digest_of_file(path, text.size()), digest_of({}));
  EXPECT_EQ(error_of([&] { digest_of_file(path, text.size() + 1); }), path + ": shorter than 4194818 bytes");
  EXPECT_EQ(error_of([&] { digest_of_file(folder.at("none")); }), folder.at("none: No such file or directory"));
}

}  // namespace
}  // namespace fp8
