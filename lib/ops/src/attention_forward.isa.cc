// Forward attention of one head and block of queries, tile by tile of keys with an online softmax.
#include <cmath>

#include "attention_tiles.h"
#include "vector_math.h"

namespace fp8::ops {
namespace {

// The parts of forward_scratch().
template <class T>
struct ForwardScratch {
  using Word = WordOf<T>;
  Word *queries, *queries_across, *keys, *down, *left;
  float *scores, *sum, *rescale, *maximum, *total;

  ForwardScratch(const AttentionShape& s, float* base) {
    Parts parts(base);
    queries = parts.next<Word>(s.tile());
    queries_across = parts.next<Word>(s.tile());
    keys = parts.next<Word>(s.tile());
    down = parts.next<Word>(s.tile());
    left = parts.next<Word>(kScores);
    scores = parts.next<float>(kScores);
    sum = parts.next<float>(s.tile());
    rescale = parts.next<float>(kBlock);
    maximum = parts.next<float>(kBlock);
    total = parts.next<float>(kBlock);
  }
};

// Replaces one tile of transposed, unscaled scores by probabilities relative to the new maximum; `rescale` is the
// factor for earlier sums.
template <class T>
void update_softmax(float* scores, float scale, ForwardScratch<T>& s) {
  using Sum = std::conditional_t<std::is_same_v<T, float>, double, float>;  // more precise for f32 activations
  float highest[kBlock];
  Sum part[kBlock] = {};
  std::copy(s.maximum, s.maximum + kBlock, highest);
  for (std::int64_t j = 0; j < kBlock; ++j) {
    float* row = scores + j * kBlock;
#pragma omp simd
    for (std::int64_t i = 0; i < kBlock; ++i) {
      row[i] *= scale;
      highest[i] = row[i] > highest[i] ? row[i] : highest[i];
    }
  }
#pragma omp simd
  for (std::int64_t i = 0; i < kBlock; ++i) {
    const float before = s.maximum[i];
    s.maximum[i] = highest[i];
    highest[i] = highest[i] == kMasked ? 0.0f : highest[i];  // all masked so far: exp(-inf - 0) = 0
    s.rescale[i] = exp_for<T>(before - highest[i]);
  }
  for (std::int64_t j = 0; j < kBlock; ++j) {
    float* row = scores + j * kBlock;
#pragma omp simd
    for (std::int64_t i = 0; i < kBlock; ++i) {
      row[i] = exp_for<T>(row[i] - highest[i]);
      part[i] += row[i];
    }
  }
#pragma omp simd
  for (std::int64_t i = 0; i < kBlock; ++i) s.total[i] = static_cast<float>(s.total[i] * s.rescale[i] + part[i]);
}

// After the last tile of keys: divides its probabilities, and the factor for earlier sums, by the total, so that the
// GEMM with the values needs no factor and is rounded as with one tile.
template <class T>
void normalize(float* scores, ForwardScratch<T>& s) {
  float inverse[kBlock];
  for (std::int64_t i = 0; i < kBlock; ++i) {
    inverse[i] = 1.0f / s.total[i];
    s.rescale[i] *= inverse[i];
  }
  for (std::int64_t j = 0; j < kBlock; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < kBlock; ++i) scores[j * kBlock + i] *= inverse[i];
  }
}

void rescale_rows(const AttentionShape& shape, const float* factor, float* tile) {
  for (std::int64_t i = 0; i < kBlock; ++i) {
#pragma omp simd
    for (std::int64_t d = 0; d < shape.padded; ++d) tile[i * shape.padded + d] *= factor[i];
  }
}

// The operands and results of one head.
template <class T>
struct ForwardHead {
  Head<const T> q, k, v;
  float scale;
  Head<T> out;
  float* lse;  // [T]
};

template <class T>
void forward_block(const AttentionShape& shape, const ForwardHead<T>& head, const Mask& mask, std::int64_t block,
                   ForwardScratch<T> s) {
  read_tile<T>(shape, head.q, block, s.queries);
  transpose_tile<T>(shape, s.queries, s.queries_across);
  std::fill(s.sum, s.sum + shape.tile(), 0.0f);
  std::fill(s.maximum, s.maximum + kBlock, kMasked);
  std::fill(s.total, s.total + kBlock, 0.0f);
  for (std::int64_t other = mask.first_block(); other <= block; ++other) {
    read_tile<T>(shape, head.k, other, s.keys);
    score_tile<T>(shape, s.keys, s.queries_across, s.scores);
    mask.apply(other, s.scores);
    update_softmax<T>(s.scores, head.scale, s);
    if (other == block) normalize<T>(s.scores, s);
    rescale_rows(shape, s.rescale, s.sum);
    read_tile<T>(shape, head.v, other, s.keys);
    add_tile<T>(shape, TilesOf<T>::by_rows(s.scores, s.left), TilesOf<T>::down(shape, s.keys, s.down), s.sum);
  }
  for (std::int64_t i = 0; i < shape.rows(block); ++i)
    head.lse[block * kBlock + i] = s.maximum[i] + std::log(s.total[i]);
  write_tile<T>(shape, s.sum, 1.0f, block, head.out);
}

template <class T>
void forward_task(const AttentionShape& shape, const AttentionForward& c, std::int64_t task, float* scratch) {
  const std::int64_t block = shape.blocks - 1 - task % shape.blocks, row = task / shape.blocks;
  const std::int64_t b = row / shape.heads, h = row % shape.heads, g = h / (shape.heads / shape.groups);
  const ForwardHead<T> head{{c.q, b, h}, {c.k, b, g},   {c.v, b, g},
                            c.scale,     {c.out, b, h}, c.lse.as<float>() + row * shape.positions};
  forward_block<T>(shape, head, Mask(shape, c.documents, b, block), block, ForwardScratch<T>(shape, scratch));
}

}  // namespace

constinit const ForwardKernels FP8_ISA::kForwardKernels{forward_task<float>, forward_task<Bf16>};

}  // namespace fp8::ops
