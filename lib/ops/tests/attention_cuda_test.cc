// The kernels of attention on the host, thread by thread, against the host's own.
#include "cuda_shim.h"
//
#include "attention.cuh"
#include "attention_cases.h"
#include "shim_device.h"

namespace fp8::ops {
namespace {

struct ShimAttention : ShimMemory {
  void attention_forward(const View& q, const View& k, const View& v, float scale, const Documents& documents,
                         const View& out, const View& lse) {
    attention_forward_cuda(launch, q, k, v, scale, documents, out, lse);
  }
  void attention_backward(const View& q, const View& k, const View& v, const View& out, const View& lse,
                          const View& dout, float scale, const Documents& documents, const View& dq, const View& dk,
                          const View& dv) {
    const auto like_k = [&] { return scratch(k.dtype, {k.shape[0], k.shape[1], k.shape[2], k.shape[3]}); };
    const cuda::AttentionScratch memory{scratch(DType::f32, {q.shape[0], q.shape[1], q.shape[2]}), like_k(), like_k()};
    attention_backward_cuda(launch, q, k, v, out, lse, dout, scale, documents, dq, dk, dv, memory);
  }
};

TEST(AttentionCuda, ForwardAndBackwardAreTheHosts) {
  ShimAttention device;
  cases::attention(device);
}

TEST(AttentionCuda, DocumentsOfOneTileDoNotSeeAnother) {  // a poisoned document leaves the others as they were
  ShimAttention device;
  const cases::AttentionSize size{1, 130, 1, 1, 16};
  const cases::Projection x(DType::f32, size, true, 1), poisoned(DType::f32, size, true, 1);
  const Tensor starts = cases::starts_of(size);
  for (std::int64_t t = 64; t < 128; ++t) poisoned.k.as<float>()[t * x.k.stride[1]] = std::nanf("");
  for (std::int64_t t = 64; t < 128; ++t) poisoned.v.as<float>()[t * x.v.stride[1]] = std::nanf("");
  const Tensor out(DType::f32, {1, 130, 1, 16}), lse(DType::f32, {1, 1, 130});
  const View clean = device.put(out.view()), dirty = device.put(out.view()), sums = device.put(lse.view());
  const Documents documents{device.put(starts.view())};
  device.attention_forward(device.put(x.q), device.put(x.k), device.put(x.v), 0.25f, documents, clean, sums);
  device.attention_forward(device.put(poisoned.q), device.put(poisoned.k), device.put(poisoned.v), 0.25f, documents,
                           dirty, sums);
  const Values a = read(clean), b = read(dirty);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool inside = i / 16 >= 64 && i / 16 < 128;
    EXPECT_EQ(std::isnan(b[i]), inside) << i;
    if (!inside) {
      EXPECT_EQ(a[i], b[i]);
    }
  }
}

}  // namespace
}  // namespace fp8::ops
