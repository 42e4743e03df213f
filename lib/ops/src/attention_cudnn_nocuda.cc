// Stubs of cuDNN for builds without CUDA, in which no context has a stream.
#include "attention_fused.h"

namespace fp8::ops::cudnn {

Plan plan(const Context&, const FusedAttention&) { device::no_cuda(); }
void run(const Context&, const Plan&, std::unordered_map<std::int64_t, void*>&, void*) { device::no_cuda(); }
int capability(const Context&) { device::no_cuda(); }

}  // namespace fp8::ops::cudnn
