// The ops on a GPU against the host: the cases that lib/ops/tests runs with cuda_shim, larger sizes, and repeated calls
// with equal bits.
#include "../../lib/ops/tests/attention_cases.h"
#include "../../lib/ops/tests/elementwise_cases.h"
#include "../../lib/ops/tests/norm_cases.h"
#include "../../lib/ops/tests/vocabulary_cases.h"
#include "gpu.h"

namespace fp8::ops {
namespace {

// The public functions with the interface that the cases call.
struct GpuOps : test::Gpu {
  void rmsnorm_forward(const View& x, const View& w, float eps, const View& y, const View& rstd,
                       const Amax& amax = {}) {
    ops::rmsnorm_forward(context(), x, w, eps, y, rstd, amax);
  }
  void add_rmsnorm_forward(const AddNorm& norm) { ops::add_rmsnorm_forward(context(), norm); }
  void rmsnorm_backward(const NormGradient& norm) { ops::rmsnorm_backward(context(), norm); }
  void add(const View& a, const View& b, const View& out) { ops::add(context(), a, b, out); }
  void copy(const View& in, const View& out) { ops::copy(context(), in, out); }
  void zero(const View& x) { ops::zero(context(), x); }
  void swiglu_forward(const View& gate_up, const View& h, const Amax& amax = {}) {
    ops::swiglu_forward(context(), gate_up, h, amax);
  }
  void swiglu_backward(const View& dh, const View& gate_up, const View& out, const Amax& amax = {}) {
    ops::swiglu_backward(context(), dh, gate_up, out, amax);
  }
  void sum_partials(const View& terms, const View& bias, const View& out) {
    ops::sum_partials(context(), terms, bias, out);
  }
  void embedding_forward(const View& tokens, const View& table, const View& out, const VocabularyPart& part = {}) {
    ops::embedding_forward(context(), tokens, table, out, part);
  }
  void embedding_backward(const View& tokens, const View& dout, const View& dtable, const VocabularyPart& part = {}) {
    ops::embedding_backward(context(), tokens, dout, dtable, part);
  }
  void logit_maxima(const View& logits, const View& out) { ops::logit_maxima(context(), logits, out); }
  void logit_sums(const View& logits, const View& targets, std::int64_t first, const View& maxima, const View& out) {
    ops::logit_sums(context(), logits, targets, first, maxima, out);
  }
  void cross_entropy_of_part(const PartOfLogits& part) { ops::cross_entropy_of_part(context(), part); }
  void bias_backward(const View& dy, const View& db) { ops::bias_backward(context(), dy, db); }
  void cross_entropy(const View& logits, const View& targets, const View& losses, float scale, bool backward) {
    ops::cross_entropy(context(), logits, targets, losses, scale, backward);
  }
  void rope_tables(std::span<const float> frequencies, const View& cos, const View& sin) {
    ops::rope_tables(context(), frequencies, cos, sin);
  }
  void dropout(const View& x, const Dropout& drop, const View& out) { ops::dropout(context(), x, drop, out); }
  void rope(const View& x, const View& cos, const View& sin, bool inverse) {
    ops::rope(context(), x, cos, sin, inverse);
  }
  void attention_forward(const AttentionForward& call) { ops::attention_forward(context(), call, kPlain); }
  void attention_backward(const AttentionBackward& call) { ops::attention_backward(context(), call, kPlain); }

 private:
  static constexpr AttentionOptions kPlain{AttentionKernels::plain};  // fused ones: fused_attention_gpu_test.cc
};

TEST(OpsGpu, NormMatchesTheHost) {
  FP8_NEED_GPU();
  GpuOps gpu;
  cases::norm_forward(gpu);
  cases::add_norm_forward(gpu);
  cases::norm_backward(gpu);
  cases::norm_of_heads(gpu);
  cases::norm_amaxes(gpu);
  cases::norm_maxima(gpu);
}

TEST(OpsGpu, ElementwiseMatchesTheHost) {
  FP8_NEED_GPU();
  GpuOps gpu;
  cases::addition(gpu);
  cases::copying(gpu);
  cases::dropping(gpu);
  cases::dropping_columns(gpu);
  cases::summing_partials(gpu);
  cases::zeroing(gpu);
  cases::swiglu(gpu);
  cases::swiglu_amaxes(gpu);
  cases::swiglu_maxima(gpu);
  cases::bias(gpu);
}

TEST(OpsGpu, EmbeddingMatchesTheHost) {
  FP8_NEED_GPU();
  GpuOps gpu;
  cases::embedding(gpu);
  cases::embedding_of_many(gpu, 33000, 264);
  cases::embedding_outside(gpu);
  cases::embedding_of_part(gpu);
}

TEST(OpsGpu, LossMatchesTheHost) {
  FP8_NEED_GPU();
  GpuOps gpu;
  cases::loss(gpu);
  cases::loss_outside(gpu);
  cases::loss_of_part(gpu);
  cases::losses_of_parts(gpu);
}

TEST(OpsGpu, RopeMatchesTheHost) {
  FP8_NEED_GPU();
  GpuOps gpu;
  cases::rope_of_heads(gpu);
}

TEST(OpsGpu, AttentionMatchesTheHost) {
  FP8_NEED_GPU();
  GpuOps gpu;
  cases::attention(gpu);
  cases::attend(gpu, {2, 1000, 8, 2, 128}, DType::bf16, false, true, true);
  cases::attend(gpu, {1, 1000, 4, 1, 64}, DType::bf16, true, true, false);
}

// Sums over rows, tokens and keys could depend on the order of blocks.
TEST(OpsGpu, RepeatedCallsHaveEqualBits) {
  FP8_NEED_GPU();
  GpuOps gpu;
  const Host host;
  const std::int64_t m = 5000, n = 1032, vocabulary = 40;
  const cases::Matrix x(DType::bf16, m, n, cases::Layout::contiguous, 1),
      dy(DType::bf16, m, n, cases::Layout::contiguous, 2);
  const Tensor w = make(DType::bf16, {n}, random_values(n, 3)), rstd(DType::f32, {m}), y(DType::bf16, {m, n}),
               tokens = cases::tokens_of(m, vocabulary), zeros(DType::f32, {n}), table(DType::f32, {vocabulary, n});
  const auto once = [&] {
    const View tx = gpu.put(x.view), tdy = gpu.put(dy.view), tw = gpu.put(w.view()), tr = gpu.put(rstd.view()),
               dw = gpu.put(zeros.view()), db = gpu.put(zeros.view()), dt = gpu.put(table.view());
    gpu.rmsnorm_forward(tx, tw, cases::kNormEps, gpu.put(y.view()), tr);
    gpu.rmsnorm_backward({tdy, tx, tw, tr, {}, gpu.put(y.view()), dw});
    gpu.bias_backward(tdy, db);
    gpu.embedding_backward(gpu.put(tokens.view()), tdy, dt);
    Values all;
    for (const View& v : {dw, db, dt}) {
      const Tensor back(DType::f32, {v.size()});
      gpu.get(v, back.view());
      const Values values = read(back.view());
      all.insert(all.end(), values.begin(), values.end());
    }
    gpu.clear();
    return all;
  };
  EXPECT_EQ(once(), once());
}

TEST(OpsGpu, TensorsOnAnotherDeviceAreRefused) {
  FP8_NEED_GPU();
  GpuOps gpu;
  const Tensor x(DType::f32, {4, 4});
  EXPECT_EQ(error_of([&] { gpu.add(gpu.put(x.view()), x.view(), x.view()); }),
            "add: a tensor is not on the context's device");
}

}  // namespace
}  // namespace fp8::ops
