/// Records of a run or an evaluation as lines for people, in place of JSON.
#pragma once

#include <string>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::train {

/// A line for a record of fp8-log(5): step, loss, gradient norm, learning rate, rate of a step; loss of an evaluation
/// or a sequence; path of a checkpoint. Empty for records that other lines on standard error replace: run, warning,
/// end.
std::string readable(const json::Value& record);

/// A table of records of evaluations of one model on the same data, and its heading: precision and recipe, loss, the
/// difference from the first loss, and perplexity.
std::vector<std::vector<std::string>> evaluation_table(const std::vector<json::Value>& records);

}  // namespace fp8::train
