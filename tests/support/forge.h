/// Makes checkpoints with valid digests and invalid contents.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/ckpt/writer.h"
#include "manifest_parts.h"

namespace fp8::test {

/// Contents of the forged copy, which a test changes. A tensor with an empty name is left out. All tensors are zeros
/// unless `values` changes their bytes.
struct Forged {
  json::Value train, config;
  std::function<void(ckpt::TensorMeta&)> tensor = [](ckpt::TensorMeta&) {};
  std::function<void(const std::string& name, std::vector<std::byte>&)> values = [](const auto&, auto&) {};
};

/// Copies the checkpoint `from` of a run to `to`, as one file with the changes of `change`. Throws Error.
inline void forge(const std::string& from, const std::string& to, const std::function<void(Forged&)>& change) {
  const ckpt::Checkpoint source = ckpt::Checkpoint::open(from);
  Forged f{source.train(), source.config()};
  change(f);
  const std::string folder = ckpt::begin_folder(to);
  ckpt::ShardWriter writer(folder, 0, 1, ckpt::FileKind::training);
  writer.document("config", f.config);
  writer.document("train", f.train);
  writer.document("provenance", source.provenance());
  for (ckpt::TensorMeta meta : source.tensors()) {
    f.tensor(meta);
    if (meta.name.empty()) continue;
    std::vector<std::byte> bytes(meta.bytes());
    f.values(meta.name, bytes);
    writer.tensor(meta, ckpt::whole_block(meta), bytes);
  }
  ckpt::commit_folder(folder, to, ckpt::FileKind::training, mesh_of(1), {writer.finish([](const std::string&) {})});
}

}  // namespace fp8::test
