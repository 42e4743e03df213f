/// Text and JSON reports of fp8-info. Text from files passes through terminal_safe().
#pragma once

#include <string>
#include <vector>

#include "fp8/convert/describe.h"
#include "fp8/convert/fit.h"
#include "fp8/data/tokens.h"
#include "fp8/json/value.h"

namespace fp8::info {

/// The record of model::describe: a summary, then a table of tensors. Moments are one line each.
std::string checkpoint_text(const json::Value& record);

/// {"type": "diff", "a", "b", "equal", "same_config", "same_train", "tensors": [{"name", "equal", "max_abs",
/// "relative_l2"} or {"name", "equal", "note"}]}.
json::Value distance_record(const std::string& a, const std::string& b, const convert::Distance& distance);

/// A table of tensors and a line with the verdict.
std::string distance_text(const std::string& a, const std::string& b, const convert::Distance& distance);

/// {"type": "tensor", "name", "relative_l2", "cosine", "factor"}, and "note" if there is one.
json::Value fit_record(const convert::TensorFit& tensor);

/// A table of the tensors that are not within `bound`, worst first, or the largest distance where all are; a line with
/// the verdict, and the suggestions.
std::string fit_text(const std::string& a, const std::string& b, const convert::Fit& fit, double bound,
                     const std::vector<std::string>& suggestions);

/// {"type": "tokens", "path", "tokens", "documents", "vocab_size", "eos", "mask", "sequence_length", "tokenizer",
/// "template"}.
json::Value tokens_record(const std::string& path, const data::TokenInfo& info);

/// One line about the token file, stating that it is not a checkpoint.
std::string tokens_text(const std::string& path, const data::TokenInfo& info);

}  // namespace fp8::info
