// Attention over a cache compared with plain attention in f64: the last rows of whole texts, bits that depend on
// neither the other rows nor the threads nor the instruction set, and errors.
#include "attention_cached.h"

#include <gtest/gtest.h>
#include <omp.h>

#include "attention_reference.h"
#include "fp8/ops/attention.h"
#include "isas.h"

namespace fp8::ops {
namespace {

const Sizes kCachedSizes[] = {
    {1, 1, 1, 1, 2}, {2, 9, 4, 2, 16}, {1, 130, 3, 1, 10}, {1, 65, 2, 2, 96}, {1, 70, 6, 3, 64}};

struct CachedCall {
  Values q, k, v;
  Tensor tq, tk, tv, out;
  CachedCall(const Sizes& s, DType type)
      : q(random_values(s.queries(), 1, 2)),
        k(random_values(s.keys(), 2, 2)),
        v(random_values(s.keys(), 3)),
        tq(make(type, {s.batch, s.positions, s.heads, s.dim}, q)),
        tk(make(type, {s.batch, s.positions, s.groups, s.dim}, k)),
        tv(make(type, {s.batch, s.positions, s.groups, s.dim}, v)),
        out(type, {s.batch, s.positions, s.heads, s.dim}) {}
};

// Positions [begin, end) of a view [B, T, heads, D].
View positions(View v, std::int64_t begin, std::int64_t end) {
  v.data = static_cast<std::byte*>(v.data) + begin * v.stride[1] * static_cast<std::int64_t>(size_of(v.dtype));
  v.shape[1] = end - begin;
  return v;
}

// Queries in calls of `each` positions, with the keys so far.
void attend_in_parts(const Context& ctx, const Sizes& s, CachedCall& c, std::int64_t each) {
  for (std::int64_t at = 0; at < s.positions; at += each) {
    const std::int64_t end = std::min(s.positions, at + each);
    attention_cached(ctx, positions(c.tq.view(), at, end), positions(c.tk.view(), 0, end),
                     positions(c.tv.view(), 0, end), at, scale_of(s), positions(c.out.view(), at, end));
  }
}

TEST(CachedAttention, AgreesWithWholeTexts) {
  Host host;
  for (const Sizes& s : kCachedSizes) {
    for (const DType type : {DType::f32, DType::bf16}) {
      CachedCall c(s, type);
      attend_in_parts(host, s, c, 1);
      Naive want(s, read(c.tq.view()), read(c.tk.view()), read(c.tv.view()), nullptr, {}, type);
      expect_within(read(c.out.view()), want.out, want.bounds.out, "out");
    }
  }
}

TEST(CachedAttention, DivisionAndThreadsDoNotChangeBits) {
  Host host;
  const int before = omp_get_max_threads();
  for (const Sizes& s : kCachedSizes) {
    for (const DType type : {DType::f32, DType::bf16}) {
      CachedCall one(s, type);
      omp_set_num_threads(1);
      attend_in_parts(host, s, one, s.positions);
      for (const int threads : {1, 3}) {
        omp_set_num_threads(threads);
        for (const std::int64_t each : {1, 7}) {
          CachedCall other(s, type);
          attend_in_parts(host, s, other, each);
          EXPECT_EQ(read(other.out.view()), read(one.out.view())) << each << " positions, " << threads << " threads";
        }
      }
    }
  }
  omp_set_num_threads(before);
}

TEST(CachedAttention, EveryInstructionSetGivesTheSameBits) {
  constexpr std::int64_t kKeys = 77, kDim = 40;
  const Tensor q = make(DType::f32, {kDim}, random_values(kDim, 1)),
               k = make(DType::f32, {kKeys, kDim}, random_values(kKeys * kDim, 2)),
               v = make(DType::f32, {kKeys, kDim}, random_values(kKeys * kDim, 3));
  std::vector<Values> results;
  for (const Isa isa : test::isas()) {
    const Tensor out(DType::f32, {kDim});
    std::vector<float> scratch(kKeys + 2 * kDim);
    cached_kernels(isa).f32(
        {q.as<float>(), k.as<float>(), v.as<float>(), kDim, kDim, kKeys, kDim, 0.2f, out.as<float>(), scratch.data()});
    results.push_back(read(out.view()));
    EXPECT_EQ(results.back(), results.front()) << name_of(isa);
  }
}

TEST(CachedAttention, ShapesAreChecked) {
  Host host;
  const Sizes s{1, 4, 2, 1, 8};
  CachedCall c(s, DType::f32);
  EXPECT_THROW(attention_cached(host, c.tq.view(), c.tk.view(), c.tv.view(), 1, 1, c.out.view()), Error)
      << "too few keys";
  EXPECT_THROW(attention_cached(host, c.tq.view(), c.tq.view(), c.tv.view(), 0, 1, c.out.view()), Error);
  const Tensor bf16(DType::bf16, {1, 4, 1, 8});
  EXPECT_THROW(attention_cached(host, c.tq.view(), bf16.view(), bf16.view(), 0, 1, c.out.view()), Error);
}

}  // namespace
}  // namespace fp8::ops
