// Checks the arguments of NVFP4 casts, then runs the loops of fp4.isa.cc over rows or over strips of 16 rows, in
// parallel.
#include "fp8/quant/fp4.h"

#include <algorithm>
#include <vector>

#include "fp4_cast.h"
#include "fp4_kernels.h"
#include "fp8/device/profile.h"
#include "fp8/dtype/dispatch.h"
#include "fp8/dtype/e2m1.h"
#include "matrix.h"
#include "split.h"

namespace fp8::quant {
namespace {

using dtype::DType;

constexpr std::string_view kCategory = "fp8 codes";

Fp4Scales scales_of(float amax) {
  const float scale = dtype::fp4_scale(amax);
  return {.sixth = scale * (1.0f / 6.0f), .inverse = 1.0f / scale};
}

// Whether x can be read row by row on the host.
void require_rows(const Context& ctx, const View& x, const std::string& what) {
  require_matrix(ctx, x, what.c_str());
  if (on_device(ctx)) throw Error(what + ": not available on a GPU");
  if (!unit_columns(x)) throw Error(what + ": rows have no unit stride");
}

void require_shape(const View& v, DType type, const std::array<std::int64_t, 2>& wanted, const std::string& what) {
  if (v.dtype != type || v.rank != 2 || v.shape[0] != wanted[0] || v.shape[1] != wanted[1] || !v.contiguous())
    throw Error("cast_to_fp4: " + what + " is not a contiguous matrix of " + std::to_string(wanted[0]) + " x " +
                std::to_string(wanted[1]));
}

// Random bits of the elements of a matrix: none, given ones, or those of their place in the global batch.
struct RandomSource {
  View given;                  // u8 [rows, cols], or empty
  const RandomBits* by_place;  // or null
  std::int64_t first_column;   // column 0 in a matrix of `columns` columns
  std::int64_t columns;
};

// What the lines of one thread need, allocated once.
template <class T>
struct Scratch {
  std::vector<Magnitude<T>> largest;                           // of columns, or of blocks
  std::vector<float> amax, multiplier, scale;                  // of blocks
  std::vector<float> multiplier_of_element, scale_of_element;  // of a row
  std::vector<std::uint8_t> random;
};

// One cast of a matrix, with one block scale for each 16 elements of a row, or of a column, or for 16 x 16, to codes
// and scales, or to values.
template <class T>
struct MatrixCast {
  const View& x;
  ContractionAxis contract;
  bool square;
  Fp4Scales of_tensor;
  RandomSource random;
  View codes, scales;  // u8, or empty
  View values;         // bf16, or empty
  View multipliers{};  // f32, or empty: then nothing else is written

  const T* row(std::int64_t r) const { return x.as<T>() + r * x.stride[0]; }
  std::int64_t cols() const { return x.shape[1]; }
  bool by_row() const { return contract == ContractionAxis::last && !square; }
  bool by_column() const { return !by_row() && !square; }
  std::int64_t lines() const { return by_row() ? x.shape[0] : divide_up(x.shape[0], kFp4Block); }

  RowCounts cast_row(std::int64_t r, const Fp4Factors& factors, const std::uint8_t* bits) const {
    if (!values.empty()) return fp4_loops<T>().values(row(r), factors, bits, values.as<Bf16>() + r * cols(), cols());
    fp4_loops<T>().codes(row(r), factors, bits, codes.as<std::uint8_t>() + r * cols(), cols());
    return {};
  }

  // Factors of the elements of a row in the line whose blocks have the largest magnitudes of `s`.
  Fp4Factors factors_of(std::int64_t line, Scratch<T>& s) const {
    const std::size_t n = s.largest.size();
    s.amax.resize(n), s.multiplier.resize(n), s.scale.resize(n);
    std::ranges::transform(s.largest, s.amax.begin(), [](Magnitude<T> bits) { return from_magnitude(bits); });
    fp4_kernels().factors(s.amax.data(), of_tensor, {s.multiplier.data(), s.scale.data()},
                          static_cast<std::int64_t>(n));
    if (!multipliers.empty()) std::ranges::copy(s.multiplier, multipliers.as<float>() + line * multipliers.shape[1]);
    if (!scales.empty())
      std::ranges::transform(s.scale, scales.as<std::uint8_t>() + line * scales.shape[1], [](float scale) {
        return static_cast<std::uint8_t>(dtype::code_bits<dtype::E4m3Grid>(scale));
      });
    if (by_column()) return {s.multiplier.data(), s.scale.data()};
    s.multiplier_of_element.resize(n * kFp4Block), s.scale_of_element.resize(n * kFp4Block);
    for (std::size_t b = 0; b < n; ++b) {
      std::fill_n(s.multiplier_of_element.data() + b * kFp4Block, kFp4Block, s.multiplier[b]);
      std::fill_n(s.scale_of_element.data() + b * kFp4Block, kFp4Block, s.scale[b]);
    }
    return {s.multiplier_of_element.data(), s.scale_of_element.data()};
  }

