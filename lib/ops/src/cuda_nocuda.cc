// Stubs for builds without CUDA.
#include "cuda.h"

namespace fp8::ops {

using device::no_cuda;

namespace cuda {
void norm_forward(const Context&, const char*, const AddNorm&) { no_cuda(); }
void norm_backward(const Context&, const NormGradient&, const View&) { no_cuda(); }
void add(const Context&, const View&, const View&, const View&) { no_cuda(); }
void sum_terms(const Context&, const View&, const View&) { no_cuda(); }
void copy(const Context&, const View&, const View&) { no_cuda(); }
void zero(const Context&, const View&) { no_cuda(); }
void swiglu_forward(const Context&, const View&, const View&, const Amax&) { no_cuda(); }
void swiglu_backward(const Context&, const View&, const View&, const View&, const Amax&) { no_cuda(); }
void rmsnorm_codes(const Context&, const View&, const View&, const View&, const quant::ProducedCodes&) { no_cuda(); }
void swiglu_codes(const Context&, const View&, const quant::ProducedCodes&) { no_cuda(); }
void swiglu_codes(const Context&, const View&, const quant::ProducedGroups&) { no_cuda(); }
void swiglu_backward_codes(const Context&, const View&, const View&, const std::array<quant::ProducedCodes, 2>&) {
  no_cuda();
}
void swiglu_backward_codes(const Context&, const View&, const View&, const std::array<quant::ProducedGroups, 2>&) {
  no_cuda();
}
void cross_entropy_rows(const Context&, const View&, const View&, const View&, float, const LossRows&) { no_cuda(); }
void cross_entropy_codes(const Context&, const View&, const View&, float, const LossRows&,
                         const quant::ProducedCodes&) {
  no_cuda();
}
void embedding_forward(const Context&, const View&, const View&, const View&, const VocabularyPart&) { no_cuda(); }
void embedding_backward(const Context&, const View&, const View&, const View&, const VocabularyPart&, const View&) {
  no_cuda();
}
void sum_partials(const Context&, const View&, const View&, const View&) { no_cuda(); }
void logit_maxima(const Context&, const View&, const View&) { no_cuda(); }
void logit_sums(const Context&, const View&, const View&, std::int64_t, const View&, const View&) { no_cuda(); }
void cross_entropy_of_part(const Context&, const PartOfLogits&) { no_cuda(); }
void bias_backward(const Context&, const View&, const View&, const View&) { no_cuda(); }
void cross_entropy(const Context&, const View&, const View&, const View&, float, bool) { no_cuda(); }
void rope_tables(const Context&, std::span<const float>, const View&, const View&) { no_cuda(); }
void rope(const Context&, const View&, const View&, const View&, bool) { no_cuda(); }
void dropout(const Context&, const View&, const Dropout&, const View&) { no_cuda(); }
void route_forward(const Context&, const View&, const RouteOptions&, const Routes&, const View&) { no_cuda(); }
void add_route_sums(const Context&, const Routes&, const View&, const View&) { no_cuda(); }
void route_backward(const Context&, const View&, const Routes&, bool, const BalanceGradients&, const View&) {
  no_cuda();
}
void gather_rows(const Context&, const View&, const View&, const View&) { no_cuda(); }
void combine_rows_backward(const Context&, const View&, const View&, const Routes&, const View&, const View&) {
  no_cuda();
}
void add_experts(const Context&, const char*, const View&, const Routes&, const View&, const View&, const View&) {
  no_cuda();
}
void attention_documents(const Context&, const Documents&, const DocumentTables&) { no_cuda(); }
void transpose(const Context&, const View&, const View&) { no_cuda(); }
void attention_forward(const Context&, const AttentionForward&) { no_cuda(); }
void attention_backward(const Context&, const AttentionBackward&, const AttentionScratch&) { no_cuda(); }

}  // namespace cuda

}  // namespace fp8::ops
