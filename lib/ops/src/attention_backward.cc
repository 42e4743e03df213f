// Backward of attention on the host: one task per key/value head, which walks its query heads and their blocks in
// order. So dk and dv are summed by one thread, in f32, in an order that does not depend on the threads. Scores are
// computed again from q, k and lse.
#include <omp.h>

#include "attention_common.h"
#include "attention_device.h"
#include "vector_math.h"

namespace fp8::ops {
namespace {

// Scratch of one thread: tiles, and the sums of dk and dv over all positions.
template <class T>
struct BackwardScratch {
  using Word = WordOf<T>;
  Word *queries, *queries_across, *queries_down, *douts, *douts_across, *douts_down, *keys, *keys_down, *values, *left;
  float *dqueries, *scores, *dscores, *lse, *delta, *dk, *dv;

  static std::int64_t floats(const AttentionShape& s) {
    return (10 + 2 * s.blocks) * s.tile() + 3 * kScores + 2 * kBlock;
  }
  BackwardScratch(const AttentionShape& s, float* base) {
    Parts parts(base);
    for (Word** tile :
         {&queries, &queries_across, &queries_down, &douts, &douts_across, &douts_down, &keys, &keys_down, &values})
      *tile = parts.next<Word>(s.tile());
    left = parts.next<Word>(kScores);
    dqueries = parts.next<float>(s.tile());
    scores = parts.next<float>(kScores);
    dscores = parts.next<float>(kScores);
    lse = parts.next<float>(kBlock);
    delta = parts.next<float>(kBlock);
    dk = parts.next<float>(s.blocks * s.tile());
    dv = parts.next<float>(s.blocks * s.tile());
  }
};

// One call's views.
struct Call {
  const View &q, &k, &v, &out, &lse, &dout, &dq, &dk, &dv;
  float scale;
  const Documents& documents;
};

// delta = row sums of dout * out, and the log-sums of the block's queries; zero beyond the end.
template <class T>
void read_statistics(const AttentionShape& shape, Head<const T> out, Head<const T> dout, const float* lse,
                     std::int64_t block, BackwardScratch<T>& s) {
  std::fill(s.lse, s.lse + kBlock, 0.0f);
  std::fill(s.delta, s.delta + kBlock, 0.0f);
  for (std::int64_t i = 0; i < shape.rows(block); ++i) {
    const std::int64_t t = block * kBlock + i;
    const T *row = out.data + t * out.stride, *drow = dout.data + t * dout.stride;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t d = 0; d < shape.dim; ++d) sum += dtype::to_float(row[d]) * dtype::to_float(drow[d]);
    s.delta[i] = sum;
    s.lse[i] = lse[t];
  }
}

// scores, still without the scale, becomes p; dscores becomes p * (dp - delta).
template <class T>
void probabilities(float scale, BackwardScratch<T>& s) {
  for (std::int64_t j = 0; j < kBlock; ++j) {
    float *p = s.scores + j * kBlock, *dp = s.dscores + j * kBlock;
#pragma omp simd
    for (std::int64_t i = 0; i < kBlock; ++i) {
      p[i] = exp_for<T>(p[i] * scale - s.lse[i]);
      dp[i] = p[i] * (dp[i] - s.delta[i]);
    }
  }
}

// Adds what the queries of one block give to dq (in scratch), dk and dv, all still without the scale.
template <class T>
void backward_block(const AttentionShape& shape, Head<const T> k, Head<const T> v, float scale, const Mask& mask,
                    std::int64_t block, BackwardScratch<T>& s) {
  using Of = TilesOf<T>;
  std::fill(s.dqueries, s.dqueries + shape.tile(), 0.0f);
  const auto *queries = Of::down(shape, s.queries, s.queries_down), *douts = Of::down(shape, s.douts, s.douts_down);
  for (std::int64_t other = mask.first_block(); other <= block; ++other) {
    read_tile<T>(shape, k, other, s.keys);
    read_tile<T>(shape, v, other, s.values);
    score_tile<T>(shape, s.keys, s.queries_across, s.scores);
    score_tile<T>(shape, s.values, s.douts_across, s.dscores);
    mask.apply(other, s.scores);
    probabilities<T>(scale, s);
    const std::int64_t at = other * shape.tile();
    add_tile<T>(shape, Of::by_columns(s.scores, s.left), douts, s.dv + at);
    add_tile<T>(shape, Of::by_columns(s.dscores, s.left), queries, s.dk + at);
    add_tile<T>(shape, Of::by_rows(s.dscores, s.left), Of::down(shape, s.keys, s.keys_down), s.dqueries);
  }
}

// All query heads of key/value head g of sequence b.
template <class T>
void backward_group(const AttentionShape& shape, const Call& c, std::int64_t b, std::int64_t g, BackwardScratch<T> s) {
  const std::int64_t group = shape.heads / shape.groups;
  std::fill(s.dk, s.dk + 2 * shape.blocks * shape.tile(), 0.0f);
  for (std::int64_t h = g * group; h < (g + 1) * group; ++h) {
    const float* lse = c.lse.as<float>() + (b * shape.heads + h) * shape.positions;
    for (std::int64_t block = 0; block < shape.blocks; ++block) {
      read_tile<T>(shape, {c.q, b, h}, block, s.queries);
      read_tile<T>(shape, {c.dout, b, h}, block, s.douts);
      turn_tile<T>(shape, s.queries, s.queries_across);
      turn_tile<T>(shape, s.douts, s.douts_across);
      read_statistics<T>(shape, {c.out, b, h}, {c.dout, b, h}, lse, block, s);
      backward_block<T>(shape, {c.k, b, g}, {c.v, b, g}, c.scale, Mask(shape, c.documents, b, block), block, s);
      write_tile<T>(shape, s.dqueries, c.scale, block, {c.dq, b, h});
    }
  }
  for (std::int64_t block = 0; block < shape.blocks; ++block) {
    write_tile<T>(shape, s.dk + block * shape.tile(), c.scale, block, {c.dk, b, g});
    write_tile<T>(shape, s.dv + block * shape.tile(), 1.0f, block, {c.dv, b, g});
  }
}

}  // namespace