  // Random bits of one row, or of the rows of a strip, [rows, cols]; null for rounding to nearest.
  const std::uint8_t* bits_of(std::int64_t line, Scratch<T>& s) const {
    const std::int64_t begin = by_row() ? line : line * kFp4Block;
    if (!random.given.empty()) return random.given.as<std::uint8_t>() + begin * cols();
    if (random.by_place == nullptr) return nullptr;
    const RandomBits& at = *random.by_place;
    s.random.resize(static_cast<std::size_t>(by_row() ? cols() : kFp4Block * cols()));
    if (by_row()) {
      const std::int64_t first = ((at.first_row + line) * random.columns + random.first_column) / kFp4Block;
      fp4_kernels().random_row({at.seed, at.stream, static_cast<std::uint64_t>(first), 1}, cols() / kFp4Block,
                               s.random.data());
      return s.random.data();
    }
    const std::int64_t sixteen = at.first_row / kFp4Block,
                       sixteens = std::max(divide_up(at.rows, kFp4Block), sixteen + lines());
    fp4_kernels().random_columns(
        {at.seed, at.stream + 1, static_cast<std::uint64_t>(random.first_column * sixteens + sixteen + line),
         static_cast<std::uint64_t>(sixteens)},
        cols(), s.random.data());
    return s.random.data();
  }

  // The largest magnitudes of the blocks of rows [begin, end), a line, become those of `s`.
  void measure(std::int64_t begin, std::int64_t end, Scratch<T>& s) const {
    const std::int64_t blocks = cols() / kFp4Block;
    if (by_row()) {
      s.largest.resize(static_cast<std::size_t>(blocks));
      return row_loops<T>().amax_of_blocks(row(begin), kFp4Block, s.largest.data(), cols());
    }
    s.largest.assign(static_cast<std::size_t>(cols()), 0);
    for (std::int64_t r = begin; r < end; ++r) amax_into(row(r), s.largest.data(), cols());
    if (!square) return;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const auto first = s.largest.begin() + b * kFp4Block;
      s.largest[static_cast<std::size_t>(b)] = *std::max_element(first, first + kFp4Block);
    }
    s.largest.resize(static_cast<std::size_t>(blocks));
  }

  RowCounts cast_line(std::int64_t line, Scratch<T>& s) const {
    const std::int64_t rows = by_row() ? 1 : kFp4Block, begin = line * rows, end = std::min(begin + rows, x.shape[0]);
    measure(begin, end, s);
    const Fp4Factors factors = factors_of(line, s);
    if (!multipliers.empty()) return {};
    const std::uint8_t* const bits = bits_of(line, s);
    RowCounts counts;
    for (std::int64_t r = begin; r < end; ++r)
      counts += cast_row(r, factors, bits == nullptr ? nullptr : bits + (r - begin) * cols());
    return counts;
  }

  CastCounts run() const {
    std::int64_t saturated = 0, underflowed = 0;
#pragma omp parallel reduction(+ : saturated, underflowed) if (x.size() >= kParallelElements)
    {
      Scratch<T> scratch;
#pragma omp for
      for (std::int64_t i = 0; i < lines(); ++i) {
        const RowCounts counts = cast_line(i, scratch);
        saturated += counts.saturated;
        underflowed += counts.underflowed;
      }
    }
    return {.elements = x.size(), .saturated = saturated, .underflowed = underflowed};
  }
};

void require_columns(std::int64_t cols, ContractionAxis contract, bool square) {
  if ((contract == ContractionAxis::last || square) && cols % kFp4Block != 0)
    throw Error("cast_to_fp4: " + std::to_string(cols) + " columns are no multiple of 16");
}

void require_cast(const Context& ctx, const View& x, const Fp4Cast& cast, const View& scales, DType type) {
  require_rows(ctx, x, "cast_to_fp4");
  require_columns(x.shape[1], cast.contract, cast.square);
  require_shape(scales, type, fp4_scales(x.shape[0], x.shape[1], cast.contract, cast.square), "the memory of scales");
}

// hadamard_transform(); returns the largest magnitude of the result, 0 in a dry context.
float transform(const Context& ctx, const View& x, const View& out) {
  require_rows(ctx, x, "hadamard_transform");
  const std::int64_t rows = x.shape[0], cols = x.shape[1], strips = divide_up(rows, kFp4Block);
  require_shape(out, DType::bf16, {strips * kFp4Block, cols}, "the result of the transform");
  const device::Timer timer(ctx, device::Work::cast, "Hadamard transform", tensor::bytes_of(x, out));
  Magnitude<Bf16> largest = 0;
  if (ctx.dry) return 0;
  dtype::with_float_type(x.dtype, "hadamard_transform", [&]<class T>() {
#pragma omp parallel for reduction(max : largest) if (x.size() >= kParallelElements)
    for (std::int64_t s = 0; s < strips; ++s) {
      const std::int64_t begin = s * kFp4Block;
      largest = std::max(
          largest, fp4_loops<T>().hadamard(x.as<T>() + begin * x.stride[0], x.stride[0],
                                           std::min(kFp4Block, rows - begin), cols, out.as<Bf16>() + begin * cols));
    }
  });
  return from_magnitude(largest);
}

}  // namespace

