/// Opens a checkpoint together with the model that it holds, for tools that take any kind of checkpoint.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp8/chat/carried.h"
#include "fp8/ckpt/checkpoint.h"
#include "fp8/hf/adapter.h"
#include "fp8/hf/config.h"
#include "fp8/model/parameters.h"

namespace fp8::convert {

/// A checkpoint and its model.
struct OpenModel {
  ckpt::Checkpoint source;                     ///< checkpoint of any kind
  hf::ModelConfig config;                      ///< sizes
  std::vector<model::Parameter> table;         ///< all weights, with the compute precisions that the checkpoint records
  std::optional<hf::AdapterFolder> adapter{};  ///< holds the adapters of `config`; nothing: the checkpoint does
};

/// Opens a checkpoint as open_checkpoint() does, and checks it. Throws Error that names what is wrong if a byte of it
/// is damaged, or its weights are not those of its configuration, or, if it is quantized, codes and scales do not
/// match.
OpenModel open_model(const std::string& argument);

/// The chat template that a checkpoint carries; nothing if it carries none. Throws Error for a file in it that cannot
/// be read.
std::optional<chat::Carried> own_template(const ckpt::Checkpoint& checkpoint);

/// Puts the LoRA adapter of a PEFT folder beside the weights of a model, to its configuration and table. Throws Error
/// if the model has adapters already, and as AdapterFolder does.
void add_adapter(OpenModel& model, const std::string& folder);

}  // namespace fp8::convert
