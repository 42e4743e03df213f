// Backward of attention on the host: one task per key/value head, which walks its query heads and their blocks in
// order. So dk and dv are summed by one thread, in f32, in an order that does not depend on the threads. Scores are
// computed again from q, k and lse.
#include <omp.h>

#include "attention_common.h"
#include "vector_math.h"

namespace fp8::ops {
namespace {

// Scratch of one thread: tiles, and the sums of dk and dv over all positions.
struct BackwardScratch {
  float *queries, *queries_t, *douts, *douts_t, *keys, *values, *dqueries, *scores, *dscores, *lse, *delta, *dk, *dv;

  static std::int64_t floats(const AttentionShape& s) {
    return (7 + 2 * s.blocks) * s.tile() + 2 * kScores + 2 * kBlock;
  }
  BackwardScratch(const AttentionShape& s, float* base)
      : queries(base),
        queries_t(queries + s.tile()),
        douts(queries_t + s.tile()),
        douts_t(douts + s.tile()),
        keys(douts_t + s.tile()),
        values(keys + s.tile()),
        dqueries(values + s.tile()),
        scores(dqueries + s.tile()),
        dscores(scores + kScores),
        lse(dscores + kScores),
        delta(lse + kBlock),
        dk(delta + kBlock),
        dv(dk + s.blocks * s.tile()) {}
};

// One call's views.
struct Call {
  const View &q, &k, &v, &out, &lse, &dout, &dq, &dk, &dv;
  float scale;
  const Documents& documents;
};

// delta = row sums of dout * out, and the log-sums of the block's queries; zero beyond the end.
template <class T>
void read_statistics(const AttentionShape& shape, Head<const T> out, const float* lse, std::int64_t block,
                     BackwardScratch& s) {
  std::fill(s.lse, s.lse + kBlock, 0.0f);
  std::fill(s.delta, s.delta + kBlock, 0.0f);
  for (std::int64_t i = 0; i < shape.rows(block); ++i) {
    const std::int64_t t = block * kBlock + i;
    const T* row = out.data + t * out.stride;
    const float* dout = s.douts + i * shape.padded;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t d = 0; d < shape.dim; ++d) sum += dtype::to_float(row[d]) * dout[d];
    s.delta[i] = sum;
    s.lse[i] = lse[t];
  }
}

// scores, still without the scale, becomes p; dscores becomes p * (dp - delta).
template <class T>
void probabilities(float scale, BackwardScratch& s) {
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
                    std::int64_t block, BackwardScratch& s) {
  const std::int64_t width = shape.padded;
  std::fill(s.dqueries, s.dqueries + shape.tile(), 0.0f);
  for (std::int64_t other = mask.first_block(); other <= block; ++other) {
    read_tile<T>(shape, k, other, s.keys);
    read_tile<T>(shape, v, other, s.values);
    score_tile(shape, s.keys, s.queries_t, s.scores);
    score_tile(shape, s.values, s.douts_t, s.dscores);
    mask.apply(other, s.scores);
    probabilities<T>(scale, s);
    const std::int64_t at = other * shape.tile();
    multiply_tile(kBlock, width, kBlock, {s.scores, kBlock, 1}, {s.douts, width}, {s.dv + at, width}, true);
    multiply_tile(kBlock, width, kBlock, {s.dscores, kBlock, 1}, {s.queries, width}, {s.dk + at, width}, true);
    multiply_tile(kBlock, width, kBlock, {s.dscores, 1, kBlock}, {s.keys, width}, {s.dqueries, width}, true);
  }
}

// All query heads of key/value head g of sequence b.
template <class T>
void backward_group(const AttentionShape& shape, const Call& c, std::int64_t b, std::int64_t g, BackwardScratch s) {
  const std::int64_t group = shape.heads / shape.groups;
  std::fill(s.dk, s.dk + 2 * shape.blocks * shape.tile(), 0.0f);
  for (std::int64_t h = g * group; h < (g + 1) * group; ++h) {
    const float* lse = c.lse.as<float>() + (b * shape.heads + h) * shape.positions;
    for (std::int64_t block = 0; block < shape.blocks; ++block) {
      read_tile<T>(shape, {c.q, b, h}, block, s.queries);
      read_tile<T>(shape, {c.dout, b, h}, block, s.douts);
      transpose_tile(kBlock, shape.dim, {s.queries, shape.padded}, {s.queries_t, kBlock});
      transpose_tile(kBlock, shape.dim, {s.douts, shape.padded}, {s.douts_t, kBlock});
      read_statistics<T>(shape, {c.out, b, h}, lse, block, s);
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
  need_host(ctx);
  const AttentionShape shape(q, k, v, out, lse, documents);
  static_cast<void>(AttentionShape(dq, dk, dv, dout, lse, documents));
  need(dq.dtype == q.dtype && same_shape(dq, q) && same_shape(dk, k), "attention", "gradients do not fit");
  need(ctx.arena != nullptr, "attention", "needs an arena");
  const std::int64_t tasks = shape.batch * shape.groups;
  const int threads = device::host_threads();
  const device::Scope scope(*ctx.arena);
  const View scratch = tensor::take(ctx, DType::f32, {threads, BackwardScratch::floats(shape)}, "scratch");
  if (ctx.dry) return;
  const Call call{q, k, v, out, lse, dout, dq, dk, dv, scale, documents};
  float* memory = scratch.as<float>();
  with_activation_type(q.dtype, "attention", [&]<class T>(T) {
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (std::int64_t task = 0; task < tasks; ++task) {
      const BackwardScratch mine(shape, memory + omp_get_thread_num() * BackwardScratch::floats(shape));
      backward_group<T>(shape, call, task / shape.groups, task % shape.groups, mine);
    }
  });
}

}  // namespace fp8::ops
