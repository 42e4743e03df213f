// Forward attention on the host: one task per head and block of queries; keys come tile by tile, softmax online. Every
// task works in its thread's part of the scratch memory; its result does not depend on the threads.
#include <omp.h>

#include <cmath>

#include "attention_common.h"
#include "attention_device.h"
#include "vector_math.h"

namespace fp8::ops {
namespace {

// Scratch of one thread.
template <class T>
struct ForwardScratch {
  using Word = WordOf<T>;
  Word *queries, *queries_across, *keys, *down, *left;
  float *scores, *sum, *rescale, *maximum, *total;

  static std::int64_t floats(const AttentionShape& s) { return 5 * s.tile() + 2 * kScores + 3 * kBlock; }
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

// One tile of transposed scores, still without the scale, becomes probabilities relative to the new maximum; `rescale`
// is what earlier sums are multiplied by.
template <class T>
void update_softmax(float* scores, float scale, ForwardScratch<T>& s) {
  using Sum = std::conditional_t<std::is_same_v<T, float>, double, float>;  // f32 activations: right to the last bit
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
    highest[i] = highest[i] == kMasked ? 0.0f : highest[i];  // nothing met yet: exp(-inf - 0) = 0
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

// After the last tile of keys: its probabilities, and what earlier sums are multiplied by, become relative to the whole
// sum. So the product with the values needs no factor, and rounds as it does where there is one tile.
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

template <class T>
void forward_block(const AttentionShape& shape, Head<const T> q, Head<const T> k, Head<const T> v, float scale,
                   const Mask& mask, std::int64_t block, Head<T> out, float* lse, ForwardScratch<T> s) {
  read_tile<T>(shape, q, block, s.queries);
  turn_tile<T>(shape, s.queries, s.queries_across);
  std::fill(s.sum, s.sum + shape.tile(), 0.0f);
  std::fill(s.maximum, s.maximum + kBlock, kMasked);
  std::fill(s.total, s.total + kBlock, 0.0f);
  for (std::int64_t other = mask.first_block(); other <= block; ++other) {
    read_tile<T>(shape, k, other, s.keys);
    score_tile<T>(shape, s.keys, s.queries_across, s.scores);
    mask.apply(other, s.scores);
    update_softmax<T>(s.scores, scale, s);
    if (other == block) normalize<T>(s.scores, s);
    rescale_rows(shape, s.rescale, s.sum);
    read_tile<T>(shape, v, other, s.keys);
    add_tile<T>(shape, TilesOf<T>::by_rows(s.scores, s.left), TilesOf<T>::down(shape, s.keys, s.down), s.sum);
  }
  for (std::int64_t i = 0; i < shape.rows(block); ++i) lse[block * kBlock + i] = s.maximum[i] + std::log(s.total[i]);
  write_tile<T>(shape, s.sum, 1.0f, block, out);
}

}  // namespace

void attention_forward(const Context& ctx, const View& q, const View& k, const View& v, float scale,
                       const Documents& documents, const View& out, const View& lse) {
  const AttentionShape shape(q, k, v, out, lse, documents);
  need_place(ctx, "attention", q, k, v, out, lse, documents.start);
  const device::Timer timer(ctx, device::Work::attention, "attention", bytes_of(q, k, v, out, lse), shape.flops());
  if (ctx.place == device::Place::cuda) return attention_forward_on_device(ctx, q, k, v, scale, documents, out, lse);
  need(ctx.arena != nullptr, "attention", "needs an arena");
  const std::int64_t tasks = shape.batch * shape.heads * shape.blocks;
  const int threads = device::host_threads();
  const device::Scope scope(*ctx.arena);
  const View scratch = tensor::take(ctx, DType::f32, {threads, ForwardScratch<float>::floats(shape)}, "scratch");
  if (ctx.dry) return;
  float *memory = scratch.as<float>(), *sums = lse.as<float>();
  with_activation_type(q.dtype, "attention", [&]<class T>(T) {
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (std::int64_t task = 0; task < tasks; ++task) {
      const std::int64_t block = shape.blocks - 1 - task % shape.blocks, row = task / shape.blocks;
      const std::int64_t b = row / shape.heads, h = row % shape.heads, g = h / (shape.heads / shape.groups);
      const ForwardScratch<T> mine(shape, memory + omp_get_thread_num() * ForwardScratch<T>::floats(shape));
      forward_block<T>(shape, {q, b, h}, {k, b, g}, {v, b, g}, scale, Mask(shape, documents, b, block), block,
                       {out, b, h}, sums + row * shape.positions, mine);
    }
  });
}

}  // namespace fp8::ops
