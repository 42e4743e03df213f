// Backward of attention for one key/value head.
#include "attention_tiles.h"
#include "vector_math.h"

namespace fp8::ops {
namespace {

// The parts of backward_scratch(): tiles, and the sums of dk and dv over all positions.
template <class T>
struct BackwardScratch {
  using Word = WordOf<T>;
  Word *queries, *queries_across, *queries_down, *douts, *douts_across, *douts_down, *keys, *keys_down, *values, *left;
  float *dqueries, *scores, *dscores, *lse, *delta, *dk, *dv;

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

// delta = row sums of dout * out, and lse of the block's queries; zero past the end.
template <class T>
void read_statistics(const AttentionShape& shape, Head<const T> out, Head<const T> dout, const float* lse,
                     std::int64_t block, BackwardScratch<T>& s) {
  std::fill(s.lse, s.lse + kBlock, 0.0f);
  std::fill(s.delta, s.delta + kBlock, 0.0f);
  for (std::int64_t i = 0; i < shape.rows(block); ++i) {
    const std::int64_t t = block * kBlock + i;
    const T *row = out.data + t * out.stride, *drow = dout.data + t * dout.stride;
    s.delta[i] =
        lane_sum(shape.dim, [=](std::int64_t d) { return dtype::to_float(row[d]) * dtype::to_float(drow[d]); });
    s.lse[i] = lse[t];
  }
}

// Replaces unscaled scores by p, and dscores by p * (dp - delta).
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

// Adds the unscaled gradients of one block of queries to dq (in scratch), dk and dv.
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
void backward_group(const AttentionShape& shape, const AttentionBackward& c, std::int64_t b, std::int64_t g,
                    BackwardScratch<T> s) {
  const std::int64_t group = shape.heads / shape.groups;
  std::fill(s.dk, s.dk + 2 * shape.blocks * shape.tile(), 0.0f);
  for (std::int64_t h = g * group; h < (g + 1) * group; ++h) {
    const float* lse = c.lse.as<float>() + (b * shape.heads + h) * shape.positions;
    for (std::int64_t block = 0; block < shape.blocks; ++block) {
      read_tile<T>(shape, {c.q, b, h}, block, s.queries);
      read_tile<T>(shape, {c.dout, b, h}, block, s.douts);
      transpose_tile<T>(shape, s.queries, s.queries_across);
      transpose_tile<T>(shape, s.douts, s.douts_across);
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

template <class T>
void backward_task(const AttentionShape& shape, const AttentionBackward& c, std::int64_t task, float* scratch) {
  backward_group<T>(shape, c, task / shape.groups, task % shape.groups, BackwardScratch<T>(shape, scratch));
}

}  // namespace

constinit const BackwardKernels FP8_ISA::kBackwardKernels{backward_task<float>, backward_task<Bf16>};

}  // namespace fp8::ops
