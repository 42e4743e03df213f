/// Attention and its gradients in f64, and bounds on the error of the host.
#pragma once

#include "fp8/base/cpu.h"
#include "reference.h"

namespace fp8::ops {

/// Extents of a call.
struct Sizes {
  std::int64_t batch, positions, heads, groups, dim;
  std::int64_t queries() const { return batch * positions * heads * dim; }
  std::int64_t keys() const { return batch * positions * groups * dim; }
};

/// 1 / sqrt(D).
inline float scale_of(const Sizes& s) { return 1.0f / std::sqrt(static_cast<float>(s.dim)); }

/// Unit roundoff of activations, and of operands that the host multiplies in pairs (0 if it does not); see attention.h.
struct Roundoff {
  double u, pairs;
  explicit Roundoff(DType type)
      : u(type == DType::f32 ? 0x1p-24 : 0x1p-8), pairs(type == DType::bf16 && cpu_isa() == Isa::avx512_bf16 ? u : 0) {}
};

/// Plain attention in f64 and its gradients, with the bounds of attention.h on the error of each.
class Naive {
 public:
  struct Bounds {
    Values out, lse, dq, dk, dv;
  };
  Values out, lse, dq, dk, dv;
  Bounds bounds;

  Naive(const Sizes& sizes, const Values& q, const Values& k, const Values& v, const Values* dout = nullptr,
        const Values& start = {}, DType type = DType::f32)
      : out(q.size()),
        dq(q.size()),
        dk(k.size()),
        dv(k.size()),
        bounds{out, {}, dq, dk, dv},
        s_(sizes),
        r_(type),
        q_(q),
        k_(k),
        v_(v),
        start_(start) {
    for (std::int64_t b = 0; b < s_.batch; ++b) {
      for (std::int64_t h = 0; h < s_.heads; ++h) {
        for (std::int64_t t = 0; t < s_.positions; ++t) row(b, h, t, dout);
      }
    }
    for (const auto& [bound, value] : {std::pair{&bounds.dq, &dq}, {&bounds.dk, &dk}, {&bounds.dv, &dv}})
      for (std::size_t i = 0; i < value->size(); ++i) (*bound)[i] += r_.u * std::abs((*value)[i]);
  }

 private:
  static constexpr double kF32 = 0x1p-24;
  std::size_t at(std::int64_t b, std::int64_t t, std::int64_t heads, std::int64_t h) const {
    return static_cast<std::size_t>(((b * s_.positions + t) * heads + h) * s_.dim);
  }
  // One query, whose keys begin at `keys` with stride `step`.
  struct Query {
    std::size_t i, keys, step;
    Values p, dp, magnitude;  // probabilities, their gradients, sums of |dout v|
    double g = 0;             // error of the f32 arithmetic
  };
  void row(std::int64_t b, std::int64_t h, std::int64_t t, const Values* dout) {
    const std::int64_t g = h / (s_.heads / s_.groups);
    const std::int64_t first =
        start_.empty() ? 0 : static_cast<std::int64_t>(start_[static_cast<std::size_t>(b * s_.positions + t)]);
    Query query{.i = at(b, t, s_.heads, h),
                .keys = at(b, first, s_.groups, g),
                .step = static_cast<std::size_t>(s_.groups * s_.dim),
                .p = Values(static_cast<std::size_t>(t - first + 1)),
                .dp = {},
                .magnitude = {}};
    probabilities(query);
    forward(query);
    if (dout != nullptr) backward(query, *dout);
  }
  void probabilities(Query& x) {
    const auto scale = static_cast<double>(scale_of(s_)), dim = static_cast<double>(s_.dim);
    double highest = -HUGE_VAL, largest = 0, sum = 0;
    for (std::size_t j = 0; j < x.p.size(); ++j) {
      double score = 0, magnitude = 0;
      for (std::size_t d = 0; d < static_cast<std::size_t>(s_.dim); ++d) {
        const double product = q_[x.i + d] * k_[x.keys + j * x.step + d];
        score += product;
        magnitude += std::abs(product);
      }
      x.p[j] = score * scale;
      highest = std::max(highest, x.p[j]);
      largest = std::max(largest, magnitude * scale);
    }
    for (double& e : x.p) sum += e = std::exp(e - highest);
    for (double& e : x.p) e /= sum;
    lse.push_back(highest + std::log(sum));
    x.g = 2 * kF32 * (2 * (dim + 2) * largest + static_cast<double>(x.p.size()) + 16);
    bounds.lse.push_back(x.g + kF32 * std::abs(lse.back()));
  }
  void forward(const Query& x) {
    for (std::size_t d = 0; d < static_cast<std::size_t>(s_.dim); ++d) {
      double magnitude = 0;
      for (std::size_t j = 0; j < x.p.size(); ++j) {
        const double value = v_[x.keys + j * x.step + d];
        out[x.i + d] += x.p[j] * value;
        magnitude += x.p[j] * std::abs(value);
      }
      bounds.out[x.i + d] = r_.u * std::abs(out[x.i + d]) + (r_.pairs + x.g) * magnitude;
    }
  }
  void backward(Query& x, const Values& dout) {
    const auto dim = static_cast<std::size_t>(s_.dim);
    const auto scale = static_cast<double>(scale_of(s_));
    double delta = 0, of_delta = 0;
    for (std::size_t j = 0; j < x.p.size(); ++j) {
      double dp = 0, magnitude = 0;
      for (std::size_t d = 0; d < dim; ++d) {
        const double product = dout[x.i + d] * v_[x.keys + j * x.step + d];
        dp += product;
        magnitude += std::abs(product);
      }
      x.dp.push_back(dp);
      x.magnitude.push_back(magnitude);
      delta += x.p[j] * dp;
    }
    for (std::size_t d = 0; d < dim; ++d)
      of_delta +=
          std::abs(dout[x.i + d]) * (bounds.out[x.i + d] + kF32 * static_cast<double>(dim) * std::abs(out[x.i + d]));
    for (std::size_t j = 0; j < x.p.size(); ++j) {
      const std::size_t key = x.keys + j * x.step;
      const double ds = x.p[j] * (x.dp[j] - delta);
      const double of_ds = (r_.pairs + x.g) * std::abs(ds) + x.p[j] * (x.g * x.magnitude[j] + of_delta);
      for (std::size_t d = 0; d < dim; ++d) {
        dv[key + d] += x.p[j] * dout[x.i + d];
        dk[key + d] += scale * ds * q_[x.i + d];
        dq[x.i + d] += scale * ds * k_[key + d];
        bounds.dv[key + d] += (r_.pairs + x.g) * x.p[j] * std::abs(dout[x.i + d]);
        bounds.dk[key + d] += scale * of_ds * std::abs(q_[x.i + d]);
        bounds.dq[x.i + d] += scale * of_ds * std::abs(k_[key + d]);
      }
    }
  }
  const Sizes& s_;
  const Roundoff r_;
  const Values &q_, &k_, &v_, &start_;
};

/// Expects |got - want| <= bound everywhere.
inline void expect_within(const Values& got, const Values& want, const Values& bound, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::abs(got[i] - want[i]), bound[i])
        << what << ": element " << i << " is " << got[i] << ", exactly " << want[i];
}

}  // namespace fp8::ops
