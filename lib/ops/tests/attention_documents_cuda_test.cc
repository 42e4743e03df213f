// The kernels that fill cuDNN's tables of documents and transpose statistics, on the host, thread by thread; and a
// fused call with these tables, computed as cuDNN's manual specifies, compared with f64.
#include "attention_cases.h"
#include "attention_fused.h"
#include "attention_reference.h"
#include "cuda.h"
#include "shim_device.h"

namespace fp8::ops {
namespace {

struct Document {
  std::int64_t sequence, position, length;
};

// Documents of increasing lengths from `first` on, repeatedly; the last of a sequence is the remainder.
struct Packed {
  std::vector<Document> all;
  Tensor start;
  std::int64_t longest = 0;

  Packed(std::int64_t sequences, std::int64_t positions, std::int64_t first) {
    Values starts;
    std::int64_t next = first;
    for (std::int64_t b = 0; b < sequences; ++b)
      for (std::int64_t t = 0; t < positions; t += all.back().length) {
        all.push_back({b, t, std::min(next, positions - t)});
        longest = std::max(longest, all.back().length);
        starts.insert(starts.end(), static_cast<std::size_t>(all.back().length), static_cast<double>(t));
        next = next > 900 ? 1 : 2 * next + 1;
      }
    start = make(DType::i32, {sequences, positions}, starts);
  }
  std::int64_t count() const { return static_cast<std::int64_t>(all.size()); }
};

constexpr std::int32_t kUntouched = -7;
constexpr std::array<std::array<std::int64_t, 2>, 9> kSteps{{{1000000, 24}, {1, 1}, {7, 0}}};

// Filled tables with padding, as on a device, and a result that may be set to NaN.
struct Tables : ShimMemory {
  cuda::DocumentTables tables;
  View result;

