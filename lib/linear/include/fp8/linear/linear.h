/// A linear layer y = x w^T (+ bias) under any recipe: the GEMMs forward, dgrad and wgrad. Projections of the same
/// input (q, k, v; gate, up) share one fused weight and are its parts: in high precision one GEMM computes all of them;
/// in FP8 the input is cast once, and each part has its own scales and GEMM, as if it were a separate layer.
///   x [M, K], w [N, K], y and dy [M, N]; activations f32 or bf16; gradients of weights f32
/// A part may have an adapter (LoRA), which adds scaling B (A x) to its columns of y in the precision of the
/// activations: a [R, K], b [n, R] for a part of n rows.
/// A Weight is prepared for one pass; this crate keeps no state between calls. Scales that are known before a cast
/// (delayed scaling) come with the Weight, which refers to the caller's memory of them.
/// Source: torchao float8_linear.py (casts of the operands by recipe).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fp8/gemm/gemm.h"
#include "fp8/ops/dropout.h"
#include "fp8/quant/quantize.h"

namespace fp8::linear {

using device::Context;
using tensor::View;

/// Rows of a fused weight that are one projection.
struct Part {
  std::int64_t begin = 0;        ///< first row
  std::int64_t end = 0;          ///< one past the last
  bool fp8 = false;              ///< compute precision; other parts are computed in the precision of the activations
  quant::GemmSet gemms{};        ///< the GEMMs of an FP8 part that run in FP8
  int number = -1;               ///< number of the projection, which an observer gets
  std::int64_t whole_begin = 0;  ///< first row in the whole projection, if tensor parallelism divides rows
  std::int64_t whole_rows = 0;   ///< rows of the whole projection, if tensor parallelism divides rows
};

class Observer;  // observer.h

using quant::AmaxReducer;

/// How tensor parallelism divides a weight. Casts of x, of the weight and of dy then have the codes and scales that the
/// whole would have, so an operand whose amax covers elements of several ranks takes one reduction in each pass.
struct TensorParallel {
  const AmaxReducer* ranks = nullptr;  ///< the ranks; null: the weight is whole
  int axis = 0;                        ///< 0: this rank has rows of each part, and those columns of y; 1: it has
                                       ///< columns of the weight and of x, and y is a term of a sum
  std::int64_t first_column = 0, columns = 0;  ///< with axis 1, the first column, and columns of the whole
  bool straddles = false;                      ///< whether a block of scales may be on several ranks
};

/// How FP8 parts are computed.
struct LinearPrecision {
  const quant::Recipe* recipe = nullptr;  ///< recipe, or null if no part is FP8
  quant::CastOptions options;  ///< scales, counts, and random bits, to whose stream twice a part's number is added
  gemm::Accumulation accumulation = gemm::Accumulation::f32;  ///< accumulation of FP8 GEMMs on the host
  Observer* observer = nullptr;                               ///< observer of FP8 GEMMs, or null
  const AmaxReducer* amax_reducer = nullptr;                  ///< reducer of activations with one scale; null: the
                                                              ///< ranks have scales of their own
  /// f32 with a factor in (1/2, 1] for each column of any x, or empty. Before the casts of forward() the columns of x
  /// are multiplied by these and those of the weight divided, which changes the rounding of both and, but for that, no
  /// product. A known scale of the weight is not used then, nor a given amax of x. Factors are of the columns of the
  /// whole. On the context's device.
  View column_factors{};
  TensorParallel tensor_parallel{};  ///< the ranks that divide the weight
};

/// The recipe, or if no part is FP8, one that casts nothing.
inline const quant::Recipe& recipe_of(const LinearPrecision& precision) {
  static constexpr quant::Recipe kHighPrecision{};
  return precision.recipe != nullptr ? *precision.recipe : kHighPrecision;
}

/// Known scales of a weight's FP8 operands, and where their amaxes are recorded. Empty, or by part.
struct KnownScales {
  quant::KnownScale x;                ///< scale of the input, which all parts share
  std::vector<quant::KnownScale> w;   ///< scale of each part of the weight
  std::vector<quant::KnownScale> dy;  ///< scale of the gradient of each part's output
};

/// The weight of one part, or of adjacent high-precision parts together, as an operand of a GEMM.
struct Operand {
  Part part;               ///< rows of the whole weight
  quant::Quantized codes;  ///< [rows, K], for the GEMM forward or dgrad, depending on the pass
  View folded{};           ///< f32 [rows]: factors of the columns of dy before dgrad, with one FP8 copy; else empty
  View source{};           ///< [rows, K] that was cast to `codes`; empty if it is not known
};

/// An adapter beside one part of a weight: y[:, part] += scaling (drop(x) a^T) b^T.
struct Adapter {
  Part part;     ///< rows of the whole weight
  View a, b;     ///< [R, K] and [n, R], in the activations' type
  View scaling;  ///< f32 [1]
  ops::Dropout dropout =
      {};  ///< dropout of the elements of x, in forward and in backward; probability 0 leaves out none
};

/// A weight prepared for a pass.
struct Weight {
  View bias;                        ///< [N] or empty
  LinearPrecision precision;        ///< precision of the FP8 parts
  std::vector<Operand> operands;    ///< operands in row order, which cover [0, N)
  std::vector<Part> parts{};        ///< parts that `known` belongs to
  KnownScales known{};              ///< scales of x and dy in this pass
  std::vector<Adapter> adapters{};  ///< adapters in row order, at most one for each part
};

/// Codes of a weight for one pass, as gathered by an FP8 all-gather, or as a checkpoint stores them.
struct Codes {
  View bytes;   ///< u8 [N, K]; [N, K / 2] of packed FP4
  View scales;  ///< f32, of all parts one after the other: scale_count() of each, or blocks of 128 x 128; of FP4
                ///< e4m3 codes of blocks of 16 x 16
  View inverse_scales;  ///< their reciprocals; of FP4 the amaxes, f32 [number of parts]
  View source{};        ///< [N, K] that was cast to these codes, for an observer; else empty
  /// Codes of blocks are multiplied by their inverse scales where prepare() would do so.
  bool fold = false;
};

/// Rows of the scales of square blocks of `extent` of a weight with these parts, each of which has blocks of its own:
/// [rows, ceil(K / extent)].
std::int64_t block_rows(const std::vector<Part>& parts, std::int64_t extent);

/// The pass for which a weight is prepared: GEMM forward, forward again for backward, or GEMM dgrad.
enum class Pass : std::uint8_t { forward, recompute, backward };

/// Quantizes a weight's FP8 parts for a pass; memory from the arena. `matrix` is [N, K]. If no part is FP8 under
/// `precision`, forward() and backward() record the amaxes of x and dy in `known` without casts (calibration).
Weight prepare(const Context& ctx, const View& matrix, const View& bias, const std::vector<Part>& parts,
               const LinearPrecision& precision, Pass pass, const KnownScales& known = {});

/// Number of the scales of a part [rows, columns] of a weight whose codes are cast for the pass: one, or where the
/// recipe scales rows, one for each row in forward and one for each column in backward; with one FP8 copy one for each
/// row.
std::int64_t scale_count(const quant::Recipe& recipe, Pass pass, std::int64_t rows, std::int64_t columns);

/// Prepares a weight from codes. Every part is FP8 with scale_count() scales or, if the scales have two dimensions,
/// one for each block of 128 x 128, or of 16 x 16 of FP4, which serves both GEMMs.
Weight prepare_codes(const Context& ctx, const Codes& codes, const View& bias, const std::vector<Part>& parts,
                     const LinearPrecision& precision, Pass pass, const KnownScales& known = {});

/// One of several weights [N, K] that follow each other in one matrix.
struct GroupWeight {
  std::vector<Part> parts;  ///< parts with the rows of those of the other weights
  KnownScales known{};      ///< as for prepare()
};

/// prepare() of several weights without bias, in `matrix` [groups N, K]. On a device the casts of all of them take a
/// few launches, if their parts have the same precision and quant::casts_groups() allows.
std::vector<Weight> prepare_groups(const Context& ctx, const View& matrix, std::span<const GroupWeight> weights,
                                   const LinearPrecision& precision, Pass pass);

/// prepare_codes() of several weights without bias and without one FP8 copy: Codes::bytes [groups N, K], scales of the
/// parts of all weights, one after the other. With blocks all parts have equally many rows, a multiple of 128. On a
/// device with a multiple of 16 columns the launches do not depend on the number of weights up to 512.
std::vector<Weight> prepare_codes_groups(const Context& ctx, const Codes& codes, std::span<const GroupWeight> weights,
                                         const LinearPrecision& precision, Pass pass);

/// The arguments that the GEMMs of one layer and pass share.
struct Call {
  const Context& ctx;                ///< device, arena
  gemm::Engine& engine;              ///< computes and counts
  const LinearPrecision& precision;  ///< precision of the weight
  dtype::DType activation;           ///< type of x and dy: f32 or bf16
};

/// The amaxes of whole activations that the casts of a weight's forward() and backward() need. A caller that passes
/// one, from the kernel that wrote the activation or from an earlier pass, saves a pass over the activation.
struct NeededAmaxes {
  bool x = false;         ///< cast x, for forward or wgrad
  bool dy = false;        ///< cast each part's columns of dy, for dgrad or wgrad
  bool skip_nan = false;  ///< amaxes leave out NaNs; otherwise an amax of elements with NaN is NaN
};
/// The amaxes that a weight with these parts needs in any pass, for scales of whole tensors that are not known before
/// the cast.
NeededAmaxes needed_amaxes(const LinearPrecision& precision, const std::vector<Part>& parts, const KnownScales& known);
/// The amaxes that a weight, prepared for any pass, needs in any pass.
NeededAmaxes needed_amaxes(const Weight& weight);

/// What a caller of forward() has or adds itself.
struct ForwardOptions {
  /// f32 [1] on the context's device: the amax of x, of the whole if tensor parallelism divides x. Empty: forward()
  /// computes the amax if it needs one.
  View amax{};
  /// `amax` has been computed; otherwise forward() stores it there if needed_amaxes() says that x needs one.
  bool amax_known = false;
  /// Add the weight's bias; false: y is a term of a sum, to which the caller adds the bias.
  bool bias = true;
};

/// y [M, N] = x w^T + bias of the whole weight, and adapters: casts x and runs forward for each part. y has x's dtype,
/// or f32 without adapters. The amax changes no bit of y.
void forward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const View& x, const View& y,
             const ForwardOptions& options = {});

