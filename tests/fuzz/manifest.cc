// manifest.json of a checkpoint: parsed unchanged, and with a valid digest; an accepted manifest reads back.
#include "manifest.h"

#include <span>

#include "fp8/base/digest.h"
#include "fuzz.h"

namespace {

// The text with a valid digest as last member, `self`.
std::string sealed(std::string_view text) {
  constexpr std::string_view kSelf = "\"self\":\"";
  const std::string_view body = text.substr(0, text.rfind(kSelf));
  return std::string(body) + std::string(kSelf) + fp8::digest_of(std::as_bytes(std::span(body))).hex() + "\"}\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp8;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::judge([&] { (void)ckpt::parse_manifest(text, "manifest.json"); });
  return fuzz::judge([&] {
    const ckpt::Manifest manifest = ckpt::parse_manifest(sealed(text), "manifest.json");
    const std::string once = ckpt::format_manifest(manifest);
    fuzz::require(ckpt::format_manifest(ckpt::parse_manifest(once, "again")) == once, "a manifest reads back");
  });
}
