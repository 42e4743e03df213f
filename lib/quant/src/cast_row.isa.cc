// Inner loops of casts and amaxes over one row of elements with unit stride, as templates over element type, format and
// code type, so that the compiler vectorizes each.
//
// Almost no piece of a matrix has an element that must be clamped, or a NaN: where the largest magnitude says so, a
// loop without clamping and without counting casts two neighbours of BF16 at a time where they lie, in one word, and
// what became zero is counted afterwards, in 16 bits; twice as fast together as the loop that does everything at once.
#include "cast_row.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

namespace fp8::quant {
namespace {

// An FP8 code before it is narrowed to a byte.
struct Code {
  std::uint16_t bits;  // the code in the low byte, the rest zero
};

constexpr std::int64_t kCastPiece = 2048;  // elements; their codes fit the first-level cache

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
                       is = magnitude_bits(x[i]);  // values: a reference, as of std::max, is not vectorized
    largest[i] = have < is ? is : have;
  }
}

// The scale of element i.
inline float scale_at(OneScale scale, std::int64_t) { return scale.scale; }
inline float scale_at(const float* scale, std::int64_t i) { return scale[i]; }

// v on the format's grid as the BF16 it is.
template <class Grid>
inline void store(float v, Bf16& out) {
  out.bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(dtype::round_to_grid<Grid>(v)) >> 16);
}
// v's code.
template <class Grid>
inline void store(float v, Code& out) {
  out.bits = static_cast<std::uint16_t>(dtype::code_bits<Grid>(v));
}

// out[i] = x[i] * scale[i] on the grid, at most 2^31 elements.
template <class Grid, class T, class Scale, class Out>
RowCounts cast_counting(const T* x, Scale scale, Out* out, std::int64_t n) {
  std::int32_t saturated = 0, underflowed = 0;
#pragma omp simd reduction(+ : saturated, underflowed)
  for (std::int64_t i = 0; i < n; ++i) {
    const float from = dtype::to_float(x[i]), v = from * scale_at(scale, i);
    store<Grid>(v, out[i]);
    saturated += clamped<Grid>(v) ? 1 : 0;
    underflowed += vanished<Grid>(v, from) ? 1 : 0;
  }
  return {saturated, underflowed};
}

// What store<Grid>(a, Out) stores, for a magnitude not beyond the largest value.
template <class Grid, class Out>
inline std::uint32_t unclamped(float a) {
  if constexpr (std::is_same_v<Out, Bf16>) return dtype::rounded_magnitude<Grid>(a) >> 16;
  return dtype::magnitude_code<Grid>(a);
}

// The sign of a BF16 where Out has its own.
template <class Out>
constexpr int kSignShift = std::is_same_v<Out, Bf16> ? 0 : 8;

// cast_counting without counting, where unclamped() holds for every magnitude times the scale, which is positive.
template <class Grid, class Out>
void cast_unclamped(const float* x, float scale, Out* out, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t sign = (std::bit_cast<std::uint32_t>(x[i]) >> 16) & 0x8000u;
    const float a = from_magnitude(magnitude_bits(x[i])) * scale;
    out[i].bits = static_cast<std::uint16_t>(unclamped<Grid, Out>(a) | (sign >> kSignShift<Out>));
  }
}
// The same, two elements at a time: each is the upper half of a float once it stands in the upper half of the word.
template <class Grid, class Out>
void cast_unclamped(const Bf16* x, float scale, Out* out, std::int64_t n) {
  static_assert(std::endian::native == std::endian::little && sizeof(Out) == 2);
  const auto both = [scale](std::uint32_t pair) {
    const std::uint32_t signs = pair & 0x80008000u, magnitudes = pair & 0x7FFF7FFFu;
    const std::uint32_t first = unclamped<Grid, Out>(std::bit_cast<float>(magnitudes << 16) * scale);
    const std::uint32_t second = unclamped<Grid, Out>(std::bit_cast<float>(magnitudes & 0xFFFF0000u) * scale);
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

inline bool is_zero(float v) { return v == 0; }
inline bool is_zero(Bf16 v) { return magnitude_bits(v) == 0; }
inline bool is_zero(Code v) { return (v.bits & 0x7Fu) == 0; }

// How many of x[0, n), a piece at most, are zero; counted in the width of an element.
template <class T>
std::int64_t count_zeros(const T* x, std::int64_t n) {
  using Count = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
  Count count = 0;
#pragma omp simd reduction(+ : count)
  for (std::int64_t i = 0; i < n; ++i) count = static_cast<Count>(count + (is_zero(x[i]) ? 1 : 0));
  return count;
}

// out[i] = x[i] * scale on the grid; a piece at most, which stays in the nearest cache.
template <class Grid, class T, class Out>
RowCounts cast_piece(const T* x, OneScale scale, Out* out, std::int64_t n) {
  const bool fits = scale.scale > 0 && from_magnitude(amax_of(x, n)) * scale.scale <= Grid::kMax;
  if (!fits) return cast_counting<Grid>(x, scale, out, n);
  cast_unclamped<Grid>(x, scale.scale, out, n);
  return {.saturated = 0, .underflowed = count_zeros(out, n) - count_zeros(x, n)};
}

// out[i] = x[i] * scale on the grid.
template <class Grid, class T>
RowCounts cast_wide(const T* x, float scale, Bf16* out, std::int64_t n) {
  RowCounts counts;
  for (std::int64_t begin = 0; begin < n; begin += kCastPiece)
    counts += cast_piece<Grid>(x + begin, OneScale{scale}, out + begin, std::min(kCastPiece, n - begin));
  return counts;
}

// The same into bytes: narrowing is a pass of its own, which is faster.
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

template <class Grid, class T>
constexpr GridLoops<T> kGrid{cast_wide<Grid, T>, cast_bytes<Grid, T>, cast_counting<Grid, T, const float*, Bf16>};

template <class T>
constexpr RowLoops<T> kRow{amax_of<T>, amax_onto<T>, kGrid<dtype::E4m3Grid, T>, kGrid<dtype::E5m2Grid, T>};

}  // namespace

constinit const CastKernels FP8_ISA::kCastKernels{kRow<float>, kRow<Bf16>};

}  // namespace fp8::quant