/// Results of backward().
struct Gradients {
  View dx;                  ///< [M, K], dy's dtype, overwritten; empty: not wanted
  View dw;                  ///< [N, K] f32; empty: not wanted (frozen)
  View db;                  ///< [N] f32, added to; empty: no bias or frozen
  bool accumulate = false;  ///< dw, a and b are added to, not overwritten
  View a{};  ///< f32 [rows of all a, K]: gradients of the adapters' a, one after the other; empty: no adapter
  View b{};  ///< f32 [rows of all b, R]: gradients of the adapters' b
  bool after_dx = false;  ///< earlier calls have computed dx: codes of dy that both GEMMs read are not counted again
};

/// Known amaxes of the activations of backward(), by needed_amaxes(); f32 on the context's device. Of the whole where
/// tensor parallelism divides x or dy.
struct KnownAmaxes {
  View x{};   ///< [1], of x; empty: computed if needed
  View dy{};  ///< [number of parts], of each part's columns of dy; empty: computed if needed
};

/// Gradients of the whole weight; x is the input of forward, which may be empty if dw is not wanted and there are no
/// adapters and no calibration, dy [M, N] the gradient of its output. The cast of dy is shared by dgrad and wgrad of
/// each part. The weight must be prepared for the backward pass. Adapters compute the
/// product of x and a again, which is cheaper than to keep it. `amaxes` change no bit of the results.
void backward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const View& x, const View& dy,
              const Gradients& gradients, const KnownAmaxes& amaxes = {});

/// The FP8 GEMMs, and their FLOPs, that one forward (and one backward) of a weight with these parts and K columns over
/// m rows of x should run, computed from the precisions alone, for comparison with the engine's counts.
gemm::Count planned_fp8(const std::vector<Part>& parts, std::int64_t k, const quant::Recipe& recipe, std::int64_t m,
                        bool backward);

}  // namespace fp8::linear
