// Parts of the vocabulary on the host: losses and gradients of one to four parts together are those of
// cross_entropy(), and embeddings those of the whole table.
#include <gtest/gtest.h>

#include <cstring>

#include "vocabulary_cases.h"

namespace fp8::ops {
namespace {

using cases::Bounds;
using cases::copy_of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The host with the interface of a device.
class HostDevice {
 public:
  View put(const View& v) {
    Tensor copy(v.dtype, {cases::span_of(v)});
    if (v.size() > 0) std::memcpy(copy.view().data, v.data, copy.view().bytes());
    View there = v;
    there.data = copy.view().data;
    kept_.push_back(std::move(copy));
    return there;
  }
  void get(const View& from, const View& to) { std::memcpy(to.data, from.data, to.bytes()); }
  void logit_maxima(const View& x, const View& out) { ops::logit_maxima(host_, x, out); }
  void logit_sums(const View& x, const View& targets, std::int64_t first, const View& maxima, const View& out) {
    ops::logit_sums(host_, x, targets, first, maxima, out);
  }
  void cross_entropy_of_part(const PartOfLogits& part) { ops::cross_entropy_of_part(host_, part); }

 private:
  Host host_;
  std::vector<Tensor> kept_;
};

// Losses and gradients of logits.
struct Loss {
  Values losses, gradient;
};

Loss loss_of_whole(const View& logits, const View& targets, float scale) {
  const Tensor x = copy_of(logits), losses(DType::f32, {logits.shape[0]});
  cross_entropy(Host(), x.view(), targets, losses.view(), scale, true);
  return {read(losses.view()), read(x.view())};
}

Loss host_loss_of_parts(const View& logits, const View& targets, const Bounds& bounds, float scale,
                        bool backward = true) {
  const Tensor x = copy_of(logits), losses = make(DType::f32, {logits.shape[0]}, Values(1000, 7.0));
  HostDevice device;
  cases::loss_of_parts(device, x.view(), targets, bounds, scale, backward, losses.view());
  return {read(losses.view()), read(x.view())};
}

// A bf16 gradient may be rounded to the next value.
void expect_whole(const View& logits, const View& targets, const Bounds& bounds, const std::string& what) {
  const float scale = 0.125f;
  const Loss got = host_loss_of_parts(logits, targets, bounds, scale), want = loss_of_whole(logits, targets, scale);
  cases::expect_close(got.losses, want.losses, 1e-6, what + ", losses");
  cases::expect_close(got.gradient, want.gradient, logits.dtype == DType::f32 ? 1e-6 : 0x1p-8, what + ", gradient");
}

TEST(VocabularyParts, HaveTheLossesAndGradientsOfTheWhole) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const std::int64_t n : {8, 33, 300, 5003})
      for (const std::int64_t parts : {1, 2, 3, 4}) {
        const std::int64_t m = 9;
        const Bounds bounds = cases::uneven_bounds(n, parts);
        const std::string name =
            cases::name_of(type, m, n, cases::Layout::contiguous) + " in " + std::to_string(parts) + " parts";
        const Tensor x = make(type, {m, n}, random_values(m * n, 5, 8)), targets = cases::targets_at(bounds, m);
        expect_whole(x.view(), targets.view(), bounds, name);
        const Loss forward = host_loss_of_parts(x.view(), targets.view(), bounds, 0, false);
        EXPECT_EQ(forward.gradient, read(x.view())) << name << ": a forward pass changes no logit";
        EXPECT_EQ(forward.losses, host_loss_of_parts(x.view(), targets.view(), bounds, 0.125f).losses) << name;
      }
}

TEST(VocabularyParts, HaveTheLossesOfWholeRowsThatAreFarFromZero) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const double offset : {-30000.0, 400.0, 1e30}) {
      const std::int64_t m = 5, n = 40;
      Values logits = random_values(m * n, 6, 3);
      for (double& x : logits) x += offset;
      const Bounds bounds{0, 8, 31, n};
      const Tensor x = make(type, {m, n}, logits), targets = cases::targets_at(bounds, m);
      expect_whole(x.view(), targets.view(), bounds, std::to_string(offset));
    }
}

