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
void fused_attention_forward(const Context& ctx, const View& q, const View& k, const View& v, float scale,
                             const Documents& documents, const View& out, const View& lse) {
  attention_forward(ctx, q, k, v, scale, documents, out, lse, {AttentionKernels::plain});
}
void fused_attention_backward(const Context& ctx, const View& q, const View& k, const View& v, const View& out,
                              const View& lse, const View& dout, float scale, const Documents& documents,
                              const View& dq, const View& dk, const View& dv, bool) {
  attention_backward(ctx, q, k, v, out, lse, dout, scale, documents, dq, dk, dv, {AttentionKernels::plain});
}

}  // namespace ops
}  // namespace fp8
