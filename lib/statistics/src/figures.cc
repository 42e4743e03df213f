// The loops. A row is processed in pieces that stay in the L1 cache; sums of a row are added in the order of rows, so
// that they do not depend on the number of threads.
#include "fp8/statistics/figures.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/round.h"
#include "fp8/dtype/dispatch.h"
#include "fp8/dtype/e2m1.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/fp4.h"
#include "fp8/quant/scale.h"

namespace fp8::statistics {
namespace {

using dtype::DType;
using quant::ContractionAxis;

constexpr std::int64_t kPiece = 256;
constexpr std::uint32_t kInfinity = 0x7F800000u;

std::uint32_t magnitude(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7FFFFFFFu; }
float from_magnitude(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// E2M1, whose rounded elements come from the cast.
struct E2m1 {
  static constexpr float kMax = dtype::kE2m1Max;
  static constexpr int kFractionBits = 1;
  static constexpr std::uint32_t kMinExponent = 127;  // of 1
};

// Calls f.template operator()<Format>() with the grid of an FP8 format, or E2m1.
template <class F>
void with_format(DType format, F&& f) {
  if (is_fp4(format)) return f.template operator()<E2m1>();
  dtype::with_fp8_grid(format, std::forward<F>(f));
}

// An element after the cast: its code as a number, and y.
struct Rounded {
  float code, y;
};
template <class Format>
Rounded rounded(float scaled, float scale, const float* y, std::int64_t i) {
  if constexpr (std::is_same_v<Format, E2m1>) return {y[i] * scale, y[i]};
  const float code = dtype::round_to_grid<Format>(scaled);
  return {code, code / scale};
}

// Limits of a format, as magnitudes of scaled elements.
template <class Grid>
struct Limits {
  // Above this a value saturates: half a spacing above the largest value.
  static constexpr float kSaturated =
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(Grid::kMax) + (1u << (22 - Grid::kFractionBits)));
  static constexpr float kSmallestNormal = std::bit_cast<float>(Grid::kMinExponent << 23);
};

// Counts and sums of one row.
struct RowFigures {
  std::int32_t nonfinite = 0, nonzero = 0, underflowed = 0, subnormal = 0, saturated = 0;
  std::uint32_t largest = 0, smallest = kInfinity;
  double signal = 0, noise = 0;
};

// A matrix and its scales, as the loops read them.
struct Cast {
  const View& x;
  const ScaleGrid& scales;
  const View& y;
  std::int64_t cols() const { return x.shape[1]; }
  const float* scale_row(std::int64_t r) const { return scales.data.data() + r / scales.rows * scales.stride_r; }

