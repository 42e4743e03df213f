/// Initial weights: normal(0, initializer_range), norms 1, biases 0; adapters: A uniform within 1 / sqrt(columns) of 0,
/// B 0. A value depends only on the seed, the tensor's
/// name and the element's index, not on threads or sharding. Written in pieces: memory use does not grow with the
/// model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "fp8/dtype/dtype.h"
#include "fp8/hf/config.h"
#include "fp8/model/parameters.h"
#include "fp8/model/record.h"

namespace fp8::model {

/// Called before each tensor with its name, its index from 0 and the number of tensors.
using ProgressSink = std::function<void(const std::string& name, std::size_t index, std::size_t count)>;

/// Options of initialize().
struct InitOptions {
  std::uint64_t seed = 0;  ///< any number
  dtype::DType dtype =
      dtype::DType::f32;    ///< format of all weights but adapters: f32, or bf16 (the same numbers rounded)
  bool force = false;       ///< replace an output that exists
  bool dry_run = false;     ///< check everything, write nothing
  Origin origin{};          ///< origin for /provenance
  ProgressSink progress{};  ///< may be empty
  std::optional<std::string> tokenizer{};     ///< text of tokenizer.json
  std::optional<std::string> tokenizer_id{};  ///< identifier of the tokenizer, "bytes", if there is no tokenizer.json
  std::map<std::string, std::string> huggingface{};  ///< the files beside tokenizer.json, by name
  std::vector<std::string> inputs{};  ///< files and folders that all this was read from, see check_output()
};

/// Elements [begin, begin + out.size()) of a parameter, in row-major order, host memory.
void initial_values(const Parameter& parameter, double initializer_range, std::uint64_t seed, std::int64_t begin,
                    std::span<float> out);

/// The contents of the output, or under dry_run of the output that would be written.
struct InitSummary {
  std::int64_t tensors = 0;     ///< number of tensors
  std::int64_t parameters = 0;  ///< number of elements
  std::uint64_t bytes = 0;      ///< size of all tensors
};

/// Writes a checkpoint of kind model to `output` with default compute precisions. Equal arguments give equal
/// bytes. Throws Error, and leaves no output, when `output` cannot be written.
InitSummary initialize(const hf::ModelConfig& config, const std::string& output, const InitOptions& options);

}  // namespace fp8::model