// Parts that add nothing: of -infinity, such as masked padding, and of logits so low that their exponentials are 0.
TEST(VocabularyParts, BelowAllOthersAddNothing) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const double low : {-kInfinity, -1e30, -1000.0})
      for (const std::size_t part : {0, 1, 2}) {
        const std::int64_t m = 6, n = 30;
        const Bounds bounds{0, 4, 17, n};
        Values logits = random_values(m * n, 7, 8), targets(static_cast<std::size_t>(m));
        const auto inside = [&](std::int64_t c) { return c >= bounds[part] && c < bounds[part + 1]; };
        for (std::int64_t i = 0; i < m * n; ++i)
          if (inside(i % n)) logits[static_cast<std::size_t>(i)] = low;
        for (std::size_t i = 0; i < targets.size(); ++i)
          targets[i] = static_cast<double>(part == 0 ? 4 + 5 * static_cast<std::int64_t>(i) : part == 1 ? 3 : 2);
        targets[2] = kIgnoredTarget;
        const Tensor x = make(type, {m, n}, logits), t = make(DType::i32, {m}, targets);
        const std::string name = "part " + std::to_string(part) + " of " + std::to_string(low);
        expect_whole(x.view(), t.view(), bounds, name);
        const Loss got = host_loss_of_parts(x.view(), t.view(), bounds, 1);
        for (std::int64_t i = 0; i < m * n; ++i) {
          const double g = got.gradient[static_cast<std::size_t>(i)];
          EXPECT_TRUE(inside(i % n) ? g == 0 : std::isfinite(g)) << name << ", element " << i << ": " << g;
        }
      }
}

// A target whose logit is the largest but for -infinity elsewhere has no loss.
TEST(VocabularyParts, HaveNoLossWhereOnlyTheTargetIsPossible) {
  const std::int64_t n = 12;
  for (const std::int64_t target : {0, 5, 11}) {
    Values logits(static_cast<std::size_t>(n), -kInfinity);
    logits[static_cast<std::size_t>(target)] = 3;
    const Tensor x = make(DType::f32, {1, n}, logits), t = make(DType::i32, {1}, {static_cast<double>(target)});
    const Loss got = host_loss_of_parts(x.view(), t.view(), {0, 5, 9, n}, 1);
    EXPECT_EQ(got.losses, Values{0.0}) << target;
    EXPECT_EQ(got.gradient, Values(static_cast<std::size_t>(n), 0.0)) << target;
  }
}

TEST(VocabularyParts, IgnoredRowsHaveNoLossAndNoGradientWhateverTheirLogits) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const double value : {1.0, -kInfinity, kInfinity, std::nan("")}) {
      const Tensor x = make(type, {2, 10}, Values(20, value)), t = make(DType::i32, {2}, Values(2, kIgnoredTarget));
      const Loss got = host_loss_of_parts(x.view(), t.view(), {0, 3, 10}, 1);
      EXPECT_EQ(got.losses, Values(2, 0.0)) << value;
      EXPECT_EQ(got.gradient, Values(20, 0.0)) << value;
    }
}

TEST(VocabularyParts, NaNInOnePartGivesNaNInAll) {
  Values logits = random_values(24, 8);
  logits[11] = std::nan("");  // the last of the first row
  const Tensor x = make(DType::f32, {2, 12}, logits), t = make(DType::i32, {2}, {0, 0});
  const Loss got = host_loss_of_parts(x.view(), t.view(), {0, 5, 12}, 1);
  EXPECT_TRUE(std::isnan(got.losses[0]));
  EXPECT_TRUE(std::isfinite(got.losses[1]));
  for (std::size_t i = 0; i < got.gradient.size(); ++i) EXPECT_EQ(std::isnan(got.gradient[i]), i < 12) << i;
}

