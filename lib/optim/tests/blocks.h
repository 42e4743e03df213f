/// A tensor with its moments, gradient, compute weight and amax, for tests that update it whole or in parts.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "fp8/optim/adamw.h"

namespace fp8::optim {

using dtype::Bf16;
using dtype::DType;
using tensor::Tensor;

/// A gate that neither clips nor skips.
inline constexpr Gate kOpen{};

/// Element i of a float or Bf16 tensor.
inline float get(const Tensor& t, std::int64_t i) {
  if (t.view().dtype == DType::bf16) return dtype::to_float(t.as<Bf16>()[i]);
  return t.as<float>()[i];
}

/// Sets element i of a float or Bf16 tensor, rounded to nearest.
inline void set(const Tensor& t, std::int64_t i, float value) {
  if (t.view().dtype == DType::bf16) {
    t.as<Bf16>()[i] = dtype::to_bf16(value);
  } else {
    t.as<float>()[i] = value;
  }
}

/// Sum of squares of a view of the host.
inline double squares_of(const tensor::View& x) {
  double total = 0;
  add_squares({}, x, &total);
  return total;
}

/// All bytes of a tensor.
inline std::string bytes_of(const Tensor& t) { return {static_cast<const char*>(t.view().data), t.view().bytes()}; }

/// AdamW state of one tensor of n elements.
struct State {
  Tensor master, gradient, m, v, compute_weight, amax;

  State(std::int64_t n, DType master_type, DType moment_type, DType copy_type)
      : master(master_type, {n}),
        gradient(DType::f32, {n}),
        m(moment_type, {n}),
        v(moment_type, {n}),
        compute_weight(copy_type, {n}),
        amax(DType::f32, {1}) {
    for (std::int64_t i = 0; i < n; ++i) set(master, i, std::sin(0.7f * static_cast<float>(i)));
  }
  /// Elements [begin, end).
  AdamwBlock block(std::int64_t begin, std::int64_t end, bool decay = true) const {
    return {.master = master.view().rows(begin, end),
            .gradient = gradient.view().rows(begin, end),
            .m = m.view().rows(begin, end),
            .v = v.view().rows(begin, end),
            .compute_weight = compute_weight.view().rows(begin, end),
            .amax = amax.view(),
            .decay = decay,
            .tensor = 7,
            .first_element = begin};
  }
  /// All elements.
  AdamwBlock whole(bool decay = true) const { return block(0, master.view().size(), decay); }
  /// Sets a gradient that differs from step to step.
  void next_gradient(std::int64_t t) {
    for (std::int64_t i = 0; i < gradient.view().size(); ++i) {
      gradient.as<float>()[i] = std::cos(0.3f * static_cast<float>(i) + static_cast<float>(t)) * 0.1f;
    }
  }
  /// Everything an update writes.
  std::string bytes() const {
    return bytes_of(master) + bytes_of(m) + bytes_of(v) + bytes_of(compute_weight) + bytes_of(amax);
  }
};

}  // namespace fp8::optim
