/// Settings of a computation of the model. They change neither the model nor the numbers, but for rounding.
#pragma once

#include <cstdint>

#include "fp8/dtype/dtype.h"
#include "fp8/model/operation.h"
#include "fp8/ops/attention.h"

namespace fp8::model {

/// Activations that backward recomputes instead of reading saved ones. selective: outputs of norms and of SwiGLU; full:
/// everything inside a layer.
enum class Recompute : std::uint8_t { none, selective, full };

/// Bytes of a block of logits on the host, and the least on a GPU.
inline constexpr std::int64_t kLeastLogits = std::int64_t{64} << 20;
/// Bytes of a block of logits on a GPU with enough memory.
inline constexpr std::int64_t kMostLogits = std::int64_t{1} << 30;

/// How the decoder computes.
struct Execution {
  dtype::DType activation = dtype::DType::bf16;  ///< f32 or bf16
  Recompute recompute = Recompute::none;         ///< trades time for memory; same numbers
  OperationObserver* observer = nullptr;         ///< observer of every operation, which does not change it, or null
  std::int64_t logit_bytes = kLeastLogits;       ///< memory for a block of logits, see head_block_rows()
  ops::AttentionOptions attention{};             ///< kernels of attention on a GPU
};

}  // namespace fp8::model
