// Inner loops of casts and amaxes over one row of elements with unit stride, as templates over element type, format and
// code type, so that the compiler vectorizes each.
//
// Almost no piece of a matrix has an element that saturates, or a NaN. If its amax shows that it has none, a loop
// without saturation and counters casts two adjacent BF16 elements at a time in one 32-bit word, and another loop then
// counts zeros with 16-bit counters. Both together take half the time of the general loop.
#include "cast_row.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

namespace fp8::quant {
namespace {

// An FP8 code in 16 bits, before it is stored as a byte.
struct Code {
  std::uint16_t bits;  // the code in the low byte, the rest zero
};

constexpr std::int64_t kCastPiece = 2048;  // elements; their codes fit the L1 cache

// Bits of the largest magnitude among x[0, n); 0 when n = 0.
template <class T>
Magnitude<T> amax_of(const T* x, std::int64_t n) {
  Magnitude<T> largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, magnitude_bits(x[i]));
  return largest;
}

// largest[i] = max(largest[i], |x[i]|), in bits.
template <class T>
void amax_onto(const T* x, Magnitude<T>* largest, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const Magnitude<T> have = largest[i],
                       is = magnitude_bits(x[i]);  // not std::max: references prevent vectorization
    largest[i] = have < is ? is : have;
  }
}

// Bits of |v|, or 0 for NaN.
template <class T>
inline Magnitude<T> magnitude_but_nan(T v) {
  constexpr auto kInfinity = static_cast<Magnitude<T>>(0x7F800000u >> (sizeof(T) == 2 ? 16 : 0));
  const Magnitude<T> bits = magnitude_bits(v);
  return bits <= kInfinity ? bits : Magnitude<T>{0};
}

// amax_onto() that skips NaN.
template <class T>
void amax_onto_but_nan(const T* x, Magnitude<T>* largest, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const Magnitude<T> have = largest[i], is = magnitude_but_nan(x[i]);
    largest[i] = have < is ? is : have;
  }
}

// Calls body(begin, length, b) for each block b of n elements. The lengths 16, 32 and 128 are constants, for which the
// compiler unrolls the loops of the body.
template <class Body>
void for_blocks(std::int64_t n, std::int64_t block, const Body& body) {
  const std::int64_t count = n / block;
  const auto whole = [&](auto length) {
    for (std::int64_t b = 0; b < count; ++b) body(b * length, length, b);
  };
  if (block == 16)
    whole(std::integral_constant<std::int64_t, 16>{});
  else if (block == 32)
    whole(std::integral_constant<std::int64_t, 32>{});
  else if (block == 128)
    whole(std::integral_constant<std::int64_t, 128>{});
  else
    whole(block);
  if (n % block != 0) body(count * block, n % block, count);
}

// largest[b] = bits of the largest magnitude of block b; 0 in place of NaN if they are skipped.
template <class T, bool kSkipNan>
void amax_of_blocks(const T* x, std::int64_t block, Magnitude<T>* largest, std::int64_t n) {
  for_blocks(n, block, [=](std::int64_t begin, auto length, std::int64_t b) {
    Magnitude<T> of_block = 0;
#pragma omp simd reduction(max : of_block)
    for (std::int64_t i = 0; i < length; ++i)
      of_block = std::max(of_block, kSkipNan ? magnitude_but_nan(x[begin + i]) : magnitude_bits(x[begin + i]));
    largest[b] = of_block;
  });
}

// A scale, and the multiplier of its codes.
struct FoldedScale {
  float scale, fold;
};
// Scales and fold factors of each element.
struct FoldedScales {
  const float *scale, *fold;
};

// The scale of element i, and the multiplier of its code. Floats, because GCC does not vectorize loops with structs.
inline float scale_at(OneScale scale, std::int64_t) { return scale.scale; }
inline float scale_at(const float* scale, std::int64_t i) { return scale[i]; }
inline float scale_at(FoldedScale scale, std::int64_t) { return scale.scale; }
inline float scale_at(FoldedScales scale, std::int64_t i) { return scale.scale[i]; }
inline float fold_at(FoldedScale scale, std::int64_t) { return scale.fold; }
inline float fold_at(FoldedScales scale, std::int64_t i) { return scale.fold[i]; }
// Whether codes have multipliers.
template <class Scale>
constexpr bool kFolds = std::is_same_v<Scale, FoldedScale> || std::is_same_v<Scale, FoldedScales>;

// The upper half of a float.
inline std::uint16_t upper_half(float v) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(v) >> 16); }

