/// Records of a run or an evaluation as lines for people, in place of JSON.
#pragma once

#include <string>

#include "fp8/json/value.h"

namespace fp8::train {

/// A line for a record of fp8-log(5): step, loss, gradient norm, learning rate, rate of a step; loss of an evaluation
/// or a sequence; path of a checkpoint. Empty for records that other lines on standard error replace: run, warning,
/// end.
std::string readable(const json::Value& record);

}  // namespace fp8::train
