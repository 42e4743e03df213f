// Element-wise kernels, embedding, bias gradient, loss and rope, thread by thread, compared with the host's loops.
#include "cuda.h"
#include "elementwise_cases.h"
#include "far_rows.h"
#include "fp8/dtype/dispatch.h"
#include "long.h"
#include "shim_device.h"
#include "shim_launches.h"
#include "vocabulary_cases.h"

namespace fp8::ops {
namespace {

struct ShimElementwise : ShimMemory {
  void add(const View& a, const View& b, const View& out) { cuda::add(context, a, b, out); }
  void sum_terms(const View& terms, const View& out) { cuda::sum_terms(context, terms, out); }
  void copy(const View& in, const View& out) { cuda::copy(context, in, out); }
  void zero(const View& x) { cuda::zero(context, x); }
  void swiglu_forward(const View& gate_up, const View& h, const Amax& amax = {}) {
    cuda::swiglu_forward(context, gate_up, h, amax);
  }
  void swiglu_backward(const View& dh, const View& gate_up, const View& out, const Amax& amax = {}) {
    cuda::swiglu_backward(context, dh, gate_up, out, amax);
  }
  void sum_partials(const View& terms, const View& bias, const View& out) {
    cuda::sum_partials(context, terms, bias, out);
  }
  void embedding_forward(const View& tokens, const View& table, const View& out, const VocabularyPart& part = {}) {
    cuda::embedding_forward(context, tokens, table, out, part);
  }
  void embedding_backward(const View& tokens, const View& dout, const View& dtable, const VocabularyPart& part = {}) {
    const Tensor memory(DType::i32, {3, tokens.shape[0]});
    cuda::embedding_backward(context, tokens, dout, dtable, part, put(memory.view()));
  }
  void bias_backward(const View& dy, const View& db) {
    cuda::bias_backward(context, dy, db,
                        scratch(DType::f32, {cuda::column_blocks(dy.shape[0], dy.shape[1]), dy.shape[1]}));
  }
  void cross_entropy(const View& logits, const View& targets, const View& losses, float scale, bool backward) {
    cuda::cross_entropy(context, logits, targets, losses, scale, backward);
  }
  void logit_maxima(const View& logits, const View& out) { cuda::logit_maxima(context, logits, out); }
  void logit_sums(const View& logits, const View& targets, std::int64_t first, const View& maxima, const View& out) {
    cuda::logit_sums(context, logits, targets, first, maxima, out);
  }
  void cross_entropy_of_part(const PartOfLogits& part) { cuda::cross_entropy_of_part(context, part); }
  void rope_tables(std::span<const float> frequencies, const View& cos, const View& sin) {
    cuda::rope_tables(context, frequencies, cos, sin);
  }
  void dropout(const View& x, const Dropout& drop, const View& out) { cuda::dropout(context, x, drop, out); }
  void rope(const View& x, const View& cos, const View& sin, bool inverse) {
    cuda::rope(context, x, cos, sin, inverse);
  }
};

TEST(ElementwiseCuda, AdditionEqualsTheHosts) {
  ShimElementwise device;
  cases::addition(device);
}
TEST(ElementwiseCuda, SumOfTermsEqualsTheHosts) {
  ShimElementwise device;
  cases::summing_terms(device);
}
TEST(ElementwiseCuda, SumOfPartialsEqualsTheHosts) {
  ShimElementwise device;
  cases::summing_partials(device);
}
TEST(ElementwiseCuda, CopyEqualsTheHosts) {
  ShimElementwise device;
  cases::copying(device);
}
TEST(ElementwiseCuda, ZeroReachesItsBytesOnly) {
  ShimElementwise device;
  cases::zeroing(device);
}
TEST(ElementwiseCuda, SwigluEqualsTheHosts) {
  ShimElementwise device;
  cases::swiglu(device);
}
TEST(ElementwiseCuda, AmaxesOfSwigluEqualTheHosts) {
  ShimElementwise device;
  cases::swiglu_amaxes(device);
}
TEST(ElementwiseCuda, MaximaOfSwigluInEveryRangeOfARow) {
  ShimElementwise device;
  cases::swiglu_maxima(device);
}
// Rows of each operation of several elements, of the table of an embedding and of logits, whose offsets need more than
// 32 bits.
struct FarElementwise {
  DType type;
  std::int64_t n;
  static constexpr std::int64_t m = 5;
  ShimElementwise device{};
  Tensor a = make(type, {m, 2 * n}, random_values(m * 2 * n, 1)), b = make(type, {m, n}, random_values(m*n, 2)),
         out{type, {m, n}}, wide{type, {m, 2 * n}}, ids = make(DType::i32, {m}, {4, 0, 3, 1, 4});
  test::FarRows far_a{type, m, 2 * n}, far_b{type, m, n}, far_out{type, m, n}, far_wide{type, m, 2 * n};