  template <class T>
  const T* row(std::int64_t r) const {
    return x.as<T>() + r * x.stride[0];
  }
  const float* y_row(std::int64_t r) const { return y.empty() ? nullptr : y.as<float>() + r * cols(); }
  // The scales of n elements of a row from column `begin` on.
  void expand(const float* of_row, std::int64_t begin, std::int64_t n, float* scale) const {
    if (scales.stride_c == 0) return std::fill_n(scale, n, *of_row), void();
    for (std::int64_t i = 0; i < n; ++i) scale[i] = of_row[(begin + i) / scales.cols * scales.stride_c];
  }
};

// Counts of elements by the exponent field of f32, before and after scaling; the last of each is not used.
struct Exponents {
  std::array<std::int64_t, 256> of_values{}, of_scaled{};
};

// n <= kPiece elements of a row.
template <class Grid, class T>
void add_piece(const T* x, const float* y, const float* scale, std::int64_t n, RowFigures& row, Exponents& exponents) {
  constexpr std::uint32_t kLast = 254;  // of finite elements
  std::array<float, kPiece> value, error;
  std::array<std::uint32_t, kPiece> scaled_bits;
  std::int32_t nonfinite = 0, nonzero = 0, underflowed = 0, subnormal = 0, saturated = 0;
  std::uint32_t largest = row.largest, smallest = row.smallest;
#pragma omp simd reduction(+ : nonfinite, nonzero, underflowed, subnormal, saturated) reduction(max : largest) \
    reduction(min : smallest)
  for (std::int64_t i = 0; i < n; ++i) {
    const float v = dtype::to_float(x[i]);
    const std::uint32_t bits = magnitude(v);
    const bool finite = bits < kInfinity, counts = finite & (bits != 0);
    const float scaled = v * scale[i];
    const Rounded to = rounded<Grid>(scaled, scale[i], y, i);
    const float is = from_magnitude(magnitude(to.code));
    scaled_bits[static_cast<std::size_t>(i)] = magnitude(scaled);
    nonfinite += finite ? 0 : 1;
    nonzero += counts ? 1 : 0;
    underflowed += counts & (is == 0) ? 1 : 0;
    subnormal += counts & (is > 0) & (is < Limits<Grid>::kSmallestNormal) ? 1 : 0;
    saturated += counts & (from_magnitude(magnitude(scaled)) > Limits<Grid>::kSaturated) ? 1 : 0;
    largest = std::max(largest, bits);
    smallest = std::min(smallest, counts ? bits : kInfinity);
    value[static_cast<std::size_t>(i)] = finite ? v : 0;
    error[static_cast<std::size_t>(i)] = finite ? v - to.y : 0;
  }
  double signal = 0, noise = 0;
#pragma omp simd reduction(+ : signal, noise)
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = value[static_cast<std::size_t>(i)], e = error[static_cast<std::size_t>(i)];
    signal += v * v;
    noise += e * e;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = magnitude(value[static_cast<std::size_t>(i)]);
    exponents.of_values[bits >> 23] += bits != 0 ? 1 : 0;
    exponents.of_scaled[std::min(scaled_bits[static_cast<std::size_t>(i)] >> 23, kLast)] += bits != 0 ? 1 : 0;
  }
  row.nonfinite += nonfinite;
  row.nonzero += nonzero;
  row.underflowed += underflowed;
  row.subnormal += subnormal;
  row.saturated += saturated;
  row.largest = largest;
  row.smallest = smallest;
  row.signal += signal;
  row.noise += noise;
}

template <class Grid, class T>
RowFigures row_figures(const Cast& cast, std::int64_t r, Exponents& exponents) {
  RowFigures row;
  std::array<float, kPiece> scale;
  const T* const x = cast.row<T>(r);
  const float *const y = cast.y_row(r), *const of_row = cast.scale_row(r);
  for (std::int64_t begin = 0; begin < cast.cols(); begin += kPiece) {
    const std::int64_t n = std::min(kPiece, cast.cols() - begin);
    cast.expand(of_row, begin, n, scale.data());
    add_piece<Grid>(x + begin, y == nullptr ? y : y + begin, scale.data(), n, row, exponents);
  }
  return row;
}

void add(Figures& f, const RowFigures& row) {
  f.nonfinite += row.nonfinite;
  f.nonzero += row.nonzero;
  f.underflowed += row.underflowed;
  f.subnormal += row.subnormal;
  f.saturated += row.saturated;
  f.signal += row.signal;
  f.noise += row.noise;
}

// The larger of two magnitudes, or NaN.
float larger(float a, float b) { return from_magnitude(std::max(magnitude(a), magnitude(b))); }

// Whether the elements from (r, c) on that share a scale are all zero.
template <class T>
bool all_zero(const Cast& cast, std::int64_t r, std::int64_t c) {
  const std::int64_t end_r = std::min(r + cast.scales.rows, cast.x.shape[0]),
                     end_c = std::min(c + cast.scales.cols, cast.cols());
  for (std::int64_t i = r; i < end_r; ++i) {
    const T* const row = cast.row<T>(i);
    if (!std::all_of(row + c, row + end_c, [](T v) { return magnitude(dtype::to_float(v)) == 0; })) return false;
  }
  return true;
}

template <class T>
void add_scales(const Cast& cast, Figures& f) {
  const ScaleGrid& scales = cast.scales;
  f.scales = scales.count;
  for (std::int64_t r = 0; r < cast.x.shape[0]; r += scales.rows) {
    for (std::int64_t c = 0; c < cast.cols(); c += scales.cols) {
      const float s = cast.scale_row(r)[c / scales.cols * scales.stride_c];
      (f.amax == 0 || all_zero<T>(cast, r, c) ? f.of_zeros : f.of_values).add({s, s});
    }
  }
}

// Extent of a group in the matrix.
struct Groups {
  std::int64_t rows, cols, across;  // across: groups in a row of groups
};

Groups groups_of(const View& x, const ScaleGrid& scales, ContractionAxis contract) {
  const bool one = scales.stride_r == 0 && scales.stride_c == 0;
  const bool last = contract == ContractionAxis::last;
  const std::int64_t rows = one ? (last ? 1 : x.shape[0]) : scales.rows,
                     cols = one ? (last ? x.shape[1] : 1) : scales.cols;
  return {rows, cols, divide_up(x.shape[1], cols)};
}

}  // namespace

