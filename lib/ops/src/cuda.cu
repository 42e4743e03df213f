// The operations of cuda.h: the templates of the .cuh files with the CUDA launcher.
#include "attention.cuh"
#include "attention_documents.cuh"
#include "codes.cuh"
#include "cross_entropy.cuh"
#include "cuda.h"
#include "dropout.cuh"
#include "embedding.cuh"
#include "fp8/device/cuda.h"
#include "norm.cuh"
#include "rope.cuh"
#include "route.cuh"
#include "route_rows.cuh"
#include "vocabulary.cuh"

namespace fp8::ops::cuda {

using device::CudaLauncher;

void norm_forward(const Context& ctx, const char* name, const AddNorm& norm) {
  norm_forward_cuda(CudaLauncher(ctx), name, norm);
}

void norm_backward(const Context& ctx, const NormGradient& norm, const View& partial) {
  norm_backward_cuda(CudaLauncher(ctx), norm, partial);
}

void add(const Context& ctx, const View& a, const View& b, const View& out) { add_cuda(CudaLauncher(ctx), a, b, out); }

void sum_terms(const Context& ctx, const View& terms, const View& out) {
  sum_terms_cuda(CudaLauncher(ctx), terms, out);
}

void copy(const Context& ctx, const View& in, const View& out) { copy_cuda(CudaLauncher(ctx), in, out); }

void zero(const Context& ctx, const View& x) { zero_cuda(CudaLauncher(ctx), x); }

void swiglu_forward(const Context& ctx, const View& gate_up, const View& h, const Amax& amax) {
  swiglu_forward_cuda(CudaLauncher(ctx), gate_up, h, amax);
}

void swiglu_backward(const Context& ctx, const View& dh, const View& gate_up, const View& d_gate_up, const Amax& amax) {
  swiglu_backward_cuda(CudaLauncher(ctx), dh, gate_up, d_gate_up, amax);
}

void rmsnorm_codes(const Context& ctx, const View& x, const View& weight, const View& rstd,
                   const quant::ProducedCodes& to) {
  rmsnorm_codes_cuda(CudaLauncher(ctx), x, weight, rstd, to);
}

void swiglu_codes(const Context& ctx, const View& gate_up, const quant::ProducedCodes& to) {
  swiglu_codes_cuda(CudaLauncher(ctx), gate_up, to);
}

void swiglu_codes(const Context& ctx, const View& gate_up, const quant::ProducedGroups& to) {
  swiglu_codes_cuda(CudaLauncher(ctx), gate_up, to);
}

void swiglu_backward_codes(const Context& ctx, const View& dh, const View& gate_up,
                           const std::array<quant::ProducedCodes, 2>& to) {
  swiglu_backward_codes_cuda(CudaLauncher(ctx), dh, gate_up, to);
}

void swiglu_backward_codes(const Context& ctx, const View& dh, const View& gate_up,
                           const std::array<quant::ProducedGroups, 2>& to) {
  swiglu_backward_codes_cuda(CudaLauncher(ctx), dh, gate_up, to);
}

void embedding_forward(const Context& ctx, const View& tokens, const View& table, const View& out,
                       const VocabularyPart& part) {
  embedding_forward_cuda(CudaLauncher(ctx), tokens, table, out, part);
}

void sum_partials(const Context& ctx, const View& terms, const View& bias, const View& out) {
  sum_partials_cuda(CudaLauncher(ctx), terms, bias, out);
}

void logit_maxima(const Context& ctx, const View& logits, const View& out) {
  logit_maxima_cuda(CudaLauncher(ctx), logits, out);
}

void logit_sums(const Context& ctx, const View& logits, const View& targets, std::int64_t first, const View& maxima,
                const View& out) {
  logit_sums_cuda(CudaLauncher(ctx), logits, targets, first, maxima, out);
}

void cross_entropy_of_part(const Context& ctx, const PartOfLogits& part) {
  cross_entropy_of_part_cuda(CudaLauncher(ctx), part);
}

void embedding_backward(const Context& ctx, const View& tokens, const View& dout, const View& dtable,
                        const VocabularyPart& part, const View& scratch) {
  embedding_backward_cuda(CudaLauncher(ctx), tokens, dout, dtable, part, scratch);
}

void bias_backward(const Context& ctx, const View& dy, const View& db, const View& partial) {
  bias_backward_cuda(CudaLauncher(ctx), dy, db, partial);
}

void cross_entropy(const Context& ctx, const View& logits, const View& targets, const View& losses,
                   float gradient_scale, bool backward) {
  cross_entropy_cuda(CudaLauncher(ctx), logits, targets,
                     {losses.as<float>(), gradient_scale, backward, nullptr, nullptr, AmaxOf({})});
}

void cross_entropy_rows(const Context& ctx, const View& logits, const View& targets, const View& losses,
                        float gradient_scale, const LossRows& rows) {
  cross_entropy_cuda(CudaLauncher(ctx), logits, targets,
                     {losses.as<float>(), gradient_scale, false, rows.largest.as<float>(), rows.inverse.as<float>(),
                      AmaxOf(rows.amax)});
}

void cross_entropy_codes(const Context& ctx, const View& logits, const View& targets, float gradient_scale,
                         const LossRows& rows, const quant::ProducedCodes& to) {
  cross_entropy_codes_cuda(CudaLauncher(ctx), logits, targets, rows, gradient_scale, to);
}

void rope_tables(const Context& ctx, std::span<const float> inv_freq, const View& cos, const View& sin) {
  rope_tables_cuda(CudaLauncher(ctx), inv_freq, cos, sin);
}

void rope(const Context& ctx, const View& x, const View& cos, const View& sin, bool inverse) {
  rope_cuda(CudaLauncher(ctx), x, cos, sin, inverse);
}

void dropout(const Context& ctx, const View& x, const Dropout& drop, const View& out) {
  dropout_cuda(CudaLauncher(ctx), x, drop, out);
}

void route_forward(const Context& ctx, const View& logits, const RouteOptions& options, const Routes& routes,
                   const View& scratch) {
  route_forward_cuda(CudaLauncher(ctx), logits, options, routes, scratch);
}

void add_route_sums(const Context& ctx, const Routes& routes, const View& sums, const View& scratch) {
  add_route_sums_cuda(CudaLauncher(ctx), routes, sums, scratch);
}

void route_backward(const Context& ctx, const View& dweights, const Routes& routes, bool normalize,
                    const BalanceGradients& balance, const View& dlogits) {
  route_backward_cuda(CudaLauncher(ctx), dweights, routes, normalize, balance, dlogits);
}

void gather_rows(const Context& ctx, const View& x, const View& tokens, const View& out) {
  gather_rows_cuda(CudaLauncher(ctx), x, tokens, out);
}

void combine_rows_backward(const Context& ctx, const View& dout, const View& y, const Routes& routes, const View& dy,
                           const View& dweights) {
  combine_rows_backward_cuda(CudaLauncher(ctx), dout, y, routes, dy, dweights);
}

void add_experts(const Context& ctx, const char* name, const View& from, const Routes& routes, const View& weights,
                 const View& addend, const View& out) {
  add_experts_cuda(CudaLauncher(ctx), name, from, routes, weights, addend, out);
}

void attention_forward(const Context& ctx, const AttentionForward& call) {
  attention_forward_cuda(CudaLauncher(ctx), call);
}

void attention_backward(const Context& ctx, const AttentionBackward& call, const AttentionScratch& scratch) {
  attention_backward_cuda(CudaLauncher(ctx), call, scratch);
}

void attention_documents(const Context& ctx, const Documents& documents, const DocumentTables& tables) {
  attention_documents_cuda(CudaLauncher(ctx), documents, tables);
}

void transpose(const Context& ctx, const View& from, const View& to) { transpose_cuda(CudaLauncher(ctx), from, to); }

}  // namespace fp8::ops::cuda
