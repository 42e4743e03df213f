// Checks the arguments of NVFP4 casts, then runs the loops of fp4.isa.cc over rows or over strips of 16 rows, in
// parallel.
#include "fp8/quant/fp4.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "fp4_kernels.h"
#include "fp8/device/profile.h"
#include "fp8/dtype/dispatch.h"
#include "matrix.h"

namespace fp8::quant {
namespace {

constexpr float kE4m3Max = 448.0f, kRange = 6.0f * kE4m3Max;

Fp4Scales scales_of(float amax) {
  constexpr float kMost = std::numeric_limits<float>::max();
  float scale = kRange / amax;
  if (scale > kMost) scale = kMost;
  if (amax == 0 || scale == 0) scale = 1;
  return {.sixth = scale * (1.0f / 6.0f), .inverse = 1.0f / scale};
}

// Whether x can be read row by row on the host.
void require_rows(const Context& ctx, const View& x, const std::string& what) {
  require_matrix(ctx, x, what.c_str());
  if (on_device(ctx)) throw Error(what + ": not available on a GPU");
  if (!unit_columns(x)) throw Error(what + ": rows have no unit stride");
}

void require_shape(const View& v, dtype::DType type, std::int64_t rows, std::int64_t cols, const std::string& what) {
  if (v.dtype != type || v.rank != 2 || v.shape[0] != rows || v.shape[1] != cols || !v.contiguous())
    throw Error("cast_to_fp4: " + what + " is not a contiguous matrix of " + std::to_string(rows) + " x " +
                std::to_string(cols));
}

// One strip of a matrix, cast with one scale for each 16 elements of a row, or of a column, or for 16 x 16.
template <class T>
struct StripCast {
  const View& x;
  const Fp4Cast& cast;
  const View &codes, &scales;
  Fp4Scales of_tensor;

  const T* row(std::int64_t r) const { return x.as<T>() + r * x.stride[0]; }
  std::int64_t cols() const { return x.shape[1]; }
  std::uint8_t* scales_of_line(std::int64_t line) const { return scales.as<std::uint8_t>() + line * scales.shape[1]; }

  void cast_row(std::int64_t r, const std::vector<float>& multiplier, bool by_column) const {
    const std::uint8_t* const random = cast.random.empty() ? nullptr : cast.random.as<std::uint8_t>() + r * cols();
    const Fp4Loops<T>& loops = fp4_loops<T>();
    (by_column ? loops.columns : loops.blocks)(row(r), multiplier.data(), random, codes.as<std::uint8_t>() + r * cols(),
                                               cols());
  }

  // Multipliers of the blocks with these amaxes, whose scales go to a line of `scales`.
  template <class M>
  std::vector<float> multipliers(const std::vector<M>& largest, std::int64_t line) const {
    std::vector<float> amax(largest.size()), multiplier(largest.size());
    std::transform(largest.begin(), largest.end(), amax.begin(), [](M bits) { return from_magnitude(bits); });
    fp4_kernels().factors(amax.data(), of_tensor, {scales_of_line(line), multiplier.data()},
                          static_cast<std::int64_t>(amax.size()));
    return multiplier;
  }

  void one_row(std::int64_t r) const {
    std::vector<Magnitude<T>> largest(static_cast<std::size_t>(cols() / kFp4Block));
    row_loops<T>().amax_of_blocks(row(r), kFp4Block, largest.data(), cols());
    cast_row(r, multipliers(largest, r), false);
  }

  void strip(std::int64_t s) const {
    const std::int64_t begin = s * kFp4Block, end = std::min(begin + kFp4Block, x.shape[0]);
    std::vector<Magnitude<T>> largest(static_cast<std::size_t>(cols()));
    for (std::int64_t r = begin; r < end; ++r) amax_into(row(r), largest.data(), cols());
    if (cast.square) {
      for (std::int64_t b = 0; b < cols() / kFp4Block; ++b) {
        const auto first = largest.begin() + b * kFp4Block;
        largest[static_cast<std::size_t>(b)] = *std::max_element(first, first + kFp4Block);
      }
      largest.resize(static_cast<std::size_t>(cols() / kFp4Block));
    }
    const std::vector<float> multiplier = multipliers(largest, s);
    for (std::int64_t r = begin; r < end; ++r) cast_row(r, multiplier, !cast.square);
  }
};

}  // namespace

float fp4_alpha(float amax_a, float amax_b) { return (amax_a * amax_b) * (1.0f / (kRange * kRange)); }

void cast_to_fp4(const Context& ctx, const View& x, const Fp4Cast& cast, const View& codes, const View& scales) {
  require_rows(ctx, x, "cast_to_fp4");
  const std::int64_t rows = x.shape[0], cols = x.shape[1], strips = divide_up(rows, kFp4Block);
  const bool by_row = cast.contract == ContractionAxis::last && !cast.square,
             by_column = cast.contract == ContractionAxis::first && !cast.square;
  if (!by_column && cols % kFp4Block != 0)
    throw Error("cast_to_fp4: " + std::to_string(cols) + " columns are no multiple of 16");
  require_shape(codes, dtype::DType::u8, rows, cols, "the memory of codes");
  require_shape(scales, dtype::DType::u8, by_row ? rows : strips, by_column ? cols : cols / kFp4Block,
                "the memory of scales");
  if (!cast.random.empty()) require_shape(cast.random, dtype::DType::u8, rows, cols, "the matrix of random bits");
  const device::Timer timer(ctx, device::Work::cast, "cast to FP4", 2 * tensor::bytes_of(x) + tensor::bytes_of(codes));
  if (ctx.dry) return;
  dtype::with_float_type(x.dtype, "cast_to_fp4", [&]<class T>() {
    const StripCast<T> work{x, cast, codes, scales, scales_of(cast.amax)};
    const std::int64_t lines = by_row ? rows : strips;
#pragma omp parallel for if (x.size() >= kParallelElements)
    for (std::int64_t i = 0; i < lines; ++i) {
      if (by_row)
        work.one_row(i);
      else
        work.strip(i);
    }
  });
}

void hadamard_transform(const Context& ctx, const View& x, const View& out) {
  require_rows(ctx, x, "hadamard_transform");
  const std::int64_t rows = x.shape[0], cols = x.shape[1], strips = divide_up(rows, kFp4Block);
  require_shape(out, dtype::DType::bf16, strips * kFp4Block, cols, "the result of the transform");
  const device::Timer timer(ctx, device::Work::cast, "Hadamard transform", tensor::bytes_of(x, out));
  if (ctx.dry) return;
  dtype::with_float_type(x.dtype, "hadamard_transform", [&]<class T>() {
#pragma omp parallel for if (x.size() >= kParallelElements)
    for (std::int64_t s = 0; s < strips; ++s) {
      const std::int64_t begin = s * kFp4Block;
      fp4_loops<T>().hadamard(x.as<T>() + begin * x.stride[0], x.stride[0], std::min(kFp4Block, rows - begin), cols,
                              out.as<Bf16>() + begin * cols);
    }
  });
}

}  // namespace fp8::quant
