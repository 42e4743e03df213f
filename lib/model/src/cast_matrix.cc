// Casts of one matrix in two passes over pieces of its rows: amaxes first, then codes and losses. Loops outside quant
// are single-threaded: the disk is slower.
#include "cast_matrix.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/error.h"
#include "fp8/dtype/convert.h"
#include "fp8/quant/scale.h"
#include "fp8/tensor/tensor.h"

namespace fp8::model {
namespace {

using dtype::DType;
using tensor::View;

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

View view_of(void* data, DType type, std::int64_t rows, std::int64_t cols) {
  return tensor::make_view(data, type, device::DeviceType::host, {rows, cols});
}

// Largest magnitude of each row; throws where one is not finite.
std::vector<float> amaxes(const StoredMatrix& x) {
  std::vector<float> amax(to_size(x.rows));
  for_pieces(x, [&](std::int64_t begin, std::int64_t rows, std::span<std::byte> bytes) {
    float* const of_piece = amax.data() + begin;
    quant::amax({}, view_of(bytes.data(), x.dtype, rows, x.cols), quant::Granularity::row, quant::ContractionAxis::last,
                tensor::make_view(of_piece, DType::f32, device::DeviceType::host, {rows}));
    const float* const bad = std::find_if(of_piece, of_piece + rows, [](float a) { return !std::isfinite(a); });
    if (bad != of_piece + rows) {
      throw Error(x.name + ": row " + std::to_string(begin + (bad - of_piece)) +
                  " holds NaN or infinity, which has no FP8 code");
    }
  });
  return amax;
}

// Codes of a piece, with one scale or one per row.
quant::CastCounts cast_piece(const View& x, DType format, std::span<const float> scales, const View& codes) {
  quant::CastCounts counts;
  if (scales.size() == 1) {
    quant::cast_to_bytes({}, x, format, scales.data(), codes, &counts);
    return counts;
  }
  for (std::int64_t r = 0; r < x.shape[0]; ++r) {
    quant::cast_to_bytes({}, x.rows(r, r + 1), format, &scales[to_size(r)], codes.rows(r, r + 1), &counts);
  }
  return counts;
}

// values[i] becomes values[i] times the inverse scale of its row.
void scale_rows(std::span<float> values, std::int64_t rows, std::span<const float> inverse) {
  const std::int64_t cols = static_cast<std::int64_t>(values.size()) / rows;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float scale = inverse[inverse.size() == 1 ? 0 : to_size(r)];
    float* const row = values.data() + r * cols;
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) row[c] *= scale;
  }
}

// Adds the sums of a piece: x before the cast, y after it.
void add_sums(std::span<const float> x, std::span<const float> y, std::int64_t rows, CastResult& result) {
  const std::int64_t cols = static_cast<std::int64_t>(x.size()) / rows;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* const a = x.data() + r * cols;
    const float* const b = y.data() + r * cols;
    double signal = 0, noise = 0;
#pragma omp simd reduction(+ : signal, noise)
    for (std::int64_t c = 0; c < cols; ++c) {
      const double v = static_cast<double>(a[c]), d = v - static_cast<double>(b[c]);
      signal += v * v;
      noise += d * d;
    }
    result.signal += signal;
    result.noise += noise;
  }
}

// The scales of rows [begin, begin + rows): the single one, or one per row.
std::span<const float> scales_of(std::span<const float> scales, std::int64_t begin, std::int64_t rows) {
  return scales.size() == 1 ? scales : scales.subspan(to_size(begin), to_size(rows));
}

std::span<const std::uint8_t> as_codes(const std::span<std::byte> bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace

CastResult cast_matrix(const StoredMatrix& x, const CastRule& rule, const WriteBytes& write) {
  std::vector<float> scales = amaxes(x);
  if (rule.scaling == quant::Granularity::tensor) {
    scales = {scales.empty() ? 0.0F : *std::max_element(scales.begin(), scales.end())};
  }
  CastResult result;
  for (float& s : scales) {
    s = quant::scale_from_amax(s, dtype::max_of(rule.format), rule.power_of_2);
    result.inverse_scales.push_back(1.0F / s);
  }
  std::vector<std::byte> codes;
  std::vector<float> before, after;
  for_pieces(x, [&](std::int64_t begin, std::int64_t rows, std::span<std::byte> bytes) {
    codes.resize(to_size(rows * x.cols));
    result.counts += cast_piece(view_of(bytes.data(), x.dtype, rows, x.cols), rule.format,
                                scales_of(scales, begin, rows), view_of(codes.data(), DType::u8, rows, x.cols));
    write(codes);
    before.resize(codes.size());
    after.resize(codes.size());
    dtype::to_floats(x.dtype, bytes.data(), before);
    dtype::decode_fp8(rule.format, as_codes(codes), std::span<float>(after));
    scale_rows(after, rows, scales_of(result.inverse_scales, begin, rows));
    add_sums(before, after, rows, result);
  });
  return result;
}

void uncast_matrix(const StoredMatrix& codes, std::span<const float> inverse_scales, dtype::DType type,
                   const WriteBytes& write) {
  std::vector<float> values;
  std::vector<std::byte> out;
  for_pieces(codes, [&](std::int64_t begin, std::int64_t rows, std::span<std::byte> bytes) {
    values.resize(bytes.size());
    dtype::decode_fp8(codes.dtype, as_codes(bytes), std::span<float>(values));
    scale_rows(values, rows, scales_of(inverse_scales, begin, rows));
    const auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
    if (bad != values.end()) {
      throw Error(codes.name + ": row " + std::to_string(begin + (bad - values.begin()) / codes.cols) +
                  " is not finite after multiplication by the scale");
    }
    out.resize(values.size() * dtype::size_of(type));
    dtype::from_floats(values, type, out.data());
    write(out);
  });
}

}  // namespace fp8::model
