/// Parts of manifest.json of a checkpoint that a test writes or changes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "fp8/base/digest.h"
#include "fp8/json/json.h"

namespace fp8::test {

/// The mesh of files that are shards of `replicas` copies, each of which `tp` ranks divide, as ckpt::commit_folder()
/// takes it.
inline json::Value mesh_of(std::int64_t files, std::int64_t replicas = 1, std::int64_t tp = 1) {
  return json::object(
      {{"dp_replicate", replicas}, {"dp_shard", files / replicas / tp}, {"pp", 1}, {"ep", 1}, {"tp", tp}});
}

/// The text of a manifest with a valid digest as its last member, `self`, which is replaced or appended.
inline std::string sealed_manifest(std::string_view text) {
  constexpr std::string_view kSelf = "\"self\":\"";
  const std::string_view body = text.substr(0, text.rfind(kSelf));
  return std::string(body) + std::string(kSelf) + digest_of(std::as_bytes(std::span(body))).hex() + "\"}\n";
}

}  // namespace fp8::test
