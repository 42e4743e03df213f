// Element-wise ops and the embedding on a device: their .cuh with the CUDA launcher.
#include "embedding.cuh"
#include "fp8/device/cuda.h"

namespace fp8::ops::cuda {

using device::CudaLauncher;

void add(const Context& ctx, const View& a, const View& b, const View& out) { add_cuda(CudaLauncher(ctx), a, b, out); }

void copy(const Context& ctx, const View& in, const View& out) { copy_cuda(CudaLauncher(ctx), in, out); }

void zero(const Context& ctx, const View& x) { zero_cuda(CudaLauncher(ctx), x); }

void swiglu_forward(const Context& ctx, const View& gate_up, const View& h) {
  swiglu_forward_cuda(CudaLauncher(ctx), gate_up, h);
}

void swiglu_backward(const Context& ctx, const View& dh, const View& gate_up, const View& d_gate_up) {
  swiglu_backward_cuda(CudaLauncher(ctx), dh, gate_up, d_gate_up);
}

void embedding_forward(const Context& ctx, const View& tokens, const View& table, const View& out) {
  embedding_forward_cuda(CudaLauncher(ctx), tokens, table, out);
}

void embedding_backward(const Context& ctx, const View& tokens, const View& dout, const View& dtable,
                        const View& scratch) {
  embedding_backward_cuda(CudaLauncher(ctx), tokens, dout, dtable, scratch);
}

void bias_backward(const Context& ctx, const View& dy, const View& db, const View& partial) {
  bias_backward_cuda(CudaLauncher(ctx), dy, db, partial);
}

}  // namespace fp8::ops::cuda
