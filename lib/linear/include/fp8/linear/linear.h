/// A linear layer y = x w^T (+ bias) under any recipe: forward, dgrad, wgrad. Several projections of the same input lie together (q, k, v;
/// gate, up): one forward GEMM and one wgrad GEMM serve them, while each keeps its own scales, as if it stood alone.
///   x [M, K], w [N, K], y and dy [M, N]; activations f32 or bf16; gradients of weights f32
/// A layer is described by a Weight, which is prepared for a pass and thrown away; nothing is remembered here.
/// Source: torchao float8_linear.py (which operand is cast how, per recipe).
#pragma once

#include <cstdint>
#include <vector>

#include "fp8/gemm/gemm.h"
#include "fp8/quant/quantize.h"

namespace fp8::linear {

using device::Context;
using tensor::View;

/// Rows of a fused weight that are one projection.
struct Part {
  std::int64_t begin = 0;  ///< first row
  std::int64_t end = 0;    ///< one past the last
  bool fp8 = false;        ///< its fate; the others run in the activations' precision
};

/// How FP8 parts are computed.
struct Precision {
  const quant::Recipe* recipe = nullptr;  ///< null: nothing is FP8
  quant::Options options;                 ///< scales and counts
};

/// Neighbouring parts of the same fate, ready for GEMMs.
struct Run {
  std::vector<Part> parts;               ///< rows are those of the whole weight
  quant::Quantized forward;              ///< [rows, K], for the forward GEMM
  std::vector<quant::Quantized> dgrad;   ///< one a part (one in all when not FP8), for the dgrad GEMM
  /// First row.
  std::int64_t begin() const { return parts.front().begin; }
  /// One past the last row.
  std::int64_t end() const { return parts.back().end; }
  /// Fate of all of them.
  bool fp8() const { return parts.front().fp8; }
};

/// A weight ready for a pass.
struct Weight {
  View matrix;            ///< [N, K] f32 or bf16; empty when only codes were gathered; for vectors (norms) [N]
  View bias;              ///< [N] or empty
  Precision precision;    ///< of its FP8 parts
  std::vector<Run> runs;  ///< in row order, covering [0, N)
  std::int64_t rows = 0;  ///< N
  std::int64_t cols = 0;  ///< K
};

/// Byte codes of a weight that travelled as codes.
struct Codes {
  View bytes;           ///< u8 [N, K]
  View inverse_scales;  ///< f32 [number of parts]
};

/// Which GEMMs a weight is prepared for.
enum class Pass : std::uint8_t { forward, backward };

/// Quantizes a weight's FP8 parts for a pass; memory from the arena. `matrix` is [N, K].
Weight prepare(const Context& ctx, const View& matrix, const View& bias, const std::vector<Part>& parts, const Precision& precision, Pass pass);

/// The same from gathered codes; every part is FP8 with one scale.
Weight prepare_codes(const Context& ctx, const Codes& codes, const View& bias, const std::vector<Part>& parts, const Precision& precision,
                     Pass pass);

/// y [M, N] = x w^T + bias. y has x's dtype.
void forward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const View& x, const View& y);

/// Where gradients go.
struct Gradients {
  View dx;                  ///< [M, K], dy's dtype, overwritten; empty: not wanted
  View dw;                  ///< [N, K] f32; empty: not wanted (frozen)
  View db;                  ///< [N] f32, added to; empty: no bias or frozen
  bool accumulate = false;  ///< dw += instead of dw =
};

/// Gradients of forward; x is its input, dy [M, N] the gradient of its output. The weight must be prepared for the backward pass.
void backward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const View& x, const View& dy, const Gradients& gradients);

/// FP8 GEMMs that one forward (and backward) of this weight runs, from its fates alone, and their FLOPs at M rows: what was planned.
gemm::Count planned_fp8(const std::vector<Part>& parts, const quant::Recipe& recipe, std::int64_t m, std::int64_t k, bool backward);

}  // namespace fp8::linear
