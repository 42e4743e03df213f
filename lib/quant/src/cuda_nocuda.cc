// Stubs for builds without CUDA.
#include "cuda.h"

namespace fp8::quant::cuda {

using device::no_cuda;

void amax(const Context&, const View&, Granularity, ContractionAxis, const View&) { no_cuda(); }
QuantizedPair quantize(const Context&, const View&, const CastPair&, const CastOptions&) { no_cuda(); }
void scales_from_amax(const Context&, const View&, dtype::DType, bool, const View&, const View&) { no_cuda(); }
void cast_to_bytes(const Context&, const View&, dtype::DType, const float*, const View&, CastCounts*) { no_cuda(); }
View repack(const Context&, const View&, ContractionAxis) { no_cuda(); }
View upcast(const Context&, const View&, dtype::DType) { no_cuda(); }

}  // namespace fp8::quant::cuda
