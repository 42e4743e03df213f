// Sources with kernels, compiled as they are for the host, with the launcher of the fp8/device/cuda.h that the program
// has.
#include "fp8/device/cuda.h"  // the header of the program must come before all others
//
#include "../../lib/comm/src/clear_signs.cu"
#include "../../lib/comm/src/cuda.h"
#include "../../lib/comm/src/solo_on_device.cu"
#include "../../lib/ops/src/attention_fused.h"

namespace fp8 {

// The plain kernels instead of cuDNN.
namespace ops {

std::string attention_library() { return "none"; }
GradientBytes gradient_bytes(const Context&, const View&, std::int64_t, const Documents&) { return {}; }
FusedCost fused_cost(const Context&, const View&, std::int64_t, const Documents&, bool, bool) { return {}; }
void fused_attention_forward(const Context& ctx, const AttentionForward& of) {
  attention_forward(ctx, of, {AttentionKernels::plain});
}
void fused_attention_backward(const Context& ctx, const AttentionBackward& of, bool) {
  attention_backward(ctx, of, {AttentionKernels::plain});
}

}  // namespace ops
}  // namespace fp8
