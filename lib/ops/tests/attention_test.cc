// Attention compared with a plain implementation in f64, whose gradients are compared with central differences.
#include "fp8/ops/attention.h"

#include <gtest/gtest.h>

#include "attention_common.h"
#include "attention_reference.h"
#include "isas.h"

namespace fp8::ops {
namespace {

const Sizes kNaiveSizes[] = {{1, 1, 1, 1, 2},   {2, 65, 4, 2, 16},   {1, 130, 3, 1, 10},
                             {1, 64, 2, 2, 96}, {1, 150, 2, 1, 128}, {1, 70, 6, 3, 64}};

// Tensors of one call after forward and backward.
struct Call {
  Values q, k, v, dout;
  Tensor tq, tk, tv, tdout, out, lse, dq, dk, dv;

  Call(const Context& ctx, const Sizes& s, DType type, unsigned seed, const Documents& documents = {})
      : q(random_values(s.queries(), seed, 2)),
        k(random_values(s.keys(), seed + 1, 2)),
        v(random_values(s.keys(), seed + 2)),
        dout(random_values(s.queries(), seed + 3)),
        tq(make(type, {s.batch, s.positions, s.heads, s.dim}, q)),
        tk(make(type, {s.batch, s.positions, s.groups, s.dim}, k)),
        tv(make(type, {s.batch, s.positions, s.groups, s.dim}, v)),
        tdout(make(type, {s.batch, s.positions, s.heads, s.dim}, dout)),
        out(type, {s.batch, s.positions, s.heads, s.dim}),
        lse(DType::f32, {s.batch, s.heads, s.positions}),
        dq(type, {s.batch, s.positions, s.heads, s.dim}),
        dk(type, {s.batch, s.positions, s.groups, s.dim}),
        dv(type, {s.batch, s.positions, s.groups, s.dim}) {
    attention_forward(ctx, {tq.view(), tk.view(), tv.view(), scale_of(s), documents, out.view(), lse.view()});
    attention_backward(ctx, {tq.view(), tk.view(), tv.view(), out.view(), lse.view(), tdout.view(), scale_of(s),
                             documents, dq.view(), dk.view(), dv.view()});
  }
};

// First positions of documents of `length` positions each; the last is the remainder.
Values starts(const Sizes& s, std::int64_t length) {
  Values start;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t t = 0; t < s.positions; ++t)
      start.push_back(static_cast<double>(t / (length + b) * (length + b)));
  }
  return start;
}

void expect_near_naive(const Call& run, const Naive& want, DType type) {
  expect_within(read(run.lse.view()), want.lse, want.bounds.lse, "lse");
  expect_within(read(run.out.view()), want.out, want.bounds.out, "out");
  expect_within(read(run.dv.view()), want.dv, want.bounds.dv, "dv");
  expect_within(read(run.dq.view()), want.dq, want.bounds.dq, "dq");
  expect_within(read(run.dk.view()), want.dk, want.bounds.dk, "dk");
  // The mean error of f32 is far below the bounds, which hold for every element.
  EXPECT_LT(relative_error(read(run.lse.view()), want.lse), 1e-6);
  if (type != DType::f32) return;
  EXPECT_LT(relative_error(read(run.out.view()), want.out), 1e-6);
  EXPECT_LT(relative_error(read(run.dv.view()), want.dv), 1e-6);
  EXPECT_LT(relative_error(read(run.dq.view()), want.dq) * (want.dq.size() > 2), 5e-6);
  EXPECT_LT(relative_error(read(run.dk.view()), want.dk) * (want.dk.size() > 2), 5e-6);
}

TEST(NaiveAttention, GradientsAgreeWithCentralDifferences) {
  const Sizes s{2, 5, 4, 2, 4};
  const Values q = random_values(s.queries(), 1, 2), k = random_values(s.keys(), 2, 2), v = random_values(s.keys(), 3);
  const Values dout = random_values(s.queries(), 4), start = starts(s, 2);
  const Naive naive(s, q, k, v, &dout, start);
  const auto value = [&](const Values& a, const Values& b, const Values& c) {
    return dot(Naive(s, a, b, c, nullptr, start).out, dout);
  };
  EXPECT_LT(relative_error(naive.dq, central_differences([&](const Values& x) { return value(x, k, v); }, q)), 1e-8);
  EXPECT_LT(relative_error(naive.dk, central_differences([&](const Values& x) { return value(q, x, v); }, k)), 1e-8);
  EXPECT_LT(relative_error(naive.dv, central_differences([&](const Values& x) { return value(q, k, x); }, v)), 1e-8);
}

