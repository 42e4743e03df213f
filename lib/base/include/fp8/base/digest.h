/// XXH3-128 digests of bytes. They detect accidental damage, not deliberate forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fp8 {

/// A 128-bit digest. Source: XXH3-128 with seed 0, in its canonical (big-endian) spelling.
struct Digest {
  std::uint64_t hi = 0;  ///< high 64 bits, printed first
  std::uint64_t lo = 0;  ///< low 64 bits

  /// Equal bits.
  bool operator==(const Digest&) const = default;
  /// 32 lower-case hexadecimal digits.
  std::string hex() const;
  /// Reads back hex(); nothing for any other text (upper case and other lengths included).
  static std::optional<Digest> from_hex(std::string_view text);
};

/// Digest of bytes that arrive in pieces; the result does not depend on where the pieces end.
class Digester {
 public:
  /// Digests no bytes yet.
  Digester();
  ~Digester();
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;

  /// Appends `bytes` (host memory).
  void update(std::span<const std::byte> bytes);
  /// Digest of all bytes so far; more may follow.
  Digest finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Digest of `bytes` (host memory).
Digest digest_of(std::span<const std::byte> bytes);

}  // namespace fp8
