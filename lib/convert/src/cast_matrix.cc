// Casts of one matrix in two passes over pieces of its rows: amaxes first, then codes and losses. Loops outside quant
// are single-threaded: the disk is slower.
#include "fp8/convert/cast_matrix.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "fp8/base/error.h"
#include "fp8/base/round.h"
#include "fp8/base/text.h"
#include "fp8/device/arena.h"
#include "fp8/dtype/convert.h"
#include "fp8/dtype/element.h"
#include "fp8/dtype/finite.h"
#include "fp8/quant/scale.h"
#include "fp8/tensor/tensor.h"

namespace fp8::convert {
namespace {

using dtype::DType;
using tensor::View;

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

View view_of(void* data, DType type, std::int64_t rows, std::int64_t cols) {
  return tensor::make_view(data, type, device::DeviceType::host, {rows, cols});
}

// Largest magnitude of each row of a piece; throws where one is not finite.
void amaxes_of_piece(const StoredMatrix& x, std::int64_t begin, const View& piece, float* amaxes) {
  const std::int64_t rows = piece.shape[0];
  quant::amax({}, piece, quant::Granularity::row, quant::ContractionAxis::last,
              tensor::make_view(amaxes, DType::f32, device::DeviceType::host, {rows}));
  const float* const bad = std::find_if(amaxes, amaxes + rows, [](float a) { return !std::isfinite(a); });
  if (bad != amaxes + rows) {
    throw Error(x.name + ": row " + std::to_string(begin + (bad - amaxes)) +
                " holds NaN or infinity, which has no FP8 code");
  }
}

// Largest magnitude of each row; throws where one is not finite.
std::vector<float> amaxes(const StoredMatrix& x) {
  std::vector<float> amax(to_size(x.rows));
  for_pieces(x, [&](std::int64_t begin, std::int64_t rows, std::span<std::byte> bytes) {
    amaxes_of_piece(x, begin, view_of(bytes.data(), x.dtype, rows, x.cols), amax.data() + begin);
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

// values[i] becomes values[i] times its factor, for rows from `first` on.
void multiply(std::span<float> values, std::int64_t first, std::int64_t cols, std::span<const float> factors,
              const FactorGrid& grid) {
  const std::int64_t rows = static_cast<std::int64_t>(values.size()) / std::max<std::int64_t>(1, cols);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* const of_row = factors.data() + (first + r) / grid.down * grid.cols;
    float* const row = values.data() + r * cols;
    for (std::int64_t begin = 0; begin < cols; begin += grid.along) {
      const float factor = of_row[begin / grid.along];
      const std::int64_t end = std::min(cols, begin + grid.along);
#pragma omp simd
      for (std::int64_t c = begin; c < end; ++c) row[c] *= factor;
    }
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

// Adds to `result` what a piece from row `begin` on loses: x as stored, and its codes.
class Losses {
 public:
  void add(const StoredMatrix& x, const CastRule& rule, std::int64_t begin, std::span<const std::byte> bytes,
           std::span<std::byte> codes, const FactorGrid& grid, CastResult& result) {
    before_.resize(codes.size());
    after_.resize(codes.size());
    dtype::to_floats(x.dtype, bytes.data(), before_);
    dtype::decode_fp8(rule.format, as_codes(codes), std::span<float>(after_));
    multiply(after_, begin, x.cols, result.inverse_scales, grid);
    add_sums(before_, after_, static_cast<std::int64_t>(codes.size()) / x.cols, result);
  }

 private:
  std::vector<float> before_, after_;
};

// One scale in all, or one per row: amaxes first.
CastResult cast_with_amaxes(const StoredMatrix& x, const CastRule& rule, const FactorGrid& grid,
                            const WriteBytes& write) {
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
  Losses losses;
  for_pieces(x, [&](std::int64_t begin, std::int64_t rows, std::span<std::byte> bytes) {
    codes.resize(to_size(rows * x.cols));
    result.counts += cast_piece(view_of(bytes.data(), x.dtype, rows, x.cols), rule.format,
                                scales_of(scales, begin, rows), view_of(codes.data(), DType::u8, rows, x.cols));
    write(codes);
    if (rule.losses) losses.add(x, rule, begin, bytes, codes, grid, result);
  });
  return result;
}

// A scale per block: the casts of training, whose codes are BF16 values, one piece of whole blocks at a time.
CastResult cast_by_blocks(const StoredMatrix& x, const CastRule& rule, const FactorGrid& grid,
                          const WriteBytes& write) {
  CastResult result;
  result.inverse_scales.resize(to_size(grid.rows * grid.cols));
  const quant::CastOptions options{.power_of_2 = rule.power_of_2, .counts = &result.counts};
  const auto cast = [&](const device::Context& ctx, const View& piece) {
    return quant::quantize(ctx, piece, {rule.format, rule.scaling}, quant::ContractionAxis::last, options);
  };
  std::optional<device::Arena> arena;
  std::vector<std::byte> codes;
  std::vector<float> amax;
  Losses losses;
  for_pieces(
      x,
      [&](std::int64_t begin, std::int64_t rows, std::span<std::byte> bytes) {
        const View piece = view_of(bytes.data(), x.dtype, rows, x.cols);
        amax.resize(to_size(rows));
        amaxes_of_piece(x, begin, piece, amax.data());
        if (!arena) {  // the first piece is the largest
          device::Arena plan;
          cast({.arena = &plan, .dry = true}, piece);
          arena.emplace(plan.peak(), device::DeviceType::host);
        }
        const device::Context ctx{.arena = &*arena};
        const device::Scope scope(*arena);
        const quant::Quantized q = cast(ctx, piece);
        for (std::int64_t r = 0; r < q.inverse_scale.shape[0]; ++r)
          for (std::int64_t c = 0; c < grid.cols; ++c)
            result.inverse_scales[to_size((begin / grid.down + r) * grid.cols + c)] =
                q.inverse_scale.as<float>()[r * q.inverse_scale.stride[0] + c * q.inverse_scale.stride[1]];
        codes.resize(to_size(rows * x.cols));
        const float one = 1;
        quant::cast_to_bytes({}, q.codes, rule.format, &one, view_of(codes.data(), DType::u8, rows, x.cols), nullptr);
        write(codes);
        if (rule.losses) losses.add(x, rule, begin, bytes, codes, grid, result);
      },
      grid.down);
  return result;
}

}  // namespace

FactorGrid factor_grid(quant::Granularity scaling, std::int64_t rows, std::int64_t cols) {
  const quant::BlockExtent block = quant::block_extent(scaling);
  const auto most = [](std::int64_t n) { return std::max<std::int64_t>(1, n); };
  if (scaling == quant::Granularity::tensor) return {1, 1, most(rows), most(cols)};
  if (block.along == 0) return {rows, 1, 1, most(cols)};
  return {divide_up(rows, block.across), divide_up(cols, block.along), block.across, block.along};
}

std::optional<quant::Granularity> find_granularity(DType type, const std::vector<std::int64_t>& scales,
                                                   const std::vector<std::int64_t>& weight) {
  using quant::Granularity;
  if (weight.size() != 2) return std::nullopt;
  for (const Granularity scaling :
       {Granularity::tensor, Granularity::row, Granularity::block128x128, Granularity::block1x32}) {
    const FactorGrid grid = factor_grid(scaling, weight[0], weight[1]);
    std::vector<std::int64_t> shape{grid.rows};
    if (quant::block_extent(scaling).along > 0) shape.push_back(grid.cols);
    if (type == (scaling == Granularity::block1x32 ? DType::e8m0 : DType::f32) && scales == shape) return scaling;
  }
  return std::nullopt;
}

std::optional<FactorGrid> find_grid(DType type, const std::vector<std::int64_t>& scales,
                                    const std::vector<std::int64_t>& weight) {
  const std::optional<quant::Granularity> scaling = find_granularity(type, scales, weight);
  if (!scaling) return std::nullopt;
  return factor_grid(*scaling, weight[0], weight[1]);
}

void multiply_rows(const std::string& name, std::span<float> values, std::int64_t first, std::int64_t cols,
                   std::span<const float> factors, const FactorGrid& grid) {
  multiply(values, first, cols, factors, grid);
  const auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (bad == values.end()) return;
  throw Error(name + ": row " + std::to_string(first + (bad - values.begin()) / cols) +
              " is not finite after multiplication by the scale");
}

void store_rows(const std::string& name, std::span<const float> values, std::int64_t first, std::int64_t cols,
                DType type, std::span<std::byte> out) {
  dtype::from_floats(values, type, out.data());
  if (type != DType::bf16 || dtype::all_finite(type, out)) return;
  const auto bad = std::find_if(values.begin(), values.end(), [](float v) {
    return std::isfinite(v) && !std::isfinite(dtype::to_float(dtype::to_bf16(v)));
  });
  if (bad == values.end()) return;
  throw Error(name + ": row " + std::to_string(first + (bad - values.begin()) / cols) + ": " +
              format_short(static_cast<double>(*bad), 6) + " is not finite in bf16");
}

CastResult cast_matrix(const StoredMatrix& x, const CastRule& rule, const WriteBytes& write) {
  const FactorGrid grid = factor_grid(rule.scaling, x.rows, x.cols);
  const bool blocks = quant::block_extent(rule.scaling).along > 0;
  return blocks ? cast_by_blocks(x, rule, grid, write) : cast_with_amaxes(x, rule, grid, write);
}

void uncast_matrix(const StoredMatrix& codes, std::span<const float> factors, const FactorGrid& grid, dtype::DType type,
                   const WriteBytes& write) {
  std::vector<float> values;
  std::vector<std::byte> out;
  for_pieces(codes, [&](std::int64_t begin, std::int64_t, std::span<std::byte> bytes) {
    values.resize(bytes.size());
    dtype::decode_fp8(codes.dtype, as_codes(bytes), std::span<float>(values));
    multiply_rows(codes.name, values, begin, codes.cols, factors, grid);
    out.resize(values.size() * dtype::size_of(type));
    store_rows(codes.name, values, begin, codes.cols, type, out);
    write(out);
  });
}

}  // namespace fp8::convert
