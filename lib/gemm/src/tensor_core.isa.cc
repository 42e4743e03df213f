// Accumulation of tensor cores with f32 instructions. If the accumulator is stored as 1.5 x 2^(E+10) + c, its unit in
// the last place is 2^(E-13), and a fused multiply-add that rounds toward zero adds a product truncated to a multiple
// of 2^(E-13). The stored accumulator is positive, so negative products are truncated toward minus infinity, which is
// one unit too low, because BlockA ensures that no product is a multiple of the unit; the number of negative products
// is therefore added at the end. E is computed first, from bytes: the largest sum of two exponents, four products per
// 32-bit lane. Subtracting 1.5 x 2^(E+10) is exact, and clearing the last 10 bits of an f32 truncates it to 14
// significant bits.
#include "tensor_core_blocks.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fp8::gemm {

#if defined(__x86_64__)
namespace {

// Rounds toward zero and treats subnormal operands as zero during its lifetime.
class TowardZero {
 public:
  TowardZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kTowardZero | kSubnormalsAreZero); }
  ~TowardZero() { _mm_setcsr(before_); }
  TowardZero(const TowardZero&) = delete;
  TowardZero& operator=(const TowardZero&) = delete;

 private:
  static constexpr unsigned kTowardZero = 0x6000, kSubnormalsAreZero = 0x0040;
  unsigned before_;
};

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#else
constexpr int kVectorBytes = 32;
#endif
constexpr int kLanes = kVectorBytes / 4;
using Floats [[gnu::vector_size(kVectorBytes)]] = float;
using Words [[gnu::vector_size(kVectorBytes)]] = std::uint32_t;
using Bytes [[gnu::vector_size(kVectorBytes)]] = std::uint8_t;

template <class Vector>
Vector load(const void* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class Vector>
Vector largest(Vector a, Vector b) {
  return a > b ? a : b;
}

Floats all(float v) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(v);
#else
  return _mm256_set1_ps(v);
#endif
}

Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#else
  return _mm256_fmadd_ps(a, b, c);
#endif
}

// Number of set bits in each lane: by vpopcntd, which not every CPU with AVX-512 BF16 has, so that this source cannot
// be compiled for it; or by a table of half bytes and sums of adjacent bytes.
template <bool kCounted>
Words ones(Words a) {
#if defined(__AVX512BF16__)
  if constexpr (kCounted) {
    Words count;
    __asm__("vpopcntd %1, %0" : "=v"(count) : "v"(a));
    return count;
  }
#endif
  const __m128i table = _mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
  const Words low = a & 0x0F0F0F0F, high = a >> 4 & 0x0F0F0F0F;
#if defined(__AVX512F__)
  const __m512i tables = _mm512_maskz_broadcast_i32x4(0xFFFF, table);
  const __m512i bytes = _mm512_add_epi8(_mm512_shuffle_epi8(tables, std::bit_cast<__m512i>(low)),
                                        _mm512_shuffle_epi8(tables, std::bit_cast<__m512i>(high)));
  return std::bit_cast<Words>(
      _mm512_madd_epi16(_mm512_maddubs_epi16(bytes, _mm512_set1_epi8(1)), _mm512_set1_epi16(1)));
#else
  const __m256i tables = _mm256_broadcastsi128_si256(table);
  const __m256i bytes = _mm256_add_epi8(_mm256_shuffle_epi8(tables, std::bit_cast<__m256i>(low)),
                                        _mm256_shuffle_epi8(tables, std::bit_cast<__m256i>(high)));
  return std::bit_cast<Words>(
      _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, _mm256_set1_epi8(1)), _mm256_set1_epi16(1)));
#endif
}

// Panels of two vectors and kRowsAtOnce rows: eight independent chains of fused multiply-adds hide their latency.
struct VectorPath {
  static constexpr int kVectors = 2, kRows = kRowsAtOnce, kPanel = kVectors * kLanes;

