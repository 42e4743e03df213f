// The kernels of Muon run on the host, thread by thread, against the host loops: the same bits in every type, at odd
// sizes and alignments, when skipping.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "blocks.h"
#include "cuda.h"
#include "muon_kernels.h"
#include "shim_launches.h"

namespace fp8::optim {
namespace {

// Values of a view of elements [skipped, skipped + n) of a tensor, so that it need not be aligned.
struct Values {
  Values(DType type, std::int64_t skipped, std::int64_t n, float scale)
      : all(type, {skipped + n}), view(all.view().rows(skipped, skipped + n)) {
    for (std::int64_t i = 0; i < skipped + n; ++i) set(all, i, scale * std::sin(0.7f * static_cast<float>(i)));
  }
  Tensor all;
  View view;
};

class MuonCuda : public testing::TestWithParam<std::tuple<DType, DType, DType>> {};
INSTANTIATE_TEST_SUITE_P(All, MuonCuda,
                         testing::Combine(testing::Values(DType::f32, DType::bf16),
                                          testing::Values(DType::f32, DType::bf16),
                                          testing::Values(DType::f32, DType::bf16)));

TEST_P(MuonCuda, MatchesTheHostBitForBit) {
  const auto [stored, direction, compute_weight] = GetParam();
  for (const std::int64_t n : {std::int64_t{1}, std::int64_t{127}, std::int64_t{128}, std::int64_t{2049}})
    for (const std::int64_t skipped : {0, 1})
      for (const int skip : {0, 1}) {
        const auto run = [&](auto&& momentum, auto&& muon) {
          const Values g(DType::f32, skipped, n, 1), m(stored, skipped, n, 0.5f), u(direction, skipped, n, 1),
              master(stored, skipped, n, 0.3f), weight(compute_weight, skipped, n, 0), amax(DType::f32, 0, 1, 0);
          const Settings settings;
          const Gate gate{.gradient_scale = 0.3f, .skip = skip};
          const Scalars scalars = scalars_of(settings, 3, 1e-2, 42, &gate);
          *amax.all.as<float>() = -0.25f;
          momentum(Context{}, MomentumBlock{g.view, m.view, u.view, 7, 45}, scalars);
          muon(Context{}, MuonBlock{master.view, u.view, weight.view, amax.view, 8, n, true, 7, 45}, settings, scalars);
          return bytes_of(m.all) + bytes_of(u.all) + bytes_of(master.all) + bytes_of(weight.all) + bytes_of(amax.all);
        };
        EXPECT_TRUE(run(cuda::momentum, cuda::muon) == run(momentum, muon))
            << n << ", from " << skipped << ", " << skip;
      }
}

TEST(MuonCudaAlone, PartsOfTheIterationMatchTheHost) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const std::int64_t n : {std::int64_t{1}, std::int64_t{127}, std::int64_t{4100}})
      for (const std::int64_t skipped : {0, 1}) {
        const Values x(type, skipped, n, 1), same(type, skipped, n, 1), sums(DType::f32, skipped, n, 3);
        const double square_sum = 7;
        cuda::divide({}, x.view, &square_sum);
        cuda::combine({}, {x.view, kA, sums.view, kC, x.view});
        const MuonKernels& kernels = muon_kernels();
        const std::size_t of = type == DType::f32 ? 0 : 1;
        kernels.divide[of](same.view.data, divisor_of(square_sum), 0, n);
        kernels.combine[of](same.view.data, kA, sums.view.as<float>(), kC, same.view.data, 0, n);
        EXPECT_TRUE(bytes_of(x.all) == bytes_of(same.all)) << n << ", from " << skipped;
      }
}

}  // namespace
}  // namespace fp8::optim
