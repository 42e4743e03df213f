/// The post-processor of a tokenizer: which ids come before and behind those of a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::token {

/// Ids around a text.
struct PostProcessor {
  std::vector<std::uint32_t> before = {};  ///< in their order
  std::vector<std::uint32_t> behind = {};  ///< in their order
};

/// Reads the member "post_processor", which may be null: TemplateProcessing (its template for one text, which holds it
/// once), RobertaProcessing, BertProcessing, ByteLevel (which changes no ids). Throws Error `what: reason`.
PostProcessor read_post_processor(const json::Value& part, const std::string& what);

}  // namespace fp8::token
