/// Opens a checkpoint together with the model that it holds, for tools that take any kind of checkpoint.
#pragma once

#include <map>
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

/// The files beside the tokenizer of a model, and the chat template that is among them.
struct TokenizerFiles {
  std::map<std::string, std::string> texts;   ///< bytes of the files, by name
  std::optional<chat::Carried> own_template;  ///< as own_template() has it
};

/// The files of a checkpoint. The chat template and the token that ends a text in the PEFT folder `adapter` take the
/// place of those of the checkpoint, as far as the folder has them; `adapter` may be empty. Throws Error for a file
/// that cannot be read.
TokenizerFiles tokenizer_files(const ckpt::Checkpoint& checkpoint, const std::string& adapter);

/// Puts the LoRA adapter of a PEFT folder beside the weights of a model, to its configuration and table. Throws Error
/// if the model has adapters already, and as AdapterFolder does.
void add_adapter(OpenModel& model, const std::string& folder);

}  // namespace fp8::convert
