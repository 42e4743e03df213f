/// Common parts of the outputs of initialization and conversion.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "fp8/ckpt/tensor_meta.h"
#include "fp8/dtype/dtype.h"
#include "fp8/dtype/e2m1.h"
#include "fp8/hf/config.h"
#include "fp8/model/parameters.h"

namespace fp8::model {

/// Elements per piece.
inline constexpr std::int64_t kPieceElements = std::int64_t{1} << 20U;

/// Calls visit(begin, end) for ranges of rows that cover a matrix, each of at most kPieceElements elements or
/// `together` rows, beginning at a multiple of `together`.
template <class Visit>
void for_pieces(std::int64_t rows, std::int64_t cols, const Visit& visit, std::int64_t together = 1) {
  const std::int64_t most = kPieceElements / std::max<std::int64_t>(1, cols) / together;
  const std::int64_t step = std::max<std::int64_t>(1, most) * together;
  for (std::int64_t begin = 0; begin < rows; begin += step) visit(begin, std::min(rows, begin + step));
}

/// The configuration with the keys of transformers 5, its key `dtype` naming the format of the weights.
inline json::Value config_with_dtype(const hf::ModelConfig& config, dtype::DType type) {
  json::Value value = hf::to_json(config);
  value.as_object().set("dtype", dtype::name_of(type));
  return value;
}

/// The format of a parameter in a file of weights in the format `type`: adapters are always f32.
inline dtype::DType stored_type(const Parameter& p, dtype::DType type) {
  return p.role == ParameterRole::adapter ? dtype::DType::f32 : type;
}

/// The checkpoint's description of a weight, compute precision and reason included.
inline ckpt::TensorMeta meta_of(const Parameter& p, dtype::DType type) {
  ckpt::TensorMeta meta;
  meta.name = std::string(ckpt::kWeights) + p.name;
  meta.dtype = type;
  meta.shape = p.shape;
  if (dtype::is_fp4(type)) meta.shape.back() /= dtype::packed(type);
  meta.precision = p.precision();
  meta.reason = p.reason;
  return meta;
}

}  // namespace fp8::model