// v rounded to the format, as BF16.
template <class Grid>
inline void store(float v, Bf16& out) {
  out.bits = upper_half(dtype::round_to_grid<Grid>(v));
}
// The code of v.
template <class Grid>
inline void store(float v, Code& out) {
  out.bits = static_cast<std::uint16_t>(dtype::code_bits<Grid>(v));
}
// v rounded to the format and multiplied, as BF16.
template <class Grid>
inline void store_folded(float v, float fold, Bf16& out) {
  out.bits = upper_half(dtype::round_to_grid<Grid>(v) * fold);
}

// out[i] = x[i] * scale[i], rounded to the format, with counts; at most 2^31 elements.
template <class Grid, class T, class Scale, class Out>
RowCounts cast_counting(const T* x, Scale scale, Out* out, std::int64_t n) {
  std::int32_t saturated = 0, underflowed = 0;
#pragma omp simd reduction(+ : saturated, underflowed)
  for (std::int64_t i = 0; i < n; ++i) {
    const float from = dtype::to_float(x[i]), v = from * scale_at(scale, i);
    if constexpr (kFolds<Scale>)
      store_folded<Grid>(v, fold_at(scale, i), out[i]);
    else
      store<Grid>(v, out[i]);
    saturated += saturates<Grid>(v) ? 1 : 0;
    underflowed += underflows<Grid>(v, from) ? 1 : 0;
  }
  return {saturated, underflowed};
}

// The bits that store<Grid>(a, Out) stores, for a magnitude that does not exceed the largest value.
template <class Grid, class Out>
inline std::uint32_t unsaturated(float a) {
  if constexpr (std::is_same_v<Out, Bf16>) return dtype::rounded_magnitude<Grid>(a) >> 16;
  return dtype::magnitude_code<Grid>(a);
}
// The unsaturated code of store_folded().
template <class Grid>
inline std::uint32_t unsaturated_folded(float a, float fold) {
  return std::bit_cast<std::uint32_t>(std::bit_cast<float>(dtype::rounded_magnitude<Grid>(a)) * fold) >> 16;
}

// Distance of the sign bit of Out from that of BF16.
template <class Out>
constexpr int kSignShift = std::is_same_v<Out, Bf16> ? 0 : 8;

// cast_counting without counts, for x and positive scales of which no product exceeds the largest value.
template <class Grid, class T, class Scale, class Out>
void cast_unsaturated(const T* x, Scale scale, Out* out, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float from = dtype::to_float(x[i]);
    const std::uint32_t sign = (std::bit_cast<std::uint32_t>(from) >> 16) & 0x8000u;
    const float a = from_magnitude(magnitude_bits(from)) * scale_at(scale, i);
    std::uint32_t magnitude;
    if constexpr (kFolds<Scale>)
      magnitude = unsaturated_folded<Grid>(a, fold_at(scale, i));
    else
      magnitude = unsaturated<Grid, Out>(a);
    out[i].bits = static_cast<std::uint16_t>(magnitude | (sign >> kSignShift<Out>));
  }
}
// Casts with one scale, two elements at a time: a BF16 in the upper half of a word is a float.
template <class Grid, class Scale, class Out>
void cast_pairs(const Bf16* x, Scale scale, Out* out, std::int64_t n) {
  static_assert(std::endian::native == std::endian::little && sizeof(Out) == 2);
  const auto one = [scale](float a) {
    if constexpr (kFolds<Scale>)
      return unsaturated_folded<Grid>(a * scale.scale, scale.fold);
    else
      return unsaturated<Grid, Out>(a * scale.scale);
  };
  const auto both = [one](std::uint32_t pair) {
    const std::uint32_t signs = pair & 0x80008000u, magnitudes = pair & 0x7FFF7FFFu;
    const float low = std::bit_cast<float>(magnitudes << 16), high = std::bit_cast<float>(magnitudes & 0xFFFF0000u);
    const std::uint32_t first = one(low), second = one(high);
    return first | (second << 16) | (signs >> kSignShift<Out>);
  };
#pragma omp simd
  for (std::int64_t i = 0; i < n / 2; ++i) {
    std::uint32_t pair;
    std::memcpy(&pair, x + 2 * i, sizeof pair);
    pair = both(pair);
    std::memcpy(out + 2 * i, &pair, sizeof pair);
  }
  if (n % 2 != 0) out[n - 1].bits = static_cast<std::uint16_t>(both(x[n - 1].bits));
}
// One scale: the faster of the two.
template <class Grid, class T, class Scale, class Out>
void cast_with_one(const T* x, Scale scale, Out* out, std::int64_t n) {
  if constexpr (std::is_same_v<T, Bf16>)
    cast_pairs<Grid>(x, scale, out, n);
  else
    cast_unsaturated<Grid>(x, scale, out, n);
}