TEST(Attention, GradientsAgreeWithCentralDifferences) {
  Host host;
  const Sizes s{1, 6, 2, 1, 4};
  const Call run(host, s, DType::f32, 5);
  const auto value = [&](const Values& a, const Values& b, const Values& c) {
    return dot(Naive(s, a, b, c).out, run.dout);
  };
  EXPECT_LT(relative_error(read(run.dq.view()),
                           central_differences([&](const Values& x) { return value(x, run.k, run.v); }, run.q)),
            1e-5);
  EXPECT_LT(relative_error(read(run.dk.view()),
                           central_differences([&](const Values& x) { return value(run.q, x, run.v); }, run.k)),
            1e-5);
  EXPECT_LT(relative_error(read(run.dv.view()),
                           central_differences([&](const Values& x) { return value(run.q, run.k, x); }, run.v)),
            1e-5);
}

TEST(Attention, AgreesWithF64OnManyShapes) {
  Host host;
  for (const Sizes& s : kNaiveSizes) {
    for (const DType type : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(std::to_string(s.positions) + " positions, " + std::to_string(s.dim) + " elements a head");
      const Call run(host, s, type, 6);
      expect_near_naive(run, Naive(s, run.q, run.k, run.v, &run.dout, {}, type), type);
    }
  }
}

TEST(Attention, SeparatesDocuments) {
  Host host;
  for (const std::int64_t length : {1, 40, 64, 97}) {
    const Sizes s{2, 200, 2, 1, 16};
    const Values start = starts(s, length);
    const Tensor tstart = make(DType::i32, {s.batch, s.positions}, start);
    for (const DType type : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(std::to_string(length) + " positions a document");
      const Call run(host, s, type, 7, {tstart.view()});
      expect_near_naive(run, Naive(s, run.q, run.k, run.v, &run.dout, start, type), type);
    }
  }
}

TEST(Attention, PackedDocumentsEqualSeparateSequences) {
  Host host;
  // Four documents of 64 positions: tiles are aligned with documents, so even the bits are equal.
  const Sizes packed{1, 256, 2, 1, 32}, apart{4, 64, 2, 1, 32};
  const Tensor start = make(DType::i32, {1, 256}, starts(packed, 64));
  for (const DType type : {DType::f32, DType::bf16}) {
    const Call one(host, packed, type, 8, {start.view()}), four(host, apart, type, 8);
    EXPECT_EQ(read(one.out.view()), read(four.out.view()));
    EXPECT_EQ(read(one.dq.view()), read(four.dq.view()));
    EXPECT_EQ(read(one.dk.view()), read(four.dk.view()));
    EXPECT_EQ(read(one.dv.view()), read(four.dv.view()));
  }
}

TEST(Attention, WorksInsideAFusedProjectionAndInPlace) {
  Host host;
  const Sizes s{2, 71, 4, 2, 12};
  const Call run(host, s, DType::bf16, 9);
  const std::int64_t all = s.heads + 2 * s.groups;
  const Tensor fused(DType::bf16, {s.batch, s.positions, all, s.dim}),
      out(DType::bf16, {s.batch, s.positions, s.heads, s.dim});
  const Tensor lse(DType::f32, {s.batch, s.heads, s.positions});
  const auto part = [&](std::int64_t first, std::int64_t heads) {
    View v = fused.view();
    v.data = v.as<Bf16>() + first * s.dim;
    v.shape[2] = heads;
    return v;
  };
  const View q = part(0, s.heads), k = part(s.heads, s.groups), v = part(s.heads + s.groups, s.groups);
  write(q, run.q);
  write(k, run.k);
  write(v, run.v);
  attention_forward(host, {q, k, v, scale_of(s), {}, out.view(), lse.view()});
  EXPECT_EQ(read(out.view()), read(run.out.view()));
  attention_backward(host, {q, k, v, out.view(), lse.view(), run.tdout.view(), scale_of(s), {}, q, k, v});
  EXPECT_EQ(read(q), read(run.dq.view()));
  EXPECT_EQ(read(k), read(run.dk.view()));
  EXPECT_EQ(read(v), read(run.dv.view()));
}

TEST(Attention, DoesNotDependOnThreads) {
  Host host;
  const Sizes s{3, 140, 4, 2, 16};
  const Call many(host, s, DType::f32, 10);
  on_one_thread([&] {
    const Call one(host, s, DType::f32, 10);
    EXPECT_EQ(read(one.out.view()), read(many.out.view()));
    EXPECT_EQ(read(one.dq.view()), read(many.dq.view()));
    EXPECT_EQ(read(one.dk.view()), read(many.dk.view()));
    EXPECT_EQ(read(one.dv.view()), read(many.dv.view()));
  });
}

