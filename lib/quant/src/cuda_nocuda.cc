// Stand-ins for builds without CUDA.
#include "cuda.h"

#include "fp8/base/error.h"

namespace fp8::quant::cuda {
namespace {

[[noreturn]] void none() { throw Error("this build has no CUDA"); }

}  // namespace

void amax(const Context&, const View&, Granularity, ContractionAxis, const View&) { none(); }
Both quantize(const Context&, const View&, const Casts&, Layouts, const CastOptions&) { none(); }
void scales_from_amax(const Context&, const View&, dtype::DType, bool, const View&, const View&) { none(); }
void cast_to_bytes(const Context&, const View&, dtype::DType, const float*, const View&, CastCounts*) { none(); }
View upcast(const Context&, const View&, dtype::DType) { none(); }
View repack(const Context&, const View&, ContractionAxis) { none(); }

}  // namespace fp8::quant::cuda