inline bool is_zero(float v) { return v == 0; }
inline bool is_zero(Bf16 v) { return magnitude_bits(v) == 0; }
inline bool is_zero(Code v) { return (v.bits & 0x7Fu) == 0; }

// Number of zeros in x[0, n), one piece at most, with counters of the width of an element.
template <class T>
std::int64_t count_zeros(const T* x, std::int64_t n) {
  using Count = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
  Count count = 0;
#pragma omp simd reduction(+ : count)
  for (std::int64_t i = 0; i < n; ++i) count = static_cast<Count>(count + (is_zero(x[i]) ? 1 : 0));
  return count;
}

// out[i] = x[i] * scale, rounded to the format, for one piece at most, which fits the L1 cache.
template <class Grid, class T, class Out>
RowCounts cast_piece(const T* x, OneScale scale, Out* out, std::int64_t n) {
  const bool fits = scale.scale > 0 && from_magnitude(amax_of(x, n)) * scale.scale <= Grid::kMax;
  if (!fits) return cast_counting<Grid>(x, scale, out, n);
  cast_with_one<Grid>(x, scale, out, n);
  return {.saturated = 0, .underflowed = count_zeros(out, n) - count_zeros(x, n)};
}

// out[i] = x[i] * scale, rounded to the format, as BF16.
template <class Grid, class T>
RowCounts cast_bf16(const T* x, float scale, Bf16* out, std::int64_t n) {
  RowCounts counts;
  for (std::int64_t begin = 0; begin < n; begin += kCastPiece)
    counts += cast_piece<Grid>(x + begin, OneScale{scale}, out + begin, std::min(kCastPiece, n - begin));
  return counts;
}

// out[i] = code of x[i] * scale. Storing bytes in a separate pass is faster.
template <class Grid, class T>
RowCounts cast_bytes(const T* x, float scale, std::uint8_t* out, std::int64_t n) {
  std::array<Code, kCastPiece> codes;
  RowCounts counts;
  for (std::int64_t begin = 0; begin < n; begin += kCastPiece) {
    const std::int64_t length = std::min(kCastPiece, n - begin);
    counts += cast_piece<Grid>(x + begin, OneScale{scale}, codes.data(), length);
#pragma omp simd
    for (std::int64_t i = 0; i < length; ++i)
      out[begin + i] = static_cast<std::uint8_t>(codes[static_cast<std::size_t>(i)].bits);
  }
  return counts;
}

// Zeros of out[0, n) less those of x[0, n).
template <class T>
std::int64_t new_zeros(const T* x, const Bf16* out, std::int64_t n) {
  std::int64_t zeros = 0;
  for (std::int64_t begin = 0; begin < n; begin += kCastPiece) {
    const std::int64_t length = std::min(kCastPiece, n - begin);
    zeros += count_zeros(out + begin, length) - count_zeros(x + begin, length);
  }
  return zeros;
}

// See GridLoops::blocks.
template <class Grid, class T>
RowCounts cast_blocks(const T* x, std::int64_t block, const BlockFactors& factors, Bf16* out, std::int64_t n) {
  RowCounts counts;
  for_blocks(n, block, [&, factors](std::int64_t begin, auto length, std::int64_t b) {
    const FoldedScale scale{factors.scale[b], factors.fold[b]};
    if (factors.fits)
      cast_with_one<Grid>(x + begin, scale, out + begin, length);
    else
      counts += cast_counting<Grid>(x + begin, scale, out + begin, length);
  });
  if (factors.fits) counts.underflowed = new_zeros(x, out, n);
  return counts;
}

// See GridLoops::columns.
template <class Grid, class T>
RowCounts cast_columns(const T* x, const BlockFactors& factors, Bf16* out, std::int64_t n) {
  const FoldedScales scales{factors.scale, factors.fold};
  if (!factors.fits) return cast_counting<Grid>(x, scales, out, n);
  cast_unsaturated<Grid>(x, scales, out, n);
  return {.saturated = 0, .underflowed = new_zeros(x, out, n)};
}

template <class Grid, class T>
constexpr GridLoops<T> kGrid{cast_bf16<Grid, T>, cast_bytes<Grid, T>, cast_counting<Grid, T, const float*, Bf16>,
                             cast_blocks<Grid, T>, cast_columns<Grid, T>};

template <class T>
constexpr RowLoops<T> kRow{amax_of<T>,
                           amax_onto<T>,
                           amax_onto_but_nan<T>,
                           amax_of_blocks<T, false>,
                           amax_of_blocks<T, true>,
                           kGrid<dtype::E4m3Grid, T>,
                           kGrid<dtype::E5m2Grid, T>};

}  // namespace

constinit const CastKernels FP8_ISA::kCastKernels{kRow<float>, kRow<Bf16>};

}  // namespace fp8::quant