void ScaleRange::add(const ScaleRange& o) {
  min = std::isnan(min) || std::isnan(o.min) ? NAN : std::min(min, o.min);
  max = std::max(max, o.max);
}

Figures& Figures::operator+=(const Figures& o) {
  elements += o.elements;
  nonfinite += o.nonfinite;
  nonzero += o.nonzero;
  underflowed += o.underflowed;
  subnormal += o.subnormal;
  saturated += o.saturated;
  signal += o.signal;
  noise += o.noise;
  amax = larger(amax, o.amax);
  smallest = std::min(smallest, o.smallest);
  of_values.add(o.of_values);
  of_zeros.add(o.of_zeros);
  scales += o.scales;
  for (std::size_t i = 0; i < exponents.size(); ++i) exponents[i] += o.exponents[i];
  for (std::size_t i = 0; i < exponents.size(); ++i) scaled_exponents[i] += o.scaled_exponents[i];
  return *this;
}

double Figures::share(std::int64_t count) const {
  return nonzero == 0 ? 0 : static_cast<double>(count) / static_cast<double>(nonzero);
}

double Figures::sqnr_db() const { return 10 * std::log10(signal / noise); }

double Figures::dynamic_range() const {
  return nonzero == 0 ? 0 : std::log2(static_cast<double>(amax) / static_cast<double>(smallest));
}

ScaleGrid scales_of(const Context& ctx, const quant::Quantized& q) {
  const View& s = q.scale;
  const bool last = q.contract == ContractionAxis::last, blocks = s.rank == 2;
  std::int64_t extent = 1;  // elements of memory from the first scale to the last
  for (int i = 0; i < s.rank; ++i)
    extent += (s.shape[static_cast<std::size_t>(i)] - 1) * s.stride[static_cast<std::size_t>(i)];
  ScaleGrid grid{.data = std::vector<float>(static_cast<std::size_t>(extent)), .count = s.size()};
  device::copy_bytes(ctx, grid.data.data(), device::DeviceType::host, s.data, s.device,
                     grid.data.size() * sizeof(float));
  if (blocks) {
    const quant::BlockExtent block = quant::block_extent(q.granularity);
    grid.rows = last ? block.across : block.along;
    grid.cols = last ? block.along : block.across;
    grid.stride_r = s.stride[0];
    grid.stride_c = s.stride[1];
  } else if (q.granularity == quant::Granularity::row) {
    (last ? grid.stride_r : grid.stride_c) = 1;
    (last ? grid.cols : grid.rows) = q.codes.shape[last ? 1 : 0];
  } else {
    grid.rows = q.codes.shape[0];
    grid.cols = q.codes.shape[1];
  }
  return grid;
}

ScaleGrid fp4_scales_of(const Context& ctx, const quant::Quantized& q, const View& x) {
  const bool square = q.granularity == quant::Granularity::block16x16, last = q.contract == ContractionAxis::last;
  const auto shape = quant::fp4_scales(x.shape[0], x.shape[1], q.contract, square);
  ScaleGrid grid{.data = std::vector<float>(static_cast<std::size_t>(shape[0] * shape[1])),
                 .rows = square || !last ? quant::kFp4Block : 1,
                 .cols = square || last ? quant::kFp4Block : 1,
                 .stride_r = shape[1],
                 .stride_c = 1,
                 .count = shape[0] * shape[1]};
  quant::fp4_multipliers(
      ctx, x, {.contract = q.contract, .square = square, .amax = *q.inverse_scale.as<float>()},
      tensor::make_view(grid.data.data(), DType::f32, device::DeviceType::host, {shape[0], shape[1]}));
  return grid;
}

ScaleGrid column_scales(std::vector<float> scales, std::int64_t rows) {
  const auto count = static_cast<std::int64_t>(scales.size());
  return {.data = std::move(scales), .rows = rows, .stride_c = 1, .count = count};
}

View on_host(const Context& ctx, const View& x, std::vector<std::byte>& memory) {
  if (x.device == device::DeviceType::host) return x;
  const View whole = tensor::allocate(ctx, x.dtype, {x.shape[0], x.shape[1]}, "scratch");
  if (ctx.dry) return whole;
  ops::copy(ctx, x, whole);
  memory.resize(whole.bytes());
  device::copy_bytes(ctx, memory.data(), device::DeviceType::host, whole.data, whole.device, memory.size());
  return tensor::make_view(memory.data(), x.dtype, device::DeviceType::host, {x.shape[0], x.shape[1]});
}

