/// A folder of its own for each test, and checkpoints of a step in it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "fp8/base/error.h"
#include "fp8/ckpt/run_folder.h"
#include "fp8/ckpt/writer.h"

namespace fp8::launch {

/// Removes its folder at the end.
class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    std::string name = (std::filesystem::temp_directory_path() / "fp8-launch-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Error(name + ": cannot create");
    folder_ = name;
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }

  /// A valid checkpoint of `step` in the folder `run`; a mere model without /train where told so.
  std::string checkpoint(const std::string& run, std::int64_t step, bool train = true) const {
    const std::string path = at(run) + "/" + ckpt::step_name(step);
    std::filesystem::create_directories(at(run));
    const std::string temporary = ckpt::begin_folder(path);
    const ckpt::Kind kind = train ? ckpt::Kind::training : ckpt::Kind::model;
    ckpt::ShardWriter writer(temporary, 0, 1, kind);
    writer.document("config", json::object({{"model_type", "llama"}}));
    if (train) writer.document("train", json::object({{"step", step}}));
    const std::vector<std::byte> bytes(4);
    ckpt::TensorMeta weight;
    weight.name = "weights/a";
    weight.shape = {1};
    writer.tensor(weight, 0, 1, bytes);
    ckpt::commit_folder(temporary, path, kind, nullptr, {writer.finish()});
    return path;
  }
  /// Changes a byte of a checkpoint.
  static void damage(const std::string& path) {
    std::fstream file(path + "/rank-00000-of-00001.h5", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  }

 private:
  std::string folder_;
};

/// The bytes of a file.
inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Makes a file.
inline void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// The message of the Error that `f` throws; "no error" when it throws none.
inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace fp8::launch
