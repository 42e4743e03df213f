// The templates of quantize.cuh with the CUDA launcher.
#include "cuda.h"
#include "fold.cuh"
#include "fp8/device/cuda.h"
#include "groups.cuh"
#include "history.cuh"
#include "quantize.cuh"

namespace fp8::quant::cuda {

using device::CudaLauncher;

void amax(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract, const View& out,
          bool skip_nan) {
  amax_cuda<CudaLauncher>(ctx, x, granularity, contract, out, skip_nan);
}

void record_amax(const Context& ctx, const View& x, const View& out) {
  launch_amax(CudaLauncher(ctx), x, {out, {}, {}}, true, true);
}

void update_scales(const Context& ctx, const ScaleSlots& slots, const DelayedRule& rule, const std::int32_t* skip) {
  launch_update_scales(CudaLauncher(ctx), slots, rule, skip);
}

QuantizedPair quantize(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options,
                       device::PooledMemory* keep) {
  return quantize_cuda<CudaLauncher>(ctx, x, casts, options, keep);
}

void scales_from_amax(const Context& ctx, const View& amax, const ScaleOptions& options, const View& scales,
                      const View& inverse_scales) {
  launch_scales(CudaLauncher(ctx), amax, options, scales, inverse_scales);
}

void scale_columns(const Context& ctx, const View& x, const View& factors, const View& out) {
  launch_scale_columns(CudaLauncher(ctx), x, factors, out);
}

void fill(const Context& ctx, const View& out, float value) {
  const CudaLauncher launch(ctx);
  launch("fill", dim3(blocks_for(out.size(), kCastThreads)), dim3(kCastThreads), fill_kernel<float>, out.as<float>(),
         out.size(), value);
}

void reciprocals(const Context& ctx, const View& scales, const View& out) {
  launch_reciprocals(CudaLauncher(ctx), scales, out);
}

void cast_rows_to_bytes(const Context& ctx, const View& x, dtype::DType format, const CastOptions& options,
                        const View& codes, const View& scales) {
  rows_to_bytes_cuda<CudaLauncher>(ctx, x, format, options, codes, scales);
}

void cast_columns_to_bytes(const Context& ctx, const View& x, dtype::DType format, const View& scales,
                           const View& codes, CastCounts* counts) {
  launch_cast_columns(CudaLauncher(ctx), x, format, scales, codes, counts);
}

void cast_blocks_to_bytes(const Context& ctx, const View& x, const Quantized& q, const CastOptions& options) {
  quantize_into(ctx, CudaLauncher(ctx), x, {.last = q, .first = {}}, false, options);
}

void cast_to_bytes(const Context& ctx, const View& x, dtype::DType format, const float* scale, const View& codes,
                   CastCounts* counts) {
  cast_to_bytes_cuda<CudaLauncher>(ctx, x, format, scale, codes, counts);
}

View repack(const Context& ctx, const View& codes, ContractionAxis contract) {
  return repack_cuda<CudaLauncher>(ctx, codes, contract);
}

View upcast(const Context& ctx, const View& codes, dtype::DType format) {
  return upcast_cuda<CudaLauncher>(ctx, codes, format);
}

void quantize_groups(const Context& ctx, const GroupCast& cast, const CastOptions& options) {
  quantize_groups_cuda<CudaLauncher>(ctx, cast, options);
}

void amax_groups(const Context& ctx, const View& x, std::span<const std::int64_t> first, Granularity granularity,
                 const View& out) {
  amax_groups_cuda<CudaLauncher>(ctx, x, first, granularity, out);
}

void cast_groups_to_bytes(const Context& ctx, const View& x, std::span<const std::int64_t> first, dtype::DType format,
                          const View& scales, const View& codes, CastCounts* counts) {
  groups_to_bytes_cuda<CudaLauncher>(ctx, x, first, format, scales, codes, counts);
}

void repack_groups(const Context& ctx, const View& codes, std::span<const std::int64_t> first, const View& to) {
  repack_groups_cuda<CudaLauncher>(ctx, codes, first, to);
}

}  // namespace fp8::quant::cuda