  void expect(const test::FarRows& far, const View& wanted, double tolerance, const char* what) {
    const Tensor got(wanted.dtype, {wanted.shape[0], wanted.shape[1]});
    far.get(got.view());
    cases::expect_same(device, got.view(), wanted, tolerance, what);
  }
  void rows() {
    const Host host;
    far_a.put(a.view());
    far_b.put(b.view());
    add(host, b.view(), b.view(), out.view());
    device.add(far_b.view, far_b.view, far_out.view);
    expect(far_out, out.view(), 0, "sum");
    device.copy(far_b.view, far_out.view);
    expect(far_out, b.view(), 0, "copy");
    const Tensor across(type, {n, m});
    device.copy(far_b.view.transposed(), across.view());
    copy(host, across.view().transposed(), out.view());
    cases::expect_same(device, out.view(), b.view(), 0, "transposed copy");
    swiglu_forward(host, a.view(), out.view());
    device.swiglu_forward(far_a.view, far_out.view);
    expect(far_out, out.view(), 0x1p-7, "SwiGLU");
    swiglu_backward(host, b.view(), a.view(), wide.view());
    device.swiglu_backward(far_b.view, far_a.view, far_wide.view);
    expect(far_wide, wide.view(), 0x1p-7, "gradient of SwiGLU");
    const Dropout drop{0.3f, 7, 11, 5};
    dropout(host, b.view(), drop, out.view());
    device.dropout(far_b.view, drop, far_out.view);
    expect(far_out, out.view(), 0, "dropout");
    const Tensor sums = make(DType::f32, {n}, random_values(n, 3)),
                 far_sums = make(DType::f32, {n}, random_values(n, 3));
    bias_backward(host, b.view(), sums.view());
    device.bias_backward(far_b.view, far_sums.view());
    cases::expect_same(device, far_sums.view(), sums.view(), 1e-6, "bias gradient");
  }
  void tokens() {
    const Host host;
    embedding_forward(host, ids.view(), b.view(), out.view());
    device.embedding_forward(ids.view(), far_b.view, far_out.view);
    expect(far_out, out.view(), 0, "embedding");
    const Tensor table(DType::f32, {m, n}), losses(DType::f32, {m}), far_losses(DType::f32, {m}),
        maxima(DType::f32, {m}), far_maxima(DType::f32, {m}), sums(DType::f32, {2, m}), far_sums(DType::f32, {2, m});
    const test::FarRows far_table(DType::f32, m, n);
    embedding_backward(host, ids.view(), b.view(), table.view());
    device.embedding_backward(ids.view(), far_b.view, far_table.view);
    expect(far_table, table.view(), 0, "gradient of the embedding");
    logit_maxima(host, b.view(), maxima.view());
    device.logit_maxima(far_b.view, far_maxima.view());
    cases::expect_same(device, far_maxima.view(), maxima.view(), 0, "largest logits");
    logit_sums(host, b.view(), ids.view(), 1, maxima.view(), sums.view());
    device.logit_sums(far_b.view, ids.view(), 1, maxima.view(), far_sums.view());
    cases::expect_same(device, far_sums.view(), sums.view(), 1e-5, "sums of exponentials");
    copy(host, b.view(), out.view());
    far_out.put(b.view());
    cross_entropy_of_part(host, {out.view(), ids.view(), 1, maxima.view(), sums.view(), losses.view(), 0.5f, true});
    device.cross_entropy_of_part(
        {far_out.view, ids.view(), 1, maxima.view(), sums.view(), far_losses.view(), 0.5f, true});
    cases::expect_same(device, far_losses.view(), losses.view(), 1e-5, "losses of a part");
    expect(far_out, out.view(), 0x1p-7, "gradient of a part");
    cross_entropy(host, b.view(), ids.view(), losses.view(), 0.5f, true);
    device.cross_entropy(far_b.view, ids.view(), far_losses.view(), 0.5f, true);
    cases::expect_same(device, far_losses.view(), losses.view(), 1e-5, "losses");
    expect(far_b, b.view(), 0x1p-7, "gradient of logits");
  }
};
TEST(ElementwiseCuda, RowsFarApartEqualTheHosts) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const std::int64_t n : {24, 17}) {
      FarElementwise far{type, n};
      far.rows();
      far.tokens();
    }
}

// Sequences, positions and heads whose offsets need more than 32 bits.
TEST(ElementwiseCuda, RopeFarApartEqualsTheHosts) {
  ShimElementwise device;
  const Host host;
  const std::int64_t m = 5;
  for (const DType type : {DType::f32, DType::bf16})
    for (const std::int64_t n : {32, 24})
      for (std::size_t of = 0; of < 3; ++of) {  // sequences, positions or heads
        const Tensor x = make(type, {m, n}, random_values(m * n, 1)), got(type, {m, n}),
                     cos = make(DType::f32, {m, n / 2}, random_values(m * n / 2, 2)),
                     sin = make(DType::f32, {m, n / 2}, random_values(m * n / 2, 3));
        const test::FarRows far(type, m, n);
        far.put(x.view());
        View apart = x.view().reshaped({of == 0 ? m : 1, of == 1 ? m : 1, of == 2 ? m : 1, n});
        const View c = cos.view().rows(0, apart.shape[1]), s = sin.view().rows(0, apart.shape[1]);
        rope(host, apart, c, s, false);
        apart.data = far.view.data;
        apart.stride[of] = far.view.stride[0];
        device.rope(apart, c, s, false);
        far.get(got.view());
        cases::expect_same(device, got.view(), x.view(), 0, "rope");
      }
}