void attention_backward(const Context& ctx, const View& q, const View& k, const View& v, const View& out,
                        const View& lse, const View& dout, float scale, const Documents& documents, const View& dq,
                        const View& dk, const View& dv) {
  const AttentionShape shape(q, k, v, out, lse, documents);
  static_cast<void>(AttentionShape(dq, dk, dv, dout, lse, documents));
  need(dq.dtype == q.dtype && same_shape(dq, q) && same_shape(dk, k), "attention", "gradients do not fit");
  need_place(ctx, "attention", q, k, v, out, lse, dout, dq, dk, dv, documents.start);
  const device::Timer timer(ctx, device::Work::attention, "attention backward",
                            bytes_of(q, k, v, out, lse, dout) + bytes_of(dq, dk, dv), 2.5 * shape.flops());
  if (ctx.place == device::Place::cuda)
    return attention_backward_on_device(ctx, q, k, v, out, lse, dout, scale, documents, dq, dk, dv);
  need(ctx.arena != nullptr, "attention", "needs an arena");
  const std::int64_t tasks = shape.batch * shape.groups;
  const int threads = device::host_threads();
  const device::Scope scope(*ctx.arena);
  const View scratch = tensor::take(ctx, DType::f32, {threads, BackwardScratch<float>::floats(shape)}, "scratch");
  if (ctx.dry) return;
  const Call call{q, k, v, out, lse, dout, dq, dk, dv, scale, documents};
  float* memory = scratch.as<float>();
  with_activation_type(q.dtype, "attention", [&]<class T>(T) {
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (std::int64_t task = 0; task < tasks; ++task) {
      const BackwardScratch<T> mine(shape, memory + omp_get_thread_num() * BackwardScratch<T>::floats(shape));
      backward_group<T>(shape, call, task / shape.groups, task % shape.groups, mine);
    }
  });
}

}  // namespace fp8::ops
