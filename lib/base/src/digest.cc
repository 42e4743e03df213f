// XXH3-128 behind a small interface; the only file that includes xxhash.h.
#include "fp8/base/digest.h"

#include <xxhash.h>

#include <new>

#include "fp8/base/error.h"

namespace fp8 {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

Digest from_xxh(XXH128_hash_t h) { return {h.high64, h.low64}; }

}  // namespace

std::string Digest::hex() const {
  std::string text(32, '0');
  for (std::size_t i = 0; i < 16; ++i) {
    text[15 - i] = kHexDigits[(hi >> (4 * i)) & 15U];
    text[31 - i] = kHexDigits[(lo >> (4 * i)) & 15U];
  }
  return text;
}

std::optional<Digest> Digest::from_hex(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  Digest d;
  for (std::size_t i = 0; i < 32; ++i) {
    const std::size_t nibble = kHexDigits.find(text[i]);
    if (nibble == std::string_view::npos) return std::nullopt;
    std::uint64_t& half = i < 16 ? d.hi : d.lo;
    half = half << 4U | nibble;
  }
  return d;
}

struct Digester::State {
  struct Free {
    void operator()(XXH3_state_t* s) const { XXH3_freeState(s); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

Digester::Digester() : state_(std::make_unique<State>()) {
  if (!state_->xxh || XXH3_128bits_reset(state_->xxh.get()) != XXH_OK) throw std::bad_alloc();
}
Digester::~Digester() = default;
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;

void Digester::update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (XXH3_128bits_update(state_->xxh.get(), bytes.data(), bytes.size()) != XXH_OK) {
    throw Error("digest: the library refused its input");
  }
}

Digest Digester::finish() const { return from_xxh(XXH3_128bits_digest(state_->xxh.get())); }

Digest digest_of(std::span<const std::byte> bytes) { return from_xxh(XXH3_128bits(bytes.data(), bytes.size())); }

}  // namespace fp8
