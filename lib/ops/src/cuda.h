/// The CUDA operations of this crate. Callers have checked the views and allocated all memory; the context is not dry.
/// Defined in cuda.cu; in builds without CUDA they throw Error. Private to this crate.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "fp8/base/round.h"
#include "fp8/device/device.h"
#include "fp8/ops/attention.h"
#include "fp8/ops/codes.h"
#include "fp8/ops/dropout.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"
#include "fp8/ops/route.h"
#include "fp8/tensor/tensor.h"

namespace fp8::ops::cuda {

using device::Context;
using tensor::View;

/// Number of partial sums for a sum over `rows` rows, which depends on the sizes only: enough blocks for any device,
/// and few enough for the second pass.
inline std::int64_t column_blocks(std::int64_t rows, std::int64_t columns) {
  const std::int64_t most = std::clamp<std::int64_t>((1 << 19) / std::max<std::int64_t>(columns, 1), 64, 1024);
  return std::clamp<std::int64_t>(divide_up(rows, 64), 1, most);
}

/// Number of blocks of the backward pass of RMSNorm, each with at least a row, which depends on the sizes only: their
/// partial sums are few beside the rows, and there are several for each multiprocessor of any device.
inline std::int64_t norm_blocks(std::int64_t rows, std::int64_t columns) {
  return std::clamp<std::int64_t>(std::min(divide_up(rows * columns, 1 << 16), rows), 1, 512);
}

/// Most blocks of tokens that are routed.
inline constexpr std::int64_t kRouteBlocks = 256;

/// Number of blocks of tokens that are routed.
inline std::int64_t route_blocks(std::int64_t tokens) {
  return std::clamp<std::int64_t>(divide_up(tokens, 32), 1, kRouteBlocks);
}

/// See add_rmsnorm_forward; with an empty delta sum is x, and nothing is added.
void norm_forward(const Context& ctx, const char* name, const AddNorm& norm);

/// See rmsnorm_backward; `partial` f32 [norm_blocks, C] is scratch, empty where dweight is.
void norm_backward(const Context& ctx, const NormGradient& norm, const View& partial);

/// See add(), copy(), zero(), swiglu_forward() and so on.
void add(const Context& ctx, const View& a, const View& b, const View& out);
void sum_terms(const Context& ctx, const View& terms, const View& out);
void copy(const Context& ctx, const View& in, const View& out);
void zero(const Context& ctx, const View& x);
void swiglu_forward(const Context& ctx, const View& gate_up, const View& h, const Amax& amax);
void swiglu_backward(const Context& ctx, const View& dh, const View& gate_up, const View& d_gate_up, const Amax& amax);
/// See fp8/ops/codes.h.
void rmsnorm_codes(const Context& ctx, const View& x, const View& weight, const View& rstd,
                   const quant::ProducedCodes& to);
void swiglu_codes(const Context& ctx, const View& gate_up, const quant::ProducedCodes& to);
void swiglu_codes(const Context& ctx, const View& gate_up, const quant::ProducedGroups& to);
void swiglu_backward_codes(const Context& ctx, const View& dh, const View& gate_up,
                           const std::array<quant::ProducedCodes, 2>& to);
void swiglu_backward_codes(const Context& ctx, const View& dh, const View& gate_up,
                           const std::array<quant::ProducedGroups, 2>& to);
void cross_entropy_rows(const Context& ctx, const View& logits, const View& targets, const View& losses,
                        float gradient_scale, const LossRows& rows);
void cross_entropy_codes(const Context& ctx, const View& logits, const View& targets, float gradient_scale,
                         const LossRows& rows, const quant::ProducedCodes& to);
void embedding_forward(const Context& ctx, const View& tokens, const View& table, const View& out,
                       const VocabularyPart& part);
void sum_partials(const Context& ctx, const View& terms, const View& bias, const View& out);
void logit_maxima(const Context& ctx, const View& logits, const View& out);
void logit_sums(const Context& ctx, const View& logits, const View& targets, std::int64_t first, const View& maxima,
                const View& out);
void cross_entropy_of_part(const Context& ctx, const PartOfLogits& part);
void cross_entropy(const Context& ctx, const View& logits, const View& targets, const View& losses,
                   float gradient_scale, bool backward);
void rope_tables(const Context& ctx, std::span<const float> inv_freq, const View& cos, const View& sin);
void rope(const Context& ctx, const View& x, const View& cos, const View& sin, bool inverse);
void dropout(const Context& ctx, const View& x, const Dropout& dropout, const View& out);

/// See embedding_backward; `scratch` is i32 [3, M].
void embedding_backward(const Context& ctx, const View& tokens, const View& dout, const View& dtable,
                        const VocabularyPart& part, const View& scratch);

/// See bias_backward; `partial` f32 [column_blocks, N] is scratch.
void bias_backward(const Context& ctx, const View& dy, const View& db, const View& partial);

/// See fp8/ops/route.h; `scratch` is i32 [route_blocks, E] and f64 [route_blocks, E + 2].
void route_forward(const Context& ctx, const View& logits, const RouteOptions& options, const Routes& routes,
                   const View& scratch);
void add_route_sums(const Context& ctx, const Routes& routes, const View& sums, const View& scratch);
void route_backward(const Context& ctx, const View& dweights, const Routes& routes, bool normalize,
                    const BalanceGradients& balance, const View& dlogits);
void gather_rows(const Context& ctx, const View& x, const View& tokens, const View& out);
void combine_rows_backward(const Context& ctx, const View& dout, const View& y, const Routes& routes, const View& dy,
                           const View& dweights);

/// combine_rows() and sum_rows(): out = sum of rows of `from`, with the weights, and then the addend, unless these are
/// empty.
void add_experts(const Context& ctx, const char* name, const View& from, const Routes& routes, const View& weights,
                 const View& addend, const View& out);

/// Scratch memory of attention_backward, contiguous.
struct AttentionScratch {
  View delta;   ///< f32 [B, T, H]
  View dk, dv;  ///< [B, T, G, D] in the type of k
};

/// Tables of packed documents for cuDNN: an entry for each document, entries of length 0 after the last, divided into
/// parts that begin at multiples of 16 bytes.
struct DocumentTables {
  View lengths;                                      ///< i32 [parts, at least each]
  View offsets;                                      ///< i64 [steps, parts, at least each + 1]: first elements, end
  std::int64_t each = 0;                             ///< entries of a part
  std::int64_t longest = 0;                          ///< maximum length
  std::array<std::array<std::int64_t, 2>, 9> steps;  ///< elements between sequences and between positions
  std::array<View, 3> results;  ///< bf16 [B, T, heads, D]: set to NaN if documents exceed the tables
};

/// Fills the tables; documents after the last entry are omitted, and longer ones truncated.
void attention_documents(const Context& ctx, const Documents& documents, const DocumentTables& tables);

/// to f32 [B, C, R] = transposed from [B, R, C], both contiguous.
void transpose(const Context& ctx, const View& from, const View& to);

/// See fp8/ops/attention.h; heads of at most 256 elements.
void attention_forward(const Context& ctx, const AttentionForward& call);
void attention_backward(const Context& ctx, const AttentionBackward& call, const AttentionScratch& scratch);

}  // namespace fp8::ops::cuda
