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
#include "fp8/dtype/e2m1.h"
#include "fp8/dtype/element.h"
#include "fp8/dtype/finite.h"
#include "fp8/quant/fp4.h"
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
                " holds NaN or infinity, which has no code");
  }
}

// Stores factors of FP8 codes.
void store_scales(const CastRule& rule, const StoredMatrix& x, CastResult& result) {
  StoredScales& to = result.scales;
  to.dtype = scale_type(rule.scaling);
  to.shape = scales_shape(rule.scaling, x.rows, x.cols);
  if (to.dtype == DType::f32) {
    const auto bytes = std::as_bytes(std::span(result.inverse_scales));
    to.bytes.assign(bytes.begin(), bytes.end());
  } else {
    for (const float f : result.inverse_scales) to.bytes.push_back(std::byte{dtype::to_e8m0_round_up(f)});  // exact
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

// Adds to `result` what a piece from row `begin` on loses: x as stored, and its codes.
class Losses {
 public:
  void add(const StoredMatrix& x, const CastRule& rule, std::int64_t begin, std::span<const std::byte> bytes,
           std::span<const std::byte> codes, const FactorGrid& grid, CastResult& result) {
    const std::size_t of_row = to_size(x.cols) * dtype::size_of(x.dtype);
    const auto rows = static_cast<std::int64_t>(bytes.size() / of_row),
               step = std::max<std::int64_t>(1, kElements / x.cols);
    const std::size_t codes_of_row = codes.size() / to_size(rows);
    for (std::int64_t r = 0; r < rows; r += step) {
      const std::int64_t n = std::min(step, rows - r);
      before_.resize(to_size(n * x.cols));
      after_.resize(before_.size());
      dtype::to_floats(x.dtype, bytes.data() + to_size(r) * of_row, before_);
      dtype::to_floats(rule.format, codes.data() + to_size(r) * codes_of_row, after_);
      multiply(after_, begin + r, x.cols, result.inverse_scales, grid);
      add_sums(before_, after_, n, result);
    }
  }

 private:
  static constexpr std::int64_t kElements = std::int64_t{1} << 20;  // at a time, unless a row has more
  std::vector<float> before_, after_;
};

// One scale in all, or one per row: amaxes first.
CastResult cast_with_amaxes(const StoredMatrix& x, const CastRule& rule, const FactorGrid& grid,
                            const WriteBytes& write) {
  std::vector<float> scales = rule.scaling == quant::Granularity::tensor ? std::vector<float>{amax_of(x)} : amaxes(x);
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

// Adds the counts of a piece from row `begin` on, by its codes, one in each byte.
void count(std::span<const float> x, std::span<const std::uint8_t> codes, std::int64_t begin, std::int64_t cols,
           const FactorGrid& grid, CastResult& result) {
  constexpr float kHalfway = 7;  // from the largest magnitude to the next one, if there were more
  std::int64_t saturated = 0, underflowed = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto r = begin + static_cast<std::int64_t>(i) / cols, c = static_cast<std::int64_t>(i) % cols;
    const float factor = result.inverse_scales[to_size(r / grid.down * grid.cols + c / grid.along)];
    saturated += std::abs(x[i]) > kHalfway * factor ? 1 : 0;
    underflowed += x[i] != 0 && (codes[i] & 7U) == 0 ? 1 : 0;
  }
  result.counts += {.elements = std::ssize(codes), .saturated = saturated, .underflowed = underflowed};
}

// FP4 casts of pieces of a matrix under its amax, in buffers that all pieces use.
class Fp4Pieces {
 public:
  Fp4Pieces(const StoredMatrix& x, const FactorGrid& grid, float amax) : x_(x), grid_(grid), amax_(amax) {}

  // Casts a piece and adds the scales of its blocks to `result`.
  void cast(std::int64_t rows, std::span<std::byte> bytes, CastResult& result) {
    const std::int64_t blocks = divide_up(rows, grid_.down);
    codes_.resize(to_size(rows * x_.cols));
    scales_.resize(to_size(blocks * grid_.cols));
    quant::cast_to_fp4({}, view_of(bytes.data(), x_.dtype, rows, x_.cols), {.square = true, .amax = amax_},
                       view_of(codes_.data(), DType::u8, rows, x_.cols),
                       view_of(scales_.data(), DType::u8, blocks, grid_.cols));
    const auto stored = std::as_bytes(std::span(scales_));
    result.scales.bytes.insert(result.scales.bytes.end(), stored.begin(), stored.end());
    values_.resize(scales_.size());
    dtype::to_floats(result.scales.dtype, scales_.data(), values_);
    for (const float v : values_) result.inverse_scales.push_back(v / dtype::fp4_scale(amax_));
  }

  // The codes of the last piece, two in a byte.
  std::span<const std::byte> packed() {
    packed_.resize(codes_.size() / to_size(dtype::packed(DType::e2m1)));
    dtype::pack_e2m1(codes_, packed_);
    return std::as_bytes(std::span(packed_));
  }

  // Adds the counts of the last piece, which begins at row `begin` of the matrix.
  void add_counts(std::int64_t begin, std::span<const std::byte> bytes, CastResult& result) {
    values_.resize(to_size(x_.cols));
    const std::size_t of_row = values_.size() * dtype::size_of(x_.dtype);
    for (std::size_t r = 0; r * values_.size() < codes_.size(); ++r) {
      dtype::to_floats(x_.dtype, bytes.data() + r * of_row, values_);
      count(values_, std::span(codes_).subspan(r * values_.size(), values_.size()),
            begin + static_cast<std::int64_t>(r), x_.cols, grid_, result);
    }
  }

 private:
  const StoredMatrix& x_;
  const FactorGrid& grid_;
  float amax_;
  std::vector<std::uint8_t> codes_, scales_, packed_;  // codes: one in each byte
  std::vector<float> values_;
};

// E4M3 scales of blocks under the amax of the rule or of the matrix.
CastResult cast_to_nvfp4(const StoredMatrix& x, const CastRule& rule, const FactorGrid& grid, const WriteBytes& write) {
  const float found = rule.amax ? *rule.amax : amax_of(x);
  const float amax = found > 0 ? std::max(found, kLeastFp4Amax) : found;
  CastResult result;
  result.scales = {
      .dtype = scale_type(rule.scaling), .shape = scales_shape(rule.scaling, x.rows, x.cols), .amax = amax};
  Fp4Pieces pieces(x, grid, amax);
  Losses losses;
  for_pieces(
      x,
      [&](std::int64_t begin, std::int64_t rows, std::span<std::byte> bytes) {
        pieces.cast(rows, bytes, result);
        const std::span<const std::byte> codes = pieces.packed();
        write(codes);
        pieces.add_counts(begin, bytes, result);
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

DType scale_type(quant::Granularity scaling) {
  using quant::Granularity;
  if (scaling == Granularity::block1x32) return DType::e8m0;
  return scaling == Granularity::block16x16 || scaling == Granularity::block1x16 ? DType::e4m3 : DType::f32;
}

std::vector<std::int64_t> scales_shape(quant::Granularity scaling, std::int64_t rows, std::int64_t cols) {
  const FactorGrid grid = factor_grid(scaling, rows, cols);
  if (quant::block_extent(scaling).along > 0) return {grid.rows, grid.cols};
  return {grid.rows};
}

std::vector<float> StoredScales::factors(const std::string& name, DType codes) const {
  std::vector<float> values(bytes.size() / dtype::size_of(dtype));
  dtype::to_floats(dtype, bytes.data(), values);
  if (const std::string bad = dtype::bad_scale(values, codes); !bad.empty()) throw Error(name + ": " + bad);
  if (dtype != DType::e4m3) return values;
  if (!std::isfinite(amax) || amax < 0)
    throw Error(name + ": the amax of its tensor is " + format_short(static_cast<double>(amax), 6));
  const float scale = dtype::fp4_scale(amax);
  for (float& v : values) v /= scale;
  return values;
}

std::optional<quant::Granularity> find_granularity(DType type, const std::vector<std::int64_t>& scales,
                                                   const std::vector<std::int64_t>& weight) {
  using quant::Granularity;
  if (weight.size() != 2) return std::nullopt;
  for (const Granularity scaling : {Granularity::tensor, Granularity::row, Granularity::block128x128,
                                    Granularity::block1x32, Granularity::block16x16, Granularity::block1x16})
    if (type == scale_type(scaling) && scales == scales_shape(scaling, weight[0], weight[1])) return scaling;
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

float amax_of(const StoredMatrix& x) {
  const std::vector<float> of_rows = amaxes(x);
  return of_rows.empty() ? 0.0F : *std::max_element(of_rows.begin(), of_rows.end());
}

CastResult cast_matrix(const StoredMatrix& x, const CastRule& rule, const WriteBytes& write) {
  const FactorGrid grid = factor_grid(rule.scaling, x.rows, x.cols);
  if (rule.scaling == quant::Granularity::block16x16) return cast_to_nvfp4(x, rule, grid, write);
  const bool blocks = quant::block_extent(rule.scaling).along > 0;
  CastResult result = blocks ? cast_by_blocks(x, rule, grid, write) : cast_with_amaxes(x, rule, grid, write);
  store_scales(rule, x, result);
  return result;
}

void uncast_matrix(const StoredMatrix& codes, std::span<const float> factors, const FactorGrid& grid, dtype::DType type,
                   const WriteBytes& write) {
  std::vector<float> values;
  std::vector<std::byte> out;
  for_pieces(codes, [&](std::int64_t begin, std::int64_t, std::span<std::byte> bytes) {
    values.resize(bytes.size() / dtype::size_of(codes.dtype) * to_size(dtype::packed(codes.dtype)));
    dtype::to_floats(codes.dtype, bytes.data(), values);
    multiply_rows(codes.name, values, begin, codes.cols, factors, grid);
    out.resize(values.size() * dtype::size_of(type));
    store_rows(codes.name, values, begin, codes.cols, type, out);
    write(out);
  });
}

}  // namespace fp8::convert
