// Products of rows in tiles of C, whose sums stay in registers. The 16 sums of an element are one vector register with
// AVX-512 and several otherwise.
#include "row_products.h"

#include <cstring>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "fp8/base/fma.h"

namespace fp8::gemm {
namespace {

using dtype::Bf16;

constexpr std::int64_t kSums = 16;
#if defined(__AVX512F__)
constexpr int kLanes = 16, kTile = 4;
#elif defined(__AVX__)
constexpr int kLanes = 8, kTile = 2;
#else
constexpr int kLanes = 4, kTile = 2;
#endif
constexpr int kParts = kSums / kLanes;
constexpr std::size_t kAhead = 512;  // bytes that are prefetched before they are read

using Vector [[gnu::vector_size(kLanes * sizeof(float))]] = float;

inline Vector load(const float* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

using Words [[gnu::vector_size(kLanes * sizeof(std::uint32_t))]] = std::uint32_t;

#ifdef __AVX512F__
inline Words words(const Bf16* from) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return (Words)_mm512_maskz_cvtepu16_epi32(0xFFFF, halves);  // without a mask GCC 12 warns of its own header
}
#else
inline Words words(const Bf16* from) {
  using Halves [[gnu::vector_size(kLanes * sizeof(std::uint16_t))]] = std::uint16_t;
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  return __builtin_convertvector(halves, Words);
}
#endif

inline Vector load(const Bf16* from) { return (Vector)(words(from) << 16U); }

inline float total(const Vector* parts) {
  float sum[kSums];
  std::memcpy(sum, parts, sizeof sum);
  for (std::int64_t width = kSums / 2; width > 0; width /= 2)
    for (std::int64_t l = 0; l < width; ++l) sum[l] += sum[l + width];
  return sum[0];
}

// Adds the products of kSums elements from x[i] and w[j] on.
template <int kRows, int kColumns, class T>
inline void add_products(const float* const* x, const T* const* w, std::int64_t at,
                         Vector (&sum)[kRows][kColumns][kParts]) {
#pragma GCC unroll 4
  for (int p = 0; p < kParts; ++p) {
    Vector right[kColumns];
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) right[j] = load(w[j] + at + p * kLanes);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const Vector left = load(x[i] + at + p * kLanes);
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) sum[i][j][p] = fused_multiply_add(left, right[j], sum[i][j][p]);
    }
  }
}

// The last k % kSums elements, followed by zeros.
template <int kCount, class T>
inline void pad(const T* const* rows, std::int64_t at, std::int64_t k, T (&memory)[kCount][kSums],
                const T* (&padded)[kCount]) {
  std::memset(memory, 0, sizeof memory);
  for (int i = 0; i < kCount; ++i) {
    std::memcpy(memory[i], rows[i] + at, static_cast<std::size_t>(k - at) * sizeof(T));
    padded[i] = memory[i];
  }
}

template <int kRows, int kColumns, class T>
void multiply_tile(std::int64_t k, RowBlock<float> x, RowBlock<T> w, float* sums, std::int64_t stride) {
  const float* left[kRows];
  const T* right[kColumns];
  for (int i = 0; i < kRows; ++i) left[i] = x.data + i * x.stride;
  for (int j = 0; j < kColumns; ++j) right[j] = w.data + j * w.stride;
  Vector sum[kRows][kColumns][kParts] = {};
  const std::int64_t whole = k / kSums * kSums;
  for (std::int64_t at = 0; at < whole; at += kSums) {
    if constexpr (kRows == 1) __builtin_prefetch(right[0] + at + kAhead / sizeof(T));
    add_products<kRows, kColumns>(left, right, at, sum);
  }
  if (whole < k) {
    float left_memory[kRows][kSums];
    T right_memory[kColumns][kSums];
    pad(left, whole, k, left_memory, left);
    pad(right, whole, k, right_memory, right);
    add_products<kRows, kColumns>(left, right, 0, sum);
  }
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kColumns; ++j) sums[i * stride + j] = total(sum[i][j]);
}

// All columns for kRows rows of x. A single row is bound by memory, which is read fastest in one stream: one column at
// a time.
template <int kRows, class T>
void multiply_rows(std::int64_t k, RowBlock<float> x, RowBlock<T> w, float* sums, std::int64_t stride) {
  constexpr int kColumns = kRows == 1 ? 1 : kTile;
  std::int64_t j = 0;
  const auto from = [&w](std::int64_t row) { return RowBlock<T>{w.data + row * w.stride, w.stride, w.rows - row}; };
  for (; j + kColumns <= w.rows; j += kColumns) multiply_tile<kRows, kColumns>(k, x, from(j), sums + j, stride);
  for (; j < w.rows; ++j) multiply_tile<kRows, 1>(k, x, from(j), sums + j, stride);
}

template <class T>
void multiply(std::int64_t k, RowBlock<float> x, RowBlock<T> w, float* sums, std::int64_t stride) {
  while (x.rows > 0) {
    const std::int64_t rows = x.rows >= kTile ? kTile : 1;
    if (rows == kTile) {
      multiply_rows<kTile>(k, x, w, sums, stride);
    } else {
      multiply_rows<1>(k, x, w, sums, stride);
    }
    x.data += rows * x.stride;
    x.rows -= rows;
    sums += rows * stride;
  }
}

}  // namespace

constinit const RowProductKernels FP8_ISA::kRowProductKernels{multiply<float>, multiply<Bf16>};

}  // namespace fp8::gemm
