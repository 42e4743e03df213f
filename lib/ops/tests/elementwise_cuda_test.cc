// Element-wise kernels, embedding, bias gradient, loss and rope, thread by thread, compared with the host's loops.
#include "cuda_shim.h"
//
#include "cross_entropy.cuh"
#include "dropout.cuh"
#include "elementwise_cases.h"
#include "embedding.cuh"
#include "rope.cuh"
#include "shim_device.h"
#include "vocabulary.cuh"
#include "vocabulary_cases.h"

namespace fp8::ops {
namespace {

struct ShimElementwise : ShimMemory {
  void add(const View& a, const View& b, const View& out) { add_cuda(launch, a, b, out); }
  void sum_terms(const View& terms, const View& out) { sum_terms_cuda(launch, terms, out); }
  void copy(const View& in, const View& out) { copy_cuda(launch, in, out); }
  void zero(const View& x) { zero_cuda(launch, x); }
  void swiglu_forward(const View& gate_up, const View& h, const Amax& amax = {}) {
    swiglu_forward_cuda(launch, gate_up, h, amax);
  }
  void swiglu_backward(const View& dh, const View& gate_up, const View& out, const Amax& amax = {}) {
    swiglu_backward_cuda(launch, dh, gate_up, out, amax);
  }
  void sum_partials(const View& terms, const View& bias, const View& out) {
    sum_partials_cuda(launch, terms, bias, out);
  }
  void embedding_forward(const View& tokens, const View& table, const View& out, const VocabularyPart& part = {}) {
    embedding_forward_cuda(launch, tokens, table, out, part);
  }
  void embedding_backward(const View& tokens, const View& dout, const View& dtable, const VocabularyPart& part = {}) {
    const Tensor memory(DType::i32, {3, tokens.shape[0]});
    embedding_backward_cuda(launch, tokens, dout, dtable, part, put(memory.view()));
  }
  void bias_backward(const View& dy, const View& db) {
    bias_backward_cuda(launch, dy, db,
                       scratch(DType::f32, {cuda::column_blocks(dy.shape[0], dy.shape[1]), dy.shape[1]}));
  }
  void cross_entropy(const View& logits, const View& targets, const View& losses, float scale, bool backward) {
    cross_entropy_cuda(launch, logits, targets, losses, scale, backward);
  }
  void logit_maxima(const View& logits, const View& out) { logit_maxima_cuda(launch, logits, out); }
  void logit_sums(const View& logits, const View& targets, std::int64_t first, const View& maxima, const View& out) {
    logit_sums_cuda(launch, logits, targets, first, maxima, out);
  }
  void cross_entropy_of_part(const View& logits, const View& targets, std::int64_t first, const View& maxima,
                             const View& sums, const View& losses, float scale, bool backward) {
    cross_entropy_of_part_cuda(launch, logits, targets, first, maxima, sums, losses, scale, backward);
  }
  void rope_tables(std::span<const float> frequencies, const View& cos, const View& sin) {
    rope_tables_cuda(launch, frequencies, cos, sin);
  }
  void dropout(const View& x, const Dropout& drop, const View& out) { dropout_cuda(launch, x, drop, out); }
  void rope(const View& x, const View& cos, const View& sin, bool inverse) { rope_cuda(launch, x, cos, sin, inverse); }
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
