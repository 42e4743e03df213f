// The templates of quantize.cuh with the CUDA launcher.
#include "cuda.h"
#include "fp8/device/cuda.h"
#include "quantize.cuh"

namespace fp8::quant::cuda {

using device::CudaLauncher;

void amax(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract, const View& out) {
  amax_cuda<CudaLauncher>(ctx, x, granularity, contract, out);
}

QuantizedPair quantize(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options) {
  return quantize_cuda<CudaLauncher>(ctx, x, casts, options);
}

void scales_from_amax(const Context& ctx, const View& amax, dtype::DType format, bool power_of_2, const View& scales,
                      const View& inverse_scales) {
  if (!ctx.dry) launch_scales(CudaLauncher(ctx), amax, format, power_of_2, scales, inverse_scales);
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
