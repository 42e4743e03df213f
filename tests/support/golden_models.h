/// The reference models, and helpers to read checkpoints.
#pragma once

#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8_test.h"

namespace fp8::test {

/// The Hugging Face folder of a reference model; tests run in the root of the sources.
inline std::string golden(const std::string& name) { return "tests/golden/models/" + name + "/hf"; }

/// A whole weight as floats.
inline std::vector<float> weight(const ckpt::Checkpoint& checkpoint, const std::string& name) {
  const ckpt::TensorMeta& meta = checkpoint.at("weights/" + name);
  std::vector<float> values(meta.bytes() / dtype::size_of(meta.dtype));
  checkpoint.read_rows_as_f32(meta.name, 0, meta.rows(), values);
  return values;
}

}  // namespace fp8::test
