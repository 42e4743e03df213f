/// Quantizes matrices on host or device: amax, scale, codes.
/// On the host the codes of a Quantized are stored as BF16 values: BF16 represents every E4M3 and E5M2 value, so the
/// emulated FP8 GEMM is a BF16 GEMM with exact products, without a decoding pass. On a device they are bytes, adjacent
/// along the contracted dimension, as Hopper's tensor cores require. Codes of an FP8 all-gather and of files are bytes
/// everywhere.
#pragma once

#include <cstdint>

#include "fp8/quant/recipe.h"
#include "fp8/tensor/tensor.h"

namespace fp8::quant {

using device::Context;
using tensor::View;

/// The dimension of a matrix that its GEMM contracts; amaxes of Granularity::row are taken along it.
enum class ContractionAxis : std::uint8_t { last, first };

/// Counts of casts, for the step record.
struct CastCounts {
  std::int64_t elements = 0;     ///< elements cast
  std::int64_t saturated = 0;    ///< |x * scale| exceeds the largest value by more than half a spacing
  std::int64_t underflowed = 0;  ///< x != 0 that became 0
  /// Adds another count.
  CastCounts& operator+=(const CastCounts& o);
};

/// A quantized matrix for one GEMM. x ~= codes * inverse_scale, but for e2m1: x ~= codes * inverse_scale / 2688.
struct Quantized {
  /// [rows, cols] as the source. Host: bf16 values of the codes, row-major (column-major if the source is). Device: u8,
  /// stride 1 along the contracted dimension and a multiple of 16 along the other, zero padding. Device, emulated: bf16
  /// values of these bytes, same strides; for blocks folded, and f32 unless scales are powers of two. Blocks of 32 are
  /// always emulated.
  /// e2m1: bf16 values of codes times their block scales, which bf16 represents exactly; with Cast::hadamard those of
  /// the transform, whose rows are rounded up to 16. On a device in dry runs only: e2m1, whose memory has two elements
  /// in each byte.
  View codes;
  dtype::DType format = dtype::DType::bf16;  ///< e4m3, e5m2 or e2m1; the source's format with Granularity::none
  Granularity granularity =
      Granularity::none;  ///< granularity of scales; with none, codes is the high-precision matrix itself
  ContractionAxis contract = ContractionAxis::last;  ///< dimension that its GEMM contracts
  /// Factors of x, f32. Empty for none; [1] for tensor; for row, one for each index of the dimension that is not
  /// contracted. For blocks two dimensions, one scale for each block of block_extent(), in the order of the matrix:
  ///   block1x128, block1x32  [rows, ceil(cols / along)] or, contracting the first dimension, [ceil(rows / along),
  ///   cols];
  ///                  on a device adjacent along the dimension that is not contracted, the other stride rounded up to
  ///                  a multiple of 8, and as many lines of codes can be read; on the host rows without gaps
  ///   block128x128      [ceil(rows / 128), ceil(cols / 128)]; adjacent along the contracted dimension, the other
  ///   stride a
  ///                  multiple of 4 (on the host, codes for both GEMMs share the layout of the last dimension)
  View scale;           ///< empty for e2m1
  View inverse_scale;   ///< f32 reciprocals of scale, same layout; for e2m1 f32 [1], the amax of the tensor
  bool folded = false;  ///< codes are multiplied by their inverse scales: they approximate x itself
};

/// A scale that is known before the cast of a whole tensor, and where the cast records the amax that it finds. All f32
/// [1] on the matrix's device.
struct KnownScale {
  View scale;          ///< f32 [1], or empty if the scale is computed from this matrix
  View inverse_scale;  ///< reciprocal of scale; empty if scale is empty
  View amax;           ///< becomes max(itself, largest magnitude without NaN); empty: not recorded
  /// With this `scale` is not known yet: the tensor is cast with the scale that follows from its own amax by the rule
  /// ScaleRule::current, which the cast computes into memory of the arena. The amax is recorded all the same.
  bool own_amax = false;
  /// Whether a cast needs no amax of its tensor.
  bool is_known() const { return !scale.empty() && !own_amax; }
};

/// Reduces amaxes over ranks, before scales are computed from them.
class AmaxReducer {
 public:
  virtual ~AmaxReducer() = default;
  /// `amax` f32 [n] on the context's device, contiguous, becomes the largest of all ranks; NaN counts as the largest.
  /// Collective; nothing travels in a dry context.
  virtual void reduce(const Context& ctx, const View& amax) const = 0;
};

/// The part of a larger matrix that a matrix is, if ranks share it.
struct Split {
  const AmaxReducer* ranks = nullptr;  ///< the ranks; null: the matrix is whole
  int axis = 0;                        ///< 0: the matrix is some rows of the whole; 1: some columns
  std::int64_t begin = 0;              ///< first row or column in the whole
  std::int64_t whole = 0;              ///< rows or columns of the whole
  bool straddles = false;              ///< whether a block of the cast may be on several ranks; the same on all ranks
};

/// Random bits of stochastic rounding: a function of seed, stream and the place of an element in the global batch, so
/// that they depend neither on ranks nor on micro-batches that divide the tokens in sixteens.
struct RandomBits {
  std::uint64_t seed = 0;      ///< seed of the run
  std::uint64_t stream = 0;    ///< different for each step and tensor, even; casts that contract rows use stream + 1
  std::int64_t first_row = 0;  ///< number in the global batch of row 0 of the matrix
  std::int64_t rows = 0;       ///< rows of the global batch
};

/// Options of a cast.
struct CastOptions {
  bool power_of_2 = false;       ///< round scales down to powers of two
  CastCounts* counts = nullptr;  ///< added to if not null; on the matrix's device
  bool emulate = false;  ///< on a device, codes are bf16 values, for chips without FP8; the host always does this
  /// Multiply the codes of blocks by their inverse scales where that is exact: on the host, if scales are powers of two
  /// and every product is zero or a normal BF16. Quantized::folded tells whether it was done. Emulated codes on a
  /// device are always folded; below 2^-126 they are rounded to subnormal BF16.
  bool fold = false;
  ScaleRule rule = ScaleRule::torchao;  ///< rule from amax to scale, except for blocks
  KnownScale known{};                   ///< known scale for Granularity::tensor; then codes and amax come from one pass
  /// What ranks share: amaxes that cover elements of several ranks are reduced over them, once for each cast, so that
  /// codes and scales have the bits of these elements in a cast of the whole. Codes of blocks that may be on several
  /// ranks are always folded, also to subnormal BF16, and their scales are those of all blocks of the whole; this needs
  /// `fold`, scales that are powers of two, and the host, else it is an Error. A known scale needs no reduction.
  Split split{};
  /// The amax of the matrix, f32 [1] on its device, if the caller has it: without NaN if skips_nan(rule), else with; of
  /// all ranks with `split`. A cast of Granularity::tensor without a known scale then reads the matrix once; other
  /// casts ignore it. The result has the same bits. Empty: the amax is computed.
  View amax{};
  RandomBits random{};  ///< for Cast::stochastic
};

/// The casts of one matrix for two GEMMs, by the dimension that each contracts.
struct CastPair {
  Cast last;   ///< cast for the GEMM that contracts the last dimension
  Cast first;  ///< cast for the GEMM that contracts the first dimension
  /// Whether both GEMMs use the same codes: same format, and scales that do not depend on the contracted dimension.
  bool shared() const {
    return last == first && (last.granularity == Granularity::tensor || last.granularity == Granularity::block128x128);
  }
};

/// One matrix quantized for two GEMMs.
struct QuantizedPair {
  Quantized last;   ///< operand of the GEMM that contracts the last dimension
  Quantized first;  ///< operand of the GEMM that contracts the first dimension
};

/// Largest magnitude along the contracted dimension: f32 [1] (tensor) or one per index of the other dimension (row).
/// NaN propagates, unless `skip_nan`, which needs Granularity::tensor: then NaNs are left out.
///   x [rows, cols] f32 or bf16, one of the strides is 1; out f32, contiguous
void amax(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract, const View& out,
          bool skip_nan = false);

/// out f32 [1] becomes max(itself, largest magnitude of x without NaN). For the calibration of known scales.
void record_amax(const Context& ctx, const View& x, const View& out);

/// Quantizes x [rows, cols] (f32 or bf16) for the GEMM that contracts `contract`. Memory from the arena, category "fp8
/// codes"; a known scale is referred to by the result. With Granularity::none the result refers to x. Blocks of 128
/// follow ScaleRule::blockwise, those of 32 ScaleRule::mx, those of 16 ScaleRule::nvfp4, the other granularities
/// CastOptions::rule. Deterministic for any number of threads.
Quantized quantize(const Context& ctx, const View& x, const Cast& cast, ContractionAxis contract,
                   const CastOptions& options);

/// Quantizes x for two GEMMs. Shared codes are counted once, and on the host cast once; on a device one pass over x
/// writes both layouts.
QuantizedPair quantize_both(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options);

/// How scales follow from amaxes.
struct ScaleOptions {
  dtype::DType format = dtype::DType::e4m3;  ///< e4m3 or e5m2
  ScaleRule rule = ScaleRule::torchao;       ///< rule from amax to scale
  bool power_of_2 = false;                   ///< round down to powers of two
};

/// Scales and their reciprocals, f32 [n], from amaxes f32 [n] (may be the memory of the scales), all contiguous on the
/// context's device.
void scales_from_amax(const Context& ctx, const View& amax, const ScaleOptions& options, const View& scales,
                      const View& inverse_scales);

/// Casts x with one given scale to bytes: codes u8 of x's shape, contiguous. `scale` points to one float on the device
/// of x. For FP8 all-gather and files.
void cast_to_bytes(const Context& ctx, const View& x, dtype::DType format, const float* scale, const View& codes,
                   CastCounts* counts);

/// Contiguous bytes [rows, cols] of cast_to_bytes() as the operand of the GEMM that contracts `contract`: upcast on the
/// host; on a device the same memory if its layout is valid, else repacked. Memory from the arena. `scale` and
/// `inverse_scale` are f32 [1], or one for each row if `contract` is last, else for each column, or two-dimensional,
/// one for each block of block128x128 in the layout of Quantized::scale; the result refers to them. `emulate` as in
/// CastOptions, not with blocks.
Quantized from_bytes(const Context& ctx, const View& codes, dtype::DType format, ContractionAxis contract,
                     const View& scale, const View& inverse_scale, bool emulate = false);

/// codes / scale in f32 (folded codes as they are, e2m1 times amax / 2688), each rounded once, with the layout of the
/// codes; memory from the arena, category "scratch". The values serve GEMMs in f32 with the bits of PyTorch's
/// emulation. Host only. Source: torchao float8_ops.py, float8_mm with emulate.
View dequantize(const Context& ctx, const Quantized& q);

}  // namespace fp8::quant
