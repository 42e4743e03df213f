/// Rotary positions and causal grouped-query attention. Attention is computed in blocks with an online softmax;
/// a T x T matrix is stored only in cuDNN's backward pass. Sums and softmax in f32.
///   B sequences, T positions, H query heads, G key/value heads (H % G == 0), D elements per head
/// Views are [B, T, heads, D] with unit last stride, so that they may be parts of one fused projection, on the
/// context's device; on a GPU heads have at most 128 elements, with plain kernels 256. Source: Dao et al.,
/// FlashAttention-2, 2023; Su et al., RoFormer, 2021 (halves rotated, as transformers does).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "fp8/tensor/tensor.h"

namespace fp8::ops {

using device::Context;
using tensor::View;

/// Fills cos and sin f32 [T, D/2] with angles position * inv_freq, positions from 0; computed in f32 as transformers
/// does.
void rope_tables(const Context& ctx, std::span<const float> inv_freq, const View& cos, const View& sin);

/// Rotates x [B, T, heads, D] in place: (a, b) -> (a cos - b sin, b cos + a sin) for the halves a, b of each head;
/// `inverse` rotates back, which is also the backward pass.
void rope(const Context& ctx, const View& x, const View& cos, const View& sin, bool inverse);

/// Optional restriction of attention to documents packed in one sequence. With bounds on their number and length, a GPU
/// computes every document separately through cuDNN; the closer the bounds, the faster. If a bound is too small, the
/// results are NaN where a device uses the bounds; no other memory is written.
struct Documents {
  View start;              ///< i32 [B, T], contiguous: first position of the document; empty: one document per sequence
  std::int64_t count = 0;  ///< maximum number of documents in all sequences; 0: unknown
  std::int64_t longest = 0;  ///< maximum number of positions of a document; 0: unknown
  /// Number of pairs of a query and a key that it attends to, in all sequences, for counts of FLOPs; 0: the number
  /// without documents.
  std::int64_t pairs = 0;
};

/// Operands and results of attention_forward(), f32 or bf16, all of one type.
struct AttentionForward {
  View q;               ///< [B, T, H, D]
  View k, v;            ///< [B, T, G, D]
  float scale;          ///< factor of the scores
  Documents documents;  ///< packed documents
  View out;             ///< result [B, T, H, D]
  View lse;             ///< result f32 [B, H, T], contiguous: the log of the sum of the softmax
};

/// Operands and results of attention_backward().
struct AttentionBackward {
  View q, k, v, out, lse;  ///< as in AttentionForward, all operands here
  View dout;               ///< gradient of out, [B, T, H, D]
  float scale;             ///< factor of the scores
  Documents documents;     ///< packed documents
  View dq;                 ///< result [B, T, H, D]
  View dk, dv;             ///< results [B, T, G, D]
};

/// Kernels of attention on a GPU: cuDNN's, or kernels of this crate that use no tensor cores and take about ten times
/// as long, for other formats than bf16, heads longer than 128 elements, and machines without cuDNN.
enum class AttentionKernels : std::uint8_t { fused, plain };

/// How attention is computed on a GPU. The host has one implementation, which is deterministic.
struct AttentionOptions {
  AttentionKernels kernels = AttentionKernels::fused;  ///< never exchanged in silence
  bool deterministic = true;  ///< the gradient of q is summed in a fixed order; plain kernels always do so
};

/// "cuDNN 9.19.0", the library of the fused kernels, as the dynamic linker finds it. Throws Error if it cannot be
/// loaded.
std::string attention_library();
/// What a newer library than attention_library() would do better on some GPU, and which one to install; empty if there
/// is nothing. Throws as attention_library().
std::string attention_library_advice();

/// FLOPs of the GEMMs of attention_forward for q [B, T, H, D]: products of each query with the keys of its document up
/// to its position, and of the probabilities with the values.
double attention_flops(const View& q, const Documents& documents);

/// FLOPs of attention_backward relative to attention_forward: five GEMMs, of which one recomputes scores, instead of
/// two.
inline constexpr double kAttentionBackward = 2.5;

/// Bytes that one call of attention_backward writes to cuDNN's workspace and reads from it, each byte once, in all
/// parts of the call. Estimates.
struct GradientBytes {
  double scores = 0;      ///< the gradients of all scores are stored, which makes the result deterministic
  double sums = 0;        ///< dq is summed in f32 instead, in a fixed order or in the order in which blocks finish
  bool ordered = false;   ///< whether a deterministic call sums in a fixed order, and stores no scores
  bool outdated = false;  ///< whether it stores scores only because cuDNN, which was found, is too old
};

/// The bytes for q [B, T, H, D] and `groups` key heads; `q` and the starts of documents need no data. Without a stream
/// in the context, an H100 with the cuDNN that is found here is assumed.
GradientBytes gradient_bytes(const Context& ctx, const View& q, std::int64_t groups, const Documents& documents);

/// out = softmax(q k^T * scale, causal) v; lse is needed by the backward pass. Deterministic for any number of threads.
/// On a GPU, Error is thrown, with --attention plain as a hint, if the kernels are fused and cuDNN is missing, does not
/// support the call or has no plan for it; a dry run with a stream throws it too.
///
/// Error on the host relative to exact arithmetic, for finite sums: let p be the probabilities, u the unit roundoff of
/// the activations (2^-8 bf16, 2^-24 f32), and r = u if bf16 is multiplied in pairs (activations bf16, instruction set
/// avx512_bf16: p is then rounded to bf16 before the GEMM), else 0. For each row,
///   |error of out| <= u |out| + (r + g) sum_j p_j |v_j|
///   |error of lse| <= g + 2^-24 |lse|
/// where g = 2^-23 (2 (D + 2) S + n + 16) is the error of f32 arithmetic over n keys, S = scale max_j sum_d |q_d k_jd|.
void attention_forward(const Context& ctx, const AttentionForward& call, const AttentionOptions& options = {});

/// out [B, T, H, D] = softmax(q k^T * scale) v for texts that grow: queries q [B, T, H, D] at positions `first`,
/// `first` + 1, ... of texts whose keys and values k, v [B, P, G, D], P >= first + T, are known; query t attends to the
/// keys 0 .. first + t. For generation, on the host only. A row has the same bits whatever the other rows, the threads
/// and the instruction set. Scratch: P + 2 D floats per thread. Its error is that of attention_forward with r = 0, and
/// with g for n keys.
void attention_cached(const Context& ctx, const View& q, const View& k, const View& v, std::int64_t first, float scale,
                      const View& out);

/// Gradients dq, dk and dv of attention_forward, overwritten; they may be q, k and v.
/// Errors as attention_forward. Deterministic for any number of threads, and on a GPU as the options say. Scratch: on
/// the host about 2 T D floats per thread; on a device B T H floats and copies of dk and dv, or with cuDNN two bytes
/// per score of as many heads as need 1 GiB. If all scores of the call need more, cuDNN 9.25 or newer on compute
/// capability 9 sums dq in order, which needs 8 D + 8 bytes per head and position, as it does if deterministic is
/// false; otherwise parts of at least one group of a sequence are computed one after the other. With documents cuDNN
/// needs B T H more floats, in both passes, and as many scores as if all documents had the maximum length.
///
/// Error on the host, with the symbols of attention_forward, with dp = dout v^T, ds = p (dp - sum out dout), and e the
/// error of sum out dout, at most sum_d |dout_d| (error of out_d + 2^-24 D |out_d|). Let
///   E_ij = (r + g) |ds_ij| + p_ij (g sum_d |dout_id v_jd| + e_i)      (pairs: ds is rounded to bf16 too)
///   |error of dv_j| <= u |dv_j| + (r + g) sum_i p_ij |dout_i|
///   |error of dq_i| <= u |dq_i| + scale sum_j E_ij |k_j|
///   |error of dk_j| <= u |dk_j| + scale sum_i E_ij |q_i|
void attention_backward(const Context& ctx, const AttentionBackward& call, const AttentionOptions& options = {});

}  // namespace fp8::ops