  // The largest exponent byte of the products, in the top byte of each lane.
  template <int kBlock>
  static void largest_exponents(const tensor_core::BlockA<kBlock>* a, const tensor_core::BlockB<kBlock, kPanel>& b,
                                Words (&out)[kRows][kVectors]) {
    Bytes found[kRows][kVectors] = {};
#pragma GCC unroll 2
    for (int k = 0; k < kBlock; k += 4)
      for (int i = 0; i < kRows; ++i) {
        const Words four = Words{} + load<std::uint32_t>(a[i].exponents + k);
        for (int j = 0; j < kVectors; ++j) {
          const auto of_b = load<Bytes>(&b.exponents[k / 4][j * kLanes]);
          found[i][j] = largest(found[i][j], std::bit_cast<Bytes>(four) + of_b);
        }
      }
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kVectors; ++j) {
        const Bytes two = largest(found[i][j], std::bit_cast<Bytes>(std::bit_cast<Words>(found[i][j]) << 16));
        out[i][j] = std::bit_cast<Words>(largest(two, std::bit_cast<Bytes>(std::bit_cast<Words>(two) << 8)));
      }
  }

  // 1.5 x 2^(E+10), from the largest exponent of the products and c.
  static Floats anchor(Words of_products, Words c) {
    constexpr std::uint32_t kExponent = 0x7F800000, kTenHigherAndAHalf = (10u << 23) + 0x00400000;
    return std::bit_cast<Floats>((largest(of_products, c + c) >> 1 & kExponent) + kTenHigherAndAHalf);
  }

  template <bool kCounted, int kBlock>
  [[gnu::always_inline]] static inline void add_to_tile(const tensor_core::BlockA<kBlock>* a,
                                                        const tensor_core::BlockB<kBlock, kPanel>& b, float* c,
                                                        std::int64_t stride) {
    constexpr std::uint32_t kSignificant = 0xFFFFFC00;
    Words exponents[kRows][kVectors], negative[kRows][kVectors];
    Floats anchors[kRows][kVectors], sum[kRows][kVectors];
    largest_exponents(a, b, exponents);
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kVectors; ++j) {
        const auto before = load<Words>(c + i * stride + j * kLanes);
        anchors[i][j] = anchor(exponents[i][j], before);
        // Sets the last bit of c, so that a negative c is not a multiple of the unit either.
        sum[i][j] = anchors[i][j] + std::bit_cast<Floats>(before | 1);
        negative[i][j] = ones<kCounted>(load<Words>(b.negative + j * kLanes) ^ a[i].negative) + (before >> 31);
      }
#pragma GCC unroll 2
    for (int k = 0; k < kBlock; ++k)
      for (int i = 0; i < kRows; ++i) {
        const Floats of_a = all(a[i].values[k]);
        for (int j = 0; j < kVectors; ++j)
          sum[i][j] = multiply_add(of_a, load<Floats>(&b.values[k][j * kLanes]), sum[i][j]);
      }
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kVectors; ++j) {
        const auto all = std::bit_cast<Floats>(std::bit_cast<Words>(sum[i][j]) + negative[i][j]);
        const Words after = std::bit_cast<Words>(all - anchors[i][j]) & kSignificant;
        std::memcpy(c + i * stride + j * kLanes, &after, sizeof after);
      }
  }

  // Not inlined, so that no operation moves into or out of the rounding mode.
  template <bool kCounted, int kBlock>
  [[gnu::noinline]] static void add_to_rows(const tensor_core::BlockA<kBlock>* a, std::int64_t rows,
                                            const tensor_core::BlockB<kBlock, kPanel>& b, float* c,
                                            std::int64_t stride) {
    for (std::int64_t row = 0; row < rows; row += kRows) add_to_tile<kCounted>(a + row, b, c + row * stride, stride);
  }

  // See tensor_core::sums().
  template <int kBlock>
  static void add_block(const tensor_core::BlockA<kBlock>* a, std::int64_t rows,
                        const tensor_core::BlockB<kBlock, kPanel>& b, float* c, std::int64_t stride) {
    const TowardZero rounding;
#if defined(__AVX512BF16__)
    if (__builtin_cpu_supports("avx512vpopcntdq")) return add_to_rows<true>(a, rows, b, c, stride);
#endif
    add_to_rows<false>(a, rows, b, c, stride);
  }
};

using Path = VectorPath;

}  // namespace
#else
using Path = tensor_core::ScalarPath;
#endif

constinit const TensorCoreKernels FP8_ISA::kTensorCoreKernels{tensor_core::kernels<Path>()};

}  // namespace fp8::gemm
