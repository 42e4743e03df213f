/// The CUDA operations of this crate. Callers have checked the arguments: matrices have unit column stride, and all
/// memory is on the device; not in a dry context. Defined in cuda.cu; in builds without CUDA they throw Error. Private
/// to this crate.
#pragma once

#include <span>

#include "fp8/quant/history.h"
#include "fp8/quant/quantize.h"

namespace fp8::quant {
struct GroupCast;  // group_cast.h
}

namespace fp8::quant::cuda {

/// See quant::amax.
void amax(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract, const View& out,
          bool skip_nan);
/// See quant::record_amax.
void record_amax(const Context& ctx, const View& x, const View& out);
/// See quant::update_scales.
void update_scales(const Context& ctx, const ScaleSlots& slots, const DelayedRule& rule, const std::int32_t* skip);
/// See quant::quantize_both, or with `keep` quant::quantize_keeping; a result with Granularity::none stays empty.
QuantizedPair quantize(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options,
                       device::PooledMemory* keep = nullptr);
/// See quant::scales_from_amax.
void scales_from_amax(const Context& ctx, const View& amax, const ScaleOptions& options, const View& scales,
                      const View& inverse_scales);
/// See quant::scale_columns.
void scale_columns(const Context& ctx, const View& x, const View& factors, const View& out);
/// Sets every f32 of `out` to `value`.
void fill(const Context& ctx, const View& out, float value);
/// See quant::reciprocals.
void reciprocals(const Context& ctx, const View& scales, const View& out);
/// See quant::cast_rows_to_bytes.
void cast_rows_to_bytes(const Context& ctx, const View& x, dtype::DType format, const CastOptions& options,
                        const View& codes, const View& scales);
/// See quant::cast_columns_to_bytes.
void cast_columns_to_bytes(const Context& ctx, const View& x, dtype::DType format, const View& scales,
                           const View& codes, CastCounts* counts);
/// See quant::cast_blocks_to_bytes; `q` has the memory of codes, scales and their reciprocals.
void cast_blocks_to_bytes(const Context& ctx, const View& x, const Quantized& q, const CastOptions& options);
/// See quant::cast_to_bytes.
void cast_to_bytes(const Context& ctx, const View& x, dtype::DType format, const float* scale, const View& codes,
                   CastCounts* counts);
/// Contiguous FP8 codes, not laid out for the GEMM that contracts `contract`, in a copy that is, in the arena.
View repack(const Context& ctx, const View& codes, ContractionAxis contract);
/// The BF16 values of FP8 codes, with the same strides; memory from the arena.
View upcast(const Context& ctx, const View& codes, dtype::DType format);
/// See quant::quantize_groups; writes to the memory that `cast` has, of at most kMostGroups groups with rows.
void quantize_groups(const Context& ctx, const GroupCast& cast, const CastOptions& options);
/// See quant::amax_groups; at most kMostGroups groups.
void amax_groups(const Context& ctx, const View& x, std::span<const std::int64_t> first, Granularity granularity,
                 const View& out);
/// See quant::cast_groups_to_bytes; at most kMostGroups groups with rows.
void cast_groups_to_bytes(const Context& ctx, const View& x, std::span<const std::int64_t> first, dtype::DType format,
                          const View& scales, const View& codes, CastCounts* counts);
/// Contiguous FP8 codes of at most kMostGroups groups of rows, to `to`, which has the lines of GroupTarget by columns.
void repack_groups(const Context& ctx, const View& codes, std::span<const std::int64_t> first, const View& to);

}  // namespace fp8::quant::cuda
