/// A test fixture with a temporary folder and checkpoints of steps in it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "fp8/ckpt/run_folder.h"
#include "fp8/ckpt/writer.h"
#include "fp8_test.h"
#include "manifest_parts.h"

namespace fp8::launch {

using test::error_of;
using test::write_file;

/// A temporary folder with checkpoints.
class FolderTest : public test::FolderTest {
 protected:
  /// A valid checkpoint of `step` in the folder `run`; a model checkpoint without /train unless `train`.
  std::string checkpoint(const std::string& run, std::int64_t step, bool train = true) const {
    const std::string path = at(run) + "/" + ckpt::step_name(step);
    std::filesystem::create_directories(at(run));
    const std::string temporary = ckpt::begin_folder(path);
    const ckpt::FileKind kind = train ? ckpt::FileKind::training : ckpt::FileKind::model;
    ckpt::ShardWriter writer(temporary, 0, 1, kind);
    writer.document("config", json::object({{"model_type", "llama"}}));
    if (train) writer.document("train", json::object({{"step", step}, {"updates", step}, {"tokens", 8 * step}}));
    const std::vector<std::byte> bytes(4);
    ckpt::TensorMeta weight;
    weight.name = "weights/a";
    weight.shape = {1};
    writer.tensor(weight, ckpt::whole_block(weight), bytes);
    ckpt::commit_folder(temporary, path, kind, test::mesh_of(1), {writer.finish()});
    return path;
  }
  /// Changes a byte of a checkpoint.
  static void damage(const std::string& path) {
    std::fstream file(path + "/rank-00000-of-00001.h5", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  }
};

}  // namespace fp8::launch
