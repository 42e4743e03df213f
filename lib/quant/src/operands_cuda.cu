// The CUDA side of this crate: the templates of operands_cuda.cuh with the CUDA launcher.
#include "fp8/device/cuda.h"
#include "operands_cuda.cuh"

namespace fp8::quant::cuda {

using device::CudaLauncher;

void amax(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract, const View& out) {
  amax_into_cuda<CudaLauncher>(ctx, x, granularity, contract, out);
}

Both quantize(const Context& ctx, const View& x, const Casts& casts, Layouts layouts, const CastOptions& options) {
  return quantize_cuda<CudaLauncher>(ctx, x, casts, layouts.columns, layouts.rows, options);
}

void scales_from_amax(const Context& ctx, const View& amax, dtype::DType format, bool power_of_2, const View& scales,
                      const View& inverse_scales) {
  if (!ctx.dry) scales_cuda(CudaLauncher(ctx), amax, format, power_of_2, scales, inverse_scales);
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

}  // namespace fp8::quant::cuda