// Exact in every order of sums: exp(0) is 1.
TEST(VocabularyParts, StepsHaveMaximaSumsAndTheTargetOfTheirColumns) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const Host host;
    Values logits(60, 2.0);
    logits[17] = 5;
    logits[20] = -7;
    const Tensor x = make(type, {3, 20}, logits), t = make(DType::i32, {3}, {117, 99, 120}), maxima(DType::f32, {3}),
                 shifts = make(DType::f32, {3}, {5, 2, 2}), sums = make(DType::f32, {2, 3}, Values(6, 9.0));
    logit_maxima(host, x.view(), maxima.view());
    EXPECT_EQ(read(maxima.view()), (Values{5, 2, 2}));
    logit_sums(host, x.view(), t.view(), 100, shifts.view(), sums.view());
    const Values got = read(sums.view());
    EXPECT_NEAR(got[0], 1 + 19 * std::exp(-3), 1e-6);
    EXPECT_NEAR(got[1], 19 + std::exp(-9), 1e-5);
    EXPECT_EQ(got[2], 20.0);
    EXPECT_EQ((Values{got.begin() + 3, got.end()}), (Values{5, 0, 0})) << "tokens 99 and 120 are other parts'";
  }
}

TEST(VocabularyParts, MismatchedViewsAreRefused) {
  const Host host;
  const Tensor x(DType::f32, {4, 6}), t(DType::i32, {4}), few(DType::i32, {3}), maxima(DType::f32, {4}),
      narrow(DType::bf16, {4}), sums(DType::f32, {2, 4}), losses(DType::f32, {4});
  EXPECT_EQ(error_of([&] { logit_maxima(host, x.view(), narrow.view()); }),
            "logit maxima: results of rows must be float32");
  EXPECT_EQ(error_of([&] { logit_maxima(host, x.view(), sums.view()); }),
            "logit maxima: expected one result for each row");
  EXPECT_EQ(error_of([&] { logit_sums(host, x.view(), few.view(), 0, maxima.view(), sums.view()); }),
            "logit sums: targets must be int32, one for each row");
  EXPECT_EQ(error_of([&] { logit_sums(host, x.view(), t.view(), 0, maxima.view(), losses.view()); }),
            "logit sums: expected two sums for each row");
  EXPECT_EQ(
      error_of([&] {
        cross_entropy_of_part(host, {x.view(), t.view(), 0, maxima.view(), losses.view(), losses.view(), 1, true});
      }),
      "cross-entropy: expected one loss for each row");
}

// Parts add up to the whole table's rows, because tokens of other parts give zeros.
TEST(VocabularyParts, EmbeddingsAddUpToThoseOfTheWholeTable) {
  const Host host;
  const std::int64_t m = 50, v = 23, n = 37;
  Values ids(static_cast<std::size_t>(m));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>(i * i % 23);
  const Tensor tokens = make(DType::i32, {m}, ids), table = make(DType::f32, {v, n}, random_values(v * n, 1));
  for (const DType type : {DType::f32, DType::bf16})
    for (const std::int64_t parts : {1, 2, 3, 4}) {
      const Bounds bounds = cases::uneven_bounds(v, parts);
      const Tensor whole(type, {m, n}), dout = make(type, {m, n}, random_values(m * n, 2)), want(DType::f32, {v, n}),
                                        got(DType::f32, {v, n});
      embedding_forward(host, tokens.view(), table.view(), whole.view());
      embedding_backward(host, tokens.view(), dout.view(), want.view());
      Values sum(static_cast<std::size_t>(m * n));
      for (std::size_t p = 0; p + 1 < bounds.size(); ++p) {
        const VocabularyPart part{bounds[p], true};
        const Tensor out = make(type, {m, n}, Values(static_cast<std::size_t>(m * n), 7.0));
        embedding_forward(host, tokens.view(), table.view().rows(bounds[p], bounds[p + 1]), out.view(), part);
        const Values rows = read(out.view());
        for (std::size_t i = 0; i < sum.size(); ++i) {
          const auto id = static_cast<std::int64_t>(ids[i / static_cast<std::size_t>(n)]);
          const bool own = id >= bounds[p] && id < bounds[p + 1];
          ASSERT_TRUE(own || rows[i] == 0) << "token " << id << " of another part";
          sum[i] += rows[i];
        }
        embedding_backward(host, tokens.view(), dout.view(), got.view().rows(bounds[p], bounds[p + 1]), part);
      }
      EXPECT_EQ(sum, read(whole.view())) << parts << " parts";
      EXPECT_EQ(read(got.view()), read(want.view())) << parts << " parts";
    }
}

}  // namespace
}  // namespace fp8::ops
