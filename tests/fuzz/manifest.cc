// manifest.json of a checkpoint: parsed unchanged, and with a valid digest; an accepted manifest reads back.
#include "manifest.h"

#include "fuzz.h"
#include "manifest_parts.h"

FP8_FUZZ(manifest) {
  using namespace fp8;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::judge([&] { (void)ckpt::parse_manifest(text, "manifest.json"); });
  return fuzz::judge([&] {
    const ckpt::Manifest manifest = ckpt::parse_manifest(test::sealed_manifest(text), "manifest.json");
    const std::string once = ckpt::format_manifest(manifest);
    fuzz::require(ckpt::format_manifest(ckpt::parse_manifest(once, "again")) == once, "a manifest reads back");
  });
}
