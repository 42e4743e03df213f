/// A linear layer y = x w^T (+ bias) under any recipe: forward, dgrad, wgrad. Several projections of the same input lie
/// together (q, k, v; gate, up): in high precision one GEMM serves them all; in FP8 the input is cast once and each
/// projection has its own scales and GEMM, as if it stood alone.
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
  bool fp8 = false;        ///< its precision; the others run in the activations' precision
};

/// How FP8 parts are computed.
struct LinearPrecision {
  const quant::Recipe* recipe = nullptr;                      ///< null: nothing is FP8
  quant::CastOptions options;                                 ///< scales and counts
  gemm::Accumulation accumulation = gemm::Accumulation::f32;  ///< how FP8 products are summed on the host
};

/// One part, or neighbouring parts that are not FP8 as one, ready for GEMMs.
struct Operand {
  Part part;  ///< rows of the whole weight
  quant::Quantized
      codes;  ///< [rows, K]: for the forward GEMM (contracts columns) or for dgrad (contracts rows), as prepared
};

/// A weight ready for a pass.
struct Weight {
  View bias;                      ///< [N] or empty
  LinearPrecision precision;      ///< of its FP8 parts
  std::vector<Operand> operands;  ///< in row order, covering [0, N)
};

/// Byte codes of a weight that travelled as codes.
struct Codes {
  View bytes;           ///< u8 [N, K]
  View scales;          ///< f32 [number of parts]
  View inverse_scales;  ///< their reciprocals
};

/// Which GEMMs a weight is prepared for.
enum class Pass : std::uint8_t { forward, backward };

/// Quantizes a weight's FP8 parts for a pass; memory from the arena. `matrix` is [N, K].
Weight prepare(const Context& ctx, const View& matrix, const View& bias, const std::vector<Part>& parts,
               const LinearPrecision& precision, Pass pass);

/// The same from gathered codes; every part is FP8 with one scale.
Weight prepare_codes(const Context& ctx, const Codes& codes, const View& bias, const std::vector<Part>& parts,
                     const LinearPrecision& precision, Pass pass);

/// y [M, N] = x w^T + bias. y has x's dtype.
void forward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const View& x, const View& y);

/// Where gradients go.
struct Gradients {
  View dx;                  ///< [M, K], dy's dtype, overwritten; empty: not wanted
  View dw;                  ///< [N, K] f32; empty: not wanted (frozen)
  View db;                  ///< [N] f32, added to; empty: no bias or frozen
  bool accumulate = false;  ///< dw += instead of dw =
};

/// Gradients of forward; x is its input, dy [M, N] the gradient of its output. The weight must be prepared for the
/// backward pass.
void backward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const View& x, const View& dy,
              const Gradients& gradients);

/// What was planned: FP8 GEMMs of one forward (and one backward) of a weight with these parts, K columns, over m rows
/// of x, and their FLOPs. From the precisions alone, so that it can be held against what the engine counted.
gemm::Count planned_fp8(const std::vector<Part>& parts, std::int64_t k, const quant::Recipe& recipe, std::int64_t m,
                        bool backward);

}  // namespace fp8::linear
