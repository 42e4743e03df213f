// Attention on a device: attention.cuh and attention_documents.cuh with the CUDA launcher.
#include "attention.cuh"
#include "attention_documents.cuh"
#include "fp8/device/cuda.h"

namespace fp8::ops::cuda {

using device::CudaLauncher;

void attention_forward(const Context& ctx, const View& q, const View& k, const View& v, float scale,
                       const Documents& documents, const View& out, const View& lse) {
  attention_forward_cuda(CudaLauncher(ctx), q, k, v, scale, documents, out, lse);
}

void attention_backward(const Context& ctx, const View& q, const View& k, const View& v, const View& out,
                        const View& lse, const View& dout, float scale, const Documents& documents, const View& dq,
                        const View& dk, const View& dv, const AttentionScratch& scratch) {
  attention_backward_cuda(CudaLauncher(ctx), q, k, v, out, lse, dout, scale, documents, dq, dk, dv, scratch);
}

void attention_documents(const Context& ctx, const Documents& documents, const DocumentTables& tables) {
  attention_documents_cuda(CudaLauncher(ctx), documents, tables);
}

void turn(const Context& ctx, const View& from, const View& to) { transpose_cuda(CudaLauncher(ctx), from, to); }

}  // namespace fp8::ops::cuda