// All tasks of both passes by the loops of one instruction set: out, lse and the gradients.
Values by_tasks(const Sizes& s, DType type, Isa isa) {
  const Host host;
  const Call made(host, s, type, 11);
  const View q = made.tq.view(), k = made.tk.view(), v = made.tv.view(), out = made.out.view(), lse = made.lse.view(),
             dout = made.tdout.view(), dq = made.dq.view(), dk = made.dk.view(), dv = made.dv.view();
  const Documents none;
  const AttentionShape shape(q, k, v, out, lse, none);
  std::vector<float> scratch(static_cast<std::size_t>(forward_scratch(shape) + backward_scratch(shape)));
  const auto run = [&](const auto& tasks, const auto& call, std::int64_t count) {
    for (std::int64_t task = 0; task < count; ++task)
      (type == DType::f32 ? tasks.f32 : tasks.bf16)(shape, call, task, scratch.data());
  };
  const AttentionForward forward{q, k, v, scale_of(s), none, out, lse};
  run(forward_kernels(isa), forward, shape.batch * shape.heads * shape.blocks);
  const AttentionBackward backward{q, k, v, out, lse, dout, scale_of(s), none, dq, dk, dv};
  run(backward_kernels(isa), backward, shape.batch * shape.groups);
  Values all;
  for (const View& result : {out, lse, dq, dk, dv})
    for (const double value : read(result)) all.push_back(value);
  return all;
}

TEST(Attention, InstructionSetsChangeNoBitWithoutPairs) {
  for (const Sizes& s : kNaiveSizes)
    for (const Isa isa : test::isas()) {
      EXPECT_EQ(by_tasks(s, DType::f32, isa), by_tasks(s, DType::f32, Isa::baseline)) << name_of(isa);
      if (isa == Isa::avx512_bf16) continue;
      EXPECT_EQ(by_tasks(s, DType::bf16, isa), by_tasks(s, DType::bf16, Isa::baseline)) << name_of(isa);
    }
}

TEST(Attention, LargeScoresAndNaN) {
  Host host;
  const Sizes s{1, 3, 1, 1, 2};
  // Scores that differ by 400: the probability of the key with the largest product is 1.
  const Tensor q = make(DType::f32, {1, 3, 1, 2}, {1, 0, 1, 0, 1, 0}),
               k = make(DType::f32, {1, 3, 1, 2}, {400, 0, 800, 0, 0, 0});
  const Tensor v = make(DType::f32, {1, 3, 1, 2}, {1, 2, 3, 4, 5, 6}), out(DType::f32, {1, 3, 1, 2}),
               lse(DType::f32, {1, 1, 3});
  attention_forward(host, {q.view(), k.view(), v.view(), 1.0f, {}, out.view(), lse.view()});
  EXPECT_EQ(read(out.view()), (Values{1, 2, 3, 4, 3, 4}));
  EXPECT_EQ(read(lse.view()), (Values{400, 800, 800}));
  k.as<float>()[2] = std::nanf("");
  attention_forward(host, {q.view(), k.view(), v.view(), 1.0f, {}, out.view(), lse.view()});
  EXPECT_EQ(read(out.view())[0], 1.0);
  for (std::size_t i = 2; i < 6; ++i) EXPECT_TRUE(std::isnan(read(out.view())[i]));
  static_cast<void>(s);
}

TEST(Attention, DryRunAllocatesTheSameScratch) {
  Host host;
  device::Arena planned;
  Context dry;
  dry.arena = &planned;
  dry.dry = true;
  const Sizes s{1, 100, 2, 1, 24};
  const Call plan(dry, s, DType::bf16, 11);
  EXPECT_EQ(read(plan.out.view()), Values(static_cast<std::size_t>(s.queries()), 0.0));
  const Call real(host, s, DType::bf16, 11);
  EXPECT_GT(planned.peak(), 0u);
  EXPECT_EQ(planned.peak(), host.arena().peak());
  EXPECT_EQ(host.arena().mark(), 0u);
}

TEST(Attention, Refusals) {
  Host host;
  const Tensor q(DType::f32, {1, 4, 3, 8}), k(DType::f32, {1, 4, 2, 8}), out(DType::f32, {1, 4, 3, 8}),
      lse(DType::f32, {1, 3, 4});
  const Tensor one(DType::f32, {1, 4, 1, 8}), half(DType::bf16, {1, 4, 1, 8}), start(DType::i32, {1, 3});
  const auto call = [&](const View& keys, const View& values, const Documents& documents) {
    return error_of([&] {
      attention_forward(host, {q.view(), keys, values, 1.0f, documents, out.view(), lse.view()});
    });
  };
  EXPECT_EQ(call(k.view(), k.view(), {}), "attention: query heads must be a multiple of key heads");
  EXPECT_EQ(call(one.view(), half.view(), {}), "attention: activations of different types");
  EXPECT_EQ(call(one.view(), k.view(), {}), "attention: shapes do not match");
  EXPECT_EQ(call(one.view(), one.view(), {start.view()}),
            "attention: document starts must be int32, batch x positions");
  Context cuda = host;
  cuda.device = device::DeviceType::cuda;
  EXPECT_EQ(error_of([&] {
              attention_forward(cuda, {q.view(), one.view(), one.view(), 1.0f, {}, out.view(), lse.view()});
            }),
            "attention: a tensor is not on the context's device");
}

}  // namespace
}  // namespace fp8::ops
