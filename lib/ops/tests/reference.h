/// Helpers of the tests of this crate: inputs that are exact in the storage type, elements of views, central
/// differences in f64, and runs on one thread.
#pragma once

#include <omp.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fp8/device/arena.h"
#include "fp8/dtype/convert.h"
#include "fp8/tensor/tensor.h"
#include "fp8_test.h"

namespace fp8::ops {

using device::Context;
using dtype::Bf16;
using dtype::DType;
using tensor::Tensor;
using tensor::View;
using test::error_of;
using Values = std::vector<double>;

/// A host context with an arena.
class Host {
 public:
  Host() { context_.arena = &arena_; }
  operator const Context&() const { return context_; }
  device::Arena& arena() { return arena_; }

 private:
  device::Arena arena_{std::size_t{32} << 20, device::DeviceType::host};
  Context context_;
};

/// `n` bf16 values in [-scale, scale) from a linear congruential generator.
inline Values random_values(std::int64_t n, unsigned seed, double scale = 1.0) {
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  Values values(static_cast<std::size_t>(n));
  for (double& v : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double unit = static_cast<double>(state >> 40) * 0x1p-23 - 1.0;
    v = static_cast<double>(dtype::to_float(dtype::to_bf16(static_cast<float>(unit * scale))));
  }
  return values;
}

/// Calls f(offset in elements) for every element in row-major order.
inline void for_each_offset(const View& v, const std::function<void(std::int64_t)>& f) {
  for (std::int64_t i = 0; i < v.size(); ++i) {
    std::int64_t rest = i, offset = 0;
    for (int d = v.rank - 1; d >= 0; --d) {
      const auto at = static_cast<std::size_t>(d);
      offset += rest % v.shape[at] * v.stride[at];
      rest /= v.shape[at];
    }
    f(offset);
  }
}

/// Elements of an f32 or bf16 view in row-major order.
inline Values read(const View& v) {
  Values out;
  for_each_offset(v, [&](std::int64_t at) {
    out.push_back(static_cast<double>(v.dtype == DType::f32 ? v.as<float>()[at] : dtype::to_float(v.as<Bf16>()[at])));
  });
  return out;
}

/// Stores values, rounded, in an f32, bf16 or i32 view.
inline void write(const View& v, const Values& values) {
  std::size_t i = 0;
  for_each_offset(v, [&](std::int64_t at) {
    if (v.dtype == DType::i32) {
      v.as<std::int32_t>()[at] = static_cast<std::int32_t>(values[i++]);
    } else if (v.dtype == DType::f32) {
      v.as<float>()[at] = static_cast<float>(values[i++]);
    } else {
      v.as<Bf16>()[at] = dtype::to_bf16(static_cast<float>(values[i++]));
    }
  });
}

/// A tensor with these values.
inline Tensor make(DType type, tensor::Shape shape, const Values& values) {
  Tensor t(type, shape);
  write(t.view(), values);
  return t;
}

/// |a - b| / |b| in the L2 norm.
inline double relative_error(const Values& a, const Values& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / (norm + 1e-300));
}

/// Sum of products.
inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Gradient of f at x by central differences in f64; accurate to about 1e-9.
inline Values central_differences(const std::function<double(const Values&)>& f, Values x) {
  constexpr double kStep = 1e-5;
  Values gradient;
  for (double& v : x) {
    const double at = v;
    v = at + kStep;
    const double above = f(x);
    v = at - kStep;
    const double below = f(x);
    v = at;
    gradient.push_back((above - below) / (2 * kStep));
  }
  return gradient;
}

/// Runs f on one thread.
inline void on_one_thread(const std::function<void()>& f) {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  f();
  omp_set_num_threads(threads);
}

}  // namespace fp8::ops