// The last of more than 2^32 adjacent elements, and sums of matrices that are so far apart.
TEST(ElementwiseCuda, ElementsBeyond32Bits) {
  constexpr std::int64_t kLast = 24, m = 5, kStride = (std::int64_t{1} << 30) + 16;
  ShimElementwise device;
  for (const DType type : {DType::f32, DType::bf16})
    dtype::with_float_type(type, "elements", [&]<class T>() {
      const Tensor x = make(type, {m, kLast}, random_values(m * kLast, 1)), got(type, {m, kLast});
      const test::FarRows in(type, m, kStride), out(type, m, kStride);
      ASSERT_TRUE(in.view.contiguous());
      in.put(x.view());
      const shim::Launches launches(shim::Blocks::last, 2);  // of which the last one has 16 elements
      const auto element = [](const Tensor& t, std::int64_t i) { return dtype::to_float(t.as<T>()[i]); };
      device.add(in.view, in.view, out.view);
      out.get(got.view());
      for (std::int64_t c = 0; c < kLast; ++c)
        ASSERT_EQ(element(got, (m - 1) * kLast + c), 2 * element(x, (m - 1) * kLast + c)) << c;
      device.sum_partials(in.view.reshaped({1, m * kStride}), {}, out.view);  // a block has a part of one row
      out.get(got.view());
      for (std::int64_t c = 0; c < kLast; ++c)
        ASSERT_EQ(element(got, (m - 1) * kLast + c), element(x, (m - 1) * kLast + c)) << c;
      const View one = out.view.rows(0, 1);
      device.sum_partials(in.view, {}, one);
      const Tensor sums(DType::f32, {kLast});
      for (std::int64_t c = 0; c < kLast; ++c) {
        float sum = 0;
        for (std::int64_t r = 0; r < m; ++r) sum += element(x, r * kLast + c);
        ASSERT_EQ(dtype::to_float(one.as<T>()[kStride - kLast + c]), dtype::to_float(dtype::from_float<T>(sum))) << c;
        sums.as<float>()[c] = sum;
      }
      if constexpr (std::is_same_v<T, dtype::Bf16>) {
        const test::FarRows terms(DType::f32, m, kStride);
        device.sum_terms(in.view, terms.view.rows(0, 1));
        for (std::int64_t c = 0; c < kLast; ++c)
          ASSERT_EQ(terms.view.as<float>()[kStride - kLast + c], sums.as<float>()[c]) << c;
      }
    });
}
TEST(ElementwiseCuda, DropoutEqualsTheHosts) {
  ShimElementwise device;
  cases::dropping(device);
}
TEST(ElementwiseCuda, DropoutOfColumnsEqualsTheHosts) {
  ShimElementwise device;
  cases::dropping_columns(device);
}
TEST(ElementwiseCuda, EmbeddingEqualsTheHosts) {
  ShimElementwise device;
  cases::embedding(device);
}
TEST(ElementwiseCuda, ManyTokensAreAddedInOrder) {
  FP8_LONG_TEST();
  ShimElementwise device;
  cases::embedding_of_many(device, 1024 * 16 + 700, 2);  // two ranges of keys
}
TEST(ElementwiseCuda, TokensOutsideTheTableAreNotANumber) {
  ShimElementwise device;
  cases::embedding_outside(device);
}
TEST(ElementwiseCuda, EmbeddingOfPartOfTheVocabularyEqualsTheHosts) {
  ShimElementwise device;
  cases::embedding_of_part(device);
}
TEST(ElementwiseCuda, BiasGradientEqualsTheHosts) {
  ShimElementwise device;
  cases::bias(device);
}
TEST(ElementwiseCuda, LossEqualsTheHosts) {
  ShimElementwise device;
  cases::loss(device);
}
TEST(ElementwiseCuda, LossOfPartOfTheVocabularyEqualsTheHosts) {
  ShimElementwise device;
  cases::loss_of_part(device);
}
TEST(ElementwiseCuda, LossesOfPartsAreThoseOfTheWhole) {
  ShimElementwise device;
  cases::losses_of_parts(device);
}
TEST(ElementwiseCuda, TargetsOutsideTheVocabularyAreNotANumber) {
  ShimElementwise device;
  cases::loss_outside(device);
}
TEST(ElementwiseCuda, RopeEqualsTheHosts) {
  ShimElementwise device;
  cases::rope_of_heads(device);
}

}  // namespace
}  // namespace fp8::ops