GroupFigures& GroupFigures::operator+=(const GroupFigures& o) {
  nonzero += o.nonzero;
  underflowed += o.underflowed;
  saturated += o.saturated;
  signal += o.signal;
  noise += o.noise;
  amax = std::max(amax, o.amax);
  return *this;
}

Figures measure(const MeasuredCast& of) {
  const View& x = of.x;
  const Cast cast{x, of.scales, of.y};
  Figures total;
  std::vector<RowFigures> rows(static_cast<std::size_t>(x.shape[0]));
  with_format(of.format, [&]<class Grid>() {
    dtype::with_float_type(x.dtype, "measure", [&]<class T>() {
#pragma omp parallel
      {
        Exponents exponents;
#pragma omp for
        for (std::int64_t r = 0; r < x.shape[0]; ++r)
          rows[static_cast<std::size_t>(r)] = row_figures<Grid, T>(cast, r, exponents);
#pragma omp critical(fp8_inspect_exponents)
        for (std::size_t i = 0; i < total.exponents.size(); ++i) {
          total.exponents[i] += exponents.of_values[i];
          total.scaled_exponents[i] += exponents.of_scaled[i];
        }
      }
    });
  });
  std::uint32_t largest = 0, smallest = kInfinity;
  for (const RowFigures& row : rows) {
    add(total, row);
    largest = std::max(largest, row.largest);
    smallest = std::min(smallest, row.smallest);
  }
  total.elements = x.shape[0] * x.shape[1];
  total.amax = from_magnitude(largest);
  total.smallest = from_magnitude(smallest);
  dtype::with_float_type(x.dtype, "measure", [&]<class T>() { add_scales<T>(cast, total); });
  return total;
}

GroupGrid measure_groups(const MeasuredCast& of, ContractionAxis contract) {
  const View& x = of.x;
  const ScaleGrid& scales = of.scales;
  const Cast cast{x, scales, of.y};
  const Groups groups = groups_of(x, scales, contract);
  std::vector<GroupFigures> all(static_cast<std::size_t>(divide_up(x.shape[0], groups.rows) * groups.across));
  with_format(of.format, [&]<class Grid>() {
    dtype::with_float_type(x.dtype, "measure_groups", [&]<class T>() {
      for (std::int64_t r = 0; r < x.shape[0]; ++r) {
        const T* const row = cast.row<T>(r);
        const float *const of_row = cast.scale_row(r), *const y = cast.y_row(r);
        for (std::int64_t c = 0; c < x.shape[1]; ++c) {
          const float v = dtype::to_float(row[c]), scale = of_row[c / scales.cols * scales.stride_c];
          if (v == 0 || magnitude(v) >= kInfinity) continue;
          GroupFigures& g = all[static_cast<std::size_t>(r / groups.rows * groups.across + c / groups.cols)];
          const float scaled = v * scale;
          const Rounded to = rounded<Grid>(scaled, scale, y, c);
          const double value = v, error = v - to.y;
          ++g.nonzero;
          g.underflowed += to.code == 0 ? 1 : 0;
          g.saturated += std::fabs(scaled) > Limits<Grid>::kSaturated ? 1 : 0;
          g.signal += value * value;
          g.noise += error * error;
          g.amax = std::max(g.amax, std::fabs(v));
        }
      }
    });
  });
  return {std::move(all), groups.across};
}

void join(GroupGrid& before, const GroupGrid& part, PartJoin how) {
  if (part.groups.empty()) return;
  if (before.groups.empty()) {
    before = part;
    return;
  }
  std::vector<GroupFigures>& all = before.groups;
  const std::int64_t rows = std::ssize(all) / before.across;
  const bool fits =
      how == PartJoin::columns ? std::ssize(part.groups) / part.across == rows : part.across == before.across;
  if (!fits || (how == PartJoin::inside && part.groups.size() != all.size()))
    throw Error("statistics: the groups of two ranks do not fit together");
  switch (how) {
    case PartJoin::rows:
      all.insert(all.end(), part.groups.begin(), part.groups.end());
      return;
    case PartJoin::inside:
      for (std::size_t i = 0; i < all.size(); ++i) all[i] += part.groups[i];
      return;
    case PartJoin::columns:
      break;
  }
  GroupGrid both{{}, before.across + part.across};
  for (std::int64_t r = 0; r < rows; ++r)
    for (const GroupGrid* grid : {&std::as_const(before), &part}) {
      const auto begin = grid->groups.begin() + r * grid->across;
      both.groups.insert(both.groups.end(), begin, begin + grid->across);
    }
  before = std::move(both);
}

}  // namespace fp8::statistics
