/// Quantizes matrices: amax, scale, codes, on host or device.
/// On the host the codes of a Quantized are kept as the BF16 values they stand for ("wide"): every E4M3 and E5M2 value
/// is one, so the emulated FP8 product is a BF16 matmul with exact products, without a decoding pass. On a device they
/// are bytes, neighbours along the contracted dimension, as Hopper's tensor cores want them. Codes that travel or are
/// stored are bytes everywhere.
#pragma once

#include <cstdint>

#include "fp8/quant/recipe.h"
#include "fp8/tensor/tensor.h"

namespace fp8::quant {

using device::Context;
using tensor::View;

/// Which dimension is contracted in the GEMM a matrix is quantized for, and so along which the amax is taken.
enum class ContractionAxis : std::uint8_t { last, first };

/// What casts did, for the step record.
struct CastCounts {
  std::int64_t elements = 0;  ///< elements cast
  std::int64_t saturated =
      0;  ///< |x * scale| beyond the largest value by more than half a spacing: clamping lost something
  std::int64_t underflowed = 0;  ///< x != 0 that became 0
  /// Adds another count.
  CastCounts& operator+=(const CastCounts& o);
};

/// A quantized matrix for one GEMM. x ~= codes * inverse_scale.
struct Quantized {
  /// [rows, cols] as the source. Host: bf16 values of the codes, strides as the source's. Device: u8, stride 1 along
  /// the contracted dimension and a multiple of 16 along the other; the bytes between are zero. Device, emulated: bf16
  /// values of those, with their strides.
  View codes;
  dtype::DType format = dtype::DType::bf16;          ///< grid the codes lie on: e4m3, e5m2
  Granularity granularity = Granularity::none;       ///< none: codes is the high-precision matrix itself
  ContractionAxis contract = ContractionAxis::last;  ///< dimension its GEMM contracts
  /// What x was multiplied by, f32: [1] for tensor; [rows] when columns are contracted, [cols] when rows are; empty for
  /// none.
  View scale;
  View inverse_scale;  ///< f32 reciprocals of scale
};

/// How to cast.
struct CastOptions {
  bool power_of_2 = false;       ///< round scales down to powers of two
  CastCounts* counts = nullptr;  ///< added to when not null; lies where the matrix lies
  bool emulate = false;          ///< on a device: bf16 codes, for chips without FP8; on the host they always are
};

/// A matrix for both of its GEMMs.
struct Both {
  Quantized columns;  ///< for the GEMM that contracts columns
  Quantized rows;     ///< for the one that contracts rows
};

/// Largest magnitude along the contracted dimension: f32 [1] (tensor) or one per index of the other (row). NaN
/// propagates.
///   x [rows, cols] f32 or bf16, any strides with one unit stride; out f32, contiguous
void amax(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract, const View& out);

/// Quantizes x [rows, cols] (f32 or bf16) for the GEMM that contracts `contract`. Memory comes from the arena under
/// category "fp8 codes". With Granularity::none the result refers to x. Deterministic, independent of the number of
/// threads.
Quantized quantize(const Context& ctx, const View& x, const Cast& cast, ContractionAxis contract,
                   const CastOptions& options);

/// Quantizes x for both of its GEMMs. On the host codes that casts.shared() are cast, and counted, once and serve both;
/// on a device one pass over x writes both layouts.
Both quantize_both(const Context& ctx, const View& x, const Casts& casts, const CastOptions& options);

/// Scales of `format` and their reciprocals, f32 [n], from magnitudes f32 [n] (may be the scales' memory), all
/// contiguous on the context's device.
void scales_from_amax(const Context& ctx, const View& amax, dtype::DType format, bool power_of_2, const View& scales,
                      const View& inverse_scales);

/// Casts x with a scale that is known beforehand, tensor granularity, to bytes: codes u8 of x's shape, contiguous. For
/// weights that travel as codes. `scale` points to one float on the device of x.
void cast_to_bytes(const Context& ctx, const View& x, dtype::DType format, const float* scale, const View& codes,
                   CastCounts* counts);

/// Byte codes [rows, cols] that travelled, as the operand of the GEMM that contracts `contract`: wide on the host; on a
/// device as they are where their layout serves, else laid out anew. Memory from the arena. `scale` and `inverse_scale`
/// are f32 [1] (kept by reference). `emulate` as in CastOptions.
Quantized from_bytes(const Context& ctx, const View& codes, dtype::DType format, ContractionAxis contract,
                     const View& scale, const View& inverse_scale, bool emulate = false);

/// codes / scale in f32, divided and rounded once each, laid out as the codes; memory from the arena under "scratch".
/// What the codes stand for, for products in f32 that follow PyTorch's emulation digit by digit. Host only.
/// Source: torchao float8_ops.py, float8_mm with emulate.
View dequantize(const Context& ctx, const Quantized& q);

}  // namespace fp8::quant
