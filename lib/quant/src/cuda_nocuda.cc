// Stubs for builds without CUDA.
#include "cuda.h"

namespace fp8::quant::cuda {

using device::no_cuda;

void amax(const Context&, const View&, Granularity, ContractionAxis, const View&, bool) { no_cuda(); }
void record_amax(const Context&, const View&, const View&) { no_cuda(); }
void update_scales(const Context&, const ScaleSlots&, const DelayedRule&, const std::int32_t*) { no_cuda(); }
QuantizedPair quantize(const Context&, const View&, const CastPair&, const CastOptions&, device::PooledMemory*) {
  no_cuda();
}
void scales_from_amax(const Context&, const View&, const ScaleOptions&, const View&, const View&) { no_cuda(); }
void scale_columns(const Context&, const View&, const View&, const View&) { no_cuda(); }
void fill(const Context&, const View&, float) { no_cuda(); }
void reciprocals(const Context&, const View&, const View&) { no_cuda(); }
void cast_rows_to_bytes(const Context&, const View&, dtype::DType, const CastOptions&, const View&, const View&) {
  no_cuda();
}
void cast_columns_to_bytes(const Context&, const View&, dtype::DType, const View&, const View&, CastCounts*) {
  no_cuda();
}
void cast_blocks_to_bytes(const Context&, const View&, const Quantized&, const CastOptions&) { no_cuda(); }
void cast_to_bytes(const Context&, const View&, dtype::DType, const float*, const View&, CastCounts*) { no_cuda(); }
View repack(const Context&, const View&, ContractionAxis) { no_cuda(); }
View upcast(const Context&, const View&, dtype::DType) { no_cuda(); }
void quantize_groups(const Context&, const GroupCast&, const CastOptions&) { no_cuda(); }
void amax_groups(const Context&, const View&, std::span<const std::int64_t>, Granularity, const View&) { no_cuda(); }
void cast_groups_to_bytes(const Context&, const View&, std::span<const std::int64_t>, dtype::DType, const View&,
                          const View&, CastCounts*) {
  no_cuda();
}
void repack_groups(const Context&, const View&, std::span<const std::int64_t>, const View&) { no_cuda(); }

}  // namespace fp8::quant::cuda
