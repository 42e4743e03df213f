// A temporary folder, the reference models, and what tests ask of checkpoints.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/ckpt/checkpoint.h"

namespace fp8::model::test {

class Temporary : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "model-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (std::filesystem::path(folder_) / name).string(); }
  // Names in the folder: nothing half-written may stay.
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& e : std::filesystem::directory_iterator(folder_)) out.push_back(e.path().filename().string());
    return out;
  }

 private:
  std::string folder_;
};

// The Hugging Face folder of a reference model; tests run in the root of the sources.
inline std::string golden(const std::string& name) { return "tests/golden/models/" + name + "/hf"; }

// What an error says; empty when nothing was thrown.
inline std::string message(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

// A whole weight as floats.
inline std::vector<float> weight(const ckpt::Checkpoint& checkpoint, const std::string& name) {
  const ckpt::TensorMeta& meta = checkpoint.at("weights/" + name);
  std::vector<float> values(meta.bytes() / dtype::size_of(meta.dtype));
  checkpoint.read_rows_as_f32(meta.name, 0, meta.rows(), values);
  return values;
}

}  // namespace fp8::model::test