  Tables(const Packed& packed, std::int64_t parts, std::int64_t each, std::int64_t longest) {
    const Tensor lengths(DType::i32, {parts, each + 1}), offsets(DType::i64, {3, parts, each + 2}),
        out = make(DType::bf16, {2, 3, 4, 8}, random_values(192, 1));
    std::fill_n(lengths.as<std::int32_t>(), lengths.view().size(), kUntouched);
    std::fill_n(offsets.as<std::int64_t>(), offsets.view().size(), kUntouched);
    result = put(out.view());
    result.shape[3] = 7;  // padding between rows
    tables = {put(lengths.view()), put(offsets.view()), each, longest, kSteps, {result, result, result}};
    cuda::attention_documents(context, {put(packed.start.view()), parts * each, longest}, tables);
  }
  std::int64_t length(std::int64_t part, std::int64_t at) const {
    return tables.lengths.as<std::int32_t>()[part * tables.lengths.stride[0] + at];
  }
  std::int64_t offset(std::int64_t array, std::int64_t part, std::int64_t at) const {
    return tables.offsets.as<std::int64_t>()[array * tables.offsets.stride[0] + part * tables.offsets.stride[1] + at];
  }
  std::size_t spoilt() const {
    const Values values = read(result);
    return static_cast<std::size_t>(
        std::count_if(values.begin(), values.end(), [](double v) { return std::isnan(v); }));
  }
};

// The expected tables: documents in order, then entries of length 0, and the ends of parts.
void expect_tables(const Packed& packed, std::int64_t parts, std::int64_t each, std::int64_t longest) {
  const Tables t(packed, parts, each, longest);
  const View& start = packed.start.view();
  for (std::int64_t n = 0; n <= parts * each; ++n) {
    const bool there = n < packed.count();
    const Document d =
        there ? packed.all[static_cast<std::size_t>(n)] : Document{start.shape[0] - 1, start.shape[1], 0};
    const std::int64_t part = n / each, at = n % each;
    if (n < parts * each) {
      ASSERT_EQ(t.length(part, at), std::min(d.length, longest)) << n;
    }
    for (std::int64_t a = 0; a < 3; ++a) {
      const auto& step = kSteps[static_cast<std::size_t>(a)];
      const std::int64_t offset = d.sequence * step[0] + d.position * step[1];
      if (n < parts * each) {
        ASSERT_EQ(t.offset(a, part, at), offset) << n;
      }
      if (at == 0 && part > 0) {
        ASSERT_EQ(t.offset(a, part - 1, each), offset) << "end of part " << part - 1;
      }
    }
  }
  for (std::int64_t part = 0; part < parts; ++part) {
    EXPECT_EQ(t.length(part, each), kUntouched);
    for (std::int64_t a = 0; a < 3; ++a) EXPECT_EQ(t.offset(a, part, each + 1), kUntouched);
  }
  const bool enough = packed.count() <= parts * each && packed.longest <= longest;
  EXPECT_EQ(t.spoilt(), enough ? 0u : 2u * 3 * 4 * 7);
}

TEST(DocumentTables, HaveEveryDocumentInOrder) {
  for (const auto& [sequences, positions] :
       {std::pair{1, 1}, {1, 2}, {5, 1}, {1, 1024}, {2, 1025}, {3, 100}, {2, 2300}})
    for (const std::int64_t first : {1, 5000}) {
      SCOPED_TRACE(std::to_string(sequences) + " x " + std::to_string(positions) + " from " + std::to_string(first));
      const Packed packed(sequences, positions, first);
      expect_tables(packed, 1, packed.count(), packed.longest);
      expect_tables(packed, packed.count() / 4 + 1, 4, 4000);
      if (first != 1) continue;
      expect_tables(packed, 1, packed.count() + 3, 4000);
      expect_tables(packed, packed.count(), 1, 4000);
    }
}

TEST(DocumentTables, TooSmallBoundsGiveNaNInTheResultOnly) {
  const Packed packed(2, 1500, 1);
  ASSERT_GT(packed.count(), 9);
  expect_tables(packed, 1, packed.count() - 1, packed.longest);
  expect_tables(packed, 3, 2, packed.longest);
  expect_tables(packed, 1, packed.count(), packed.longest - 1);
  expect_tables(packed, 2, 1, 3);
}

TEST(Transpose, OfStatistics) {
  ShimMemory device;
  for (const auto& [batch, rows, columns] :
       {std::array{1, 1, 1}, {2, 5, 31}, {1, 32, 33}, {3, 100, 12}, {1, 64, 1}, {2, 1, 65}}) {
    const Tensor x = make(DType::f32, {batch, rows, columns}, random_values(batch * rows * columns, 3));
    const View from = device.put(x.view()), to = device.scratch(DType::f32, {batch, columns, rows});
    cuda::transpose(device.context, from, to);
    for (int b = 0; b < batch; ++b)
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j)
          ASSERT_EQ(to.as<float>()[(b * columns + j) * rows + i], x.as<float>()[(b * rows + i) * columns + j]);
    device.clear();
  }
}

// A part as specified by cuDNN's manual: every entry is a sequence, whose tensors begin at the offsets.
void compute(const Context& host, const FusedAttention& part, const std::unordered_map<std::int64_t, void*>& pointers) {
  const auto steps = part.steps();
  const auto* lengths = static_cast<const std::int32_t*>(pointers.at(uid_of(FusedName::queries)));
  ASSERT_EQ(pointers.at(uid_of(FusedName::keys)), lengths);
  for (std::int64_t n = 0; n < part.batch; ++n) {
    ASSERT_LE(lengths[n], part.positions);
    if (lengths[n] == 0) continue;
    const auto view = [&](FusedName name, DType type, std::int64_t count, std::int64_t dim,
                          const FusedAttention::Strides& s) {
      const auto at = std::find(steps.begin(), steps.end(), FusedAttention::Steps{s[0], s[1]}) - steps.begin();
      const std::int64_t first = static_cast<const std::int64_t*>(pointers.at(uid_of(FusedName::offsets) + at))[n];
      auto* const data = static_cast<std::byte*>(pointers.at(uid_of(name)));
      View v = tensor::make_view(data + first * static_cast<std::int64_t>(size_of(type)), type,
                                 device::DeviceType::host, {1, lengths[n], count, dim});
      v.stride = {0, s[1], s[2], 1};
      return v;
    };
    const auto heads = [&](FusedName name, const FusedAttention::Strides& s) {
      return view(name, DType::bf16, part.heads, part.dim, s);
    };
    const auto groups = [&](FusedName name, const FusedAttention::Strides& s) {
      return view(name, DType::bf16, part.groups, part.dim, s);
    };
    const View q = heads(FusedName::q, part.q), k = groups(FusedName::k, part.k), v = groups(FusedName::v, part.v),
               out = heads(FusedName::out, part.out);
    const Tensor own(DType::f32, {1, part.heads, lengths[n]});
    const View lse = view(FusedName::lse, DType::f32, part.heads, 1, part.lse);
    View turned = tensor::make_view(lse.data, DType::f32, device::DeviceType::host, {1, part.heads, lengths[n]});
    turned.stride = {0, lse.stride[2], lse.stride[1]};
    if (part.backward) {
      write(own.view(), read(turned));
      attention_backward(host, {q,
                                k,
                                v,
                                out,
                                own.view(),
                                heads(FusedName::dout, part.dout),
                                part.scale,
                                {},
                                heads(FusedName::dq, part.dq),
                                groups(FusedName::dk, part.dk),
                                groups(FusedName::dv, part.dv)});
    } else {
      attention_forward(host, {q, k, v, part.scale, {}, out, own.view()});
      write(turned, read(own.view()));
    }
  }
}

// All parts, with tables from the kernel.
void compute(const Host& host, const FusedAttention& call, std::int64_t most, const Documents& documents,
             const FusedOperands& operands, const View& lse) {
  const Context& context = host;
  const device::Scope scope(*context.arena);
  const FusedParts parts = parts_of(call, false, most);
  const View& out = operands.back().second;
  const cuda::DocumentTables tables = document_tables(host, parts, {out, out, out});
  cuda::attention_documents(context, documents, tables);
  const Tensor statistics(DType::f32, {lse.shape[0], lse.shape[2], lse.shape[1]});
  if (call.backward) cuda::transpose(context, lse, statistics.view());
  for (std::int64_t i = 0; i < parts.sequences * parts.groups; ++i)
    compute(host, parts.each, fused_pointers(call, parts, i, operands, statistics.view(), tables));
  if (!call.backward) cuda::transpose(context, statistics.view(), lse);
}

TEST(FusedDocuments, EqualTheHost) {
  const Host host;
  const Packed packed(3, 300, 1);
  const cases::AttentionSize size{3, 300, 4, 2, 16};
  const cases::Projection x(DType::bf16, size, true, 1), got(DType::bf16, size, true, 3);
  const tensor::Shape like_q{3, 300, 4, 16}, like_lse{3, 4, 300};
  const Values upstream = random_values(3 * 300 * 4 * 16, 4), q = read(x.q), k = read(x.k), v = read(x.v),
               start(packed.start.as<std::int32_t>(), packed.start.as<std::int32_t>() + 3 * 300);
  const Tensor dout = make(DType::bf16, like_q, upstream), own(DType::bf16, like_q), sums(DType::f32, like_lse);
  const Documents documents{packed.start.view(), packed.count(), packed.longest};
  const Sizes sizes{3, 300, 4, 2, 16};
  const Naive want(sizes, q, k, v, &upstream, start, DType::bf16);
  const auto call = fused_forward_of(x.q, x.k, x.v, 0.25f, documents, own.view());
  const auto back = fused_backward_of(
      {x.q, x.k, x.v, own.view(), sums.view(), dout.view(), 0.25f, documents, got.q, got.k, got.v}, true);
  const std::int64_t one = back.score_bytes() / back.batch;
  for (const std::int64_t most :
       {kMostScores, 3 * one, one, one / 2}) {  // at once, two at a time, one at a time, by heads
    compute(host, call, most, documents,
            {{FusedName::q, x.q}, {FusedName::k, x.k}, {FusedName::v, x.v}, {FusedName::out, own.view()}}, sums.view());
    expect_within(read(own.view()), want.out, want.bounds.out, "out");
    expect_within(read(sums.view()), want.lse, want.bounds.lse, "lse");
    for (const View& gradient : {got.q, got.k, got.v}) write(gradient, random_values(gradient.size(), 5));
    compute(host, back, most, documents,
            {{FusedName::q, x.q},
             {FusedName::k, x.k},
             {FusedName::v, x.v},
             {FusedName::out, own.view()},
             {FusedName::dout, dout.view()},
             {FusedName::dq, got.q},
             {FusedName::dk, got.k},
             {FusedName::dv, got.v}},
            sums.view());
    expect_within(read(got.q), want.dq, want.bounds.dq, "dq");
    expect_within(read(got.k), want.dk, want.bounds.dk, "dk");
    expect_within(read(got.v), want.dv, want.bounds.dv, "dv");
  }
}

}  // namespace
}  // namespace fp8::ops
