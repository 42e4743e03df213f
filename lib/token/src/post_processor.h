/// The post-processor of a tokenizer: the ids added before and after those of a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::token {

/// Ids added around a text.
struct PostProcessor {
  std::vector<std::uint32_t> before = {};  ///< before the text, in order
  std::vector<std::uint32_t> behind = {};  ///< after the text, in order
};

/// Reads the member "post_processor", which may be null: TemplateProcessing (the template for one text),
/// RobertaProcessing, BertProcessing, ByteLevel (which adds no ids). Throws Error `what: reason`.
PostProcessor read_post_processor(const json::Value& part, const std::string& what);

}  // namespace fp8::token