float fp4_alpha(float amax_a, float amax_b) { return (amax_a * amax_b) * dtype::kFp4Alpha; }

std::array<std::int64_t, 2> fp4_scales(std::int64_t rows, std::int64_t cols, ContractionAxis contract, bool square) {
  const bool by_row = contract == ContractionAxis::last && !square, by_column = !by_row && !square;
  return {by_row ? rows : divide_up(rows, kFp4Block), by_column ? cols : cols / kFp4Block};
}

void cast_to_fp4(const Context& ctx, const View& x, const Fp4Cast& cast, const View& codes, const View& scales) {
  require_cast(ctx, x, cast, scales, DType::u8);
  const std::int64_t rows = x.shape[0], cols = x.shape[1];
  require_shape(codes, DType::u8, {rows, cols}, "the memory of codes");
  if (!cast.random.empty()) require_shape(cast.random, DType::u8, {rows, cols}, "the matrix of random bits");
  const device::Timer timer(ctx, device::Work::cast, "cast to FP4", 2 * tensor::bytes_of(x) + tensor::bytes_of(codes));
  if (ctx.dry) return;
  dtype::with_float_type(x.dtype, "cast_to_fp4", [&]<class T>() {
    const RandomSource random{cast.random, nullptr, 0, 0};
    MatrixCast<T>{x, cast.contract, cast.square, scales_of(cast.amax), random, codes, scales, {}}.run();
  });
}

void fp4_multipliers(const Context& ctx, const View& x, const Fp4Cast& cast, const View& out) {
  require_cast(ctx, x, cast, out, DType::f32);
  if (ctx.dry) return;
  dtype::with_float_type(x.dtype, "fp4_multipliers", [&]<class T>() {
    MatrixCast<T>{x, cast.contract, cast.square, scales_of(cast.amax), {}, {}, {}, {}, out}.run();
  });
}

Quantized quantize_fp4(const Context& ctx, const View& x, const Cast& cast, ContractionAxis contract,
                       const CastOptions& options) {
  const bool square = cast.granularity == Granularity::block16x16, last = contract == ContractionAxis::last;
  if (on_device(ctx))
    return last ? plan_fp4(ctx, x, {.last = cast, .first = {}}, options).last
                : plan_fp4(ctx, x, {.last = {}, .first = cast}, options).first;
  require_rows(ctx, x, "quantize");
  const std::int64_t rows = x.shape[0], cols = x.shape[1];
  require_columns(cols, contract, square);
  if (cast.hadamard && last) throw Error("quantize: the Hadamard transform is along rows, which are not contracted");
  const Split& split = options.split;
  Quantized q{
      .codes = tensor::allocate(ctx, DType::bf16, {cast.hadamard ? round_up(rows, kFp4Block) : rows, cols}, kCategory),
      .format = cast.format,
      .granularity = cast.granularity,
      .contract = contract,
      .scale = {},
      .inverse_scale = tensor::allocate(ctx, DType::f32, {1}, kCategory)};
  const View& from = cast.hadamard ? q.codes : x;
  if (!cast.hadamard)
    amax(ctx, from, Granularity::tensor, ContractionAxis::last, q.inverse_scale);
  else if (const float largest = transform(ctx, x, q.codes); !ctx.dry)
    *q.inverse_scale.as<float>() = largest;
  if (split.ranks != nullptr) reduce(ctx, split, q.inverse_scale);
  const device::Timer timer(ctx, device::Work::cast, "cast to FP4", tensor::bytes_of(from, q.codes));
  if (ctx.dry) return q;
  const bool columns_of_whole = split.ranks != nullptr && split.axis == 1;
  const RandomSource random{View{}, cast.stochastic ? &options.random : nullptr, columns_of_whole ? split.begin : 0,
                            columns_of_whole ? split.whole : cols};
  CastCounts counts;
  dtype::with_float_type(from.dtype, "quantize", [&]<class T>() {
    counts =
        MatrixCast<T>{from, contract, square, scales_of(*q.inverse_scale.as<float>()), random, {}, {}, q.codes}.run();
  });
  if (options.counts != nullptr) *options.counts += counts;
  return q;
}

void hadamard_transform(const Context& ctx, const View& x, const View& out) { (void)transform(ctx, x, out); }

}  // namespace fp8::quant
