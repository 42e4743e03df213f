/// Casts on a device as far as they need no device: their memory, and what a profile records of them. A dry run plans
/// both in builds with and without CUDA. The launches are in quantize.cuh. Private to this crate.
#pragma once

#include "fp8/device/profile.h"
#include "fp8/quant/quantize.h"

namespace fp8::quant {

/// Lines of codes on a device begin at multiples of this.
inline constexpr std::int64_t kCodeStride = 16;

/// Bytes that a cast writes and reads for the scale of a row: a zero, the amax, the scale and its reciprocal.
inline constexpr double kBytesOfRowScale = 24;

/// Codes u8 [rows, cols] with unit stride along the contracted dimension and a multiple of 16 along the other; from
/// `keep`, or if that is null, from the arena.
View allocate_codes(const Context& ctx, std::int64_t rows, std::int64_t cols, ContractionAxis contract,
                    device::PooledMemory* keep = nullptr);

/// Whether the matrix has a scale for each block.
bool has_blocks(const Quantized& q);

/// Codes and scales of a cast of x, undefined; a result with Granularity::none stays empty. `options` are those of
/// options_of_cast(). What quantize_keeping() keeps is in memory of `keep`, unless that is null.
QuantizedPair allocate_pair(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options,
                            device::PooledMemory* keep);

/// Whether scales of a matrix of the pair are computed from amaxes, unless they are known.
bool computes_scales(const QuantizedPair& pair, const Quantized& q);

/// Reduces the amaxes of a matrix of the pair over the ranks that share it, if they cover elements of several.
void reduce_amaxes(const Context& ctx, const Quantized& q, const CastOptions& options, const View& amaxes);

/// Whether the codes of a cast become values.
bool emulates(const CastOptions& options, const Quantized& q);

/// Memory for the BF16 values of codes, with the same strides.
View allocate_upcast(const Context& ctx, const View& codes);

/// Memory for the values of codes in blocks times inverse scales, with the same strides: BF16, or f32 if the scales are
/// not powers of two.
View allocate_folded(const Context& ctx, const Quantized& q, bool power_of_2);

/// cuda::quantize in a dry run: the memory, and the reductions that a planned profile records.
QuantizedPair plan_pair(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options,
                        device::PooledMemory* keep);

/// Whether contiguous codes have the layout for the GEMM that contracts `contract`, as cuda::repack sees it.
bool is_laid_out(const View& codes, ContractionAxis contract);

/// Codes in the layout for the GEMM that contracts `contract`: `codes` itself, or a copy in the arena.
View repack(const Context& ctx, const View& codes, ContractionAxis contract);

/// cuda::upcast, or its memory in a dry run.
View upcast(const Context& ctx, const View& codes, dtype::DType format);

/// What a profile records of cuda::quantize.
device::Span span_of_cast(const View& x, const CastPair& casts, const CastOptions& options);

}  // namespace fp8::quant
