// Elements of all types as f32, scales in the layouts of the manual, sums.
#include "lt_product.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "fp8/dtype/convert.h"

namespace fp8::lt {
namespace {

constexpr std::int64_t kBlock = 128;

std::int64_t up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

float element(const void* data, cudaDataType type, std::int64_t i) {
  switch (type) {
    case CUDA_R_16BF: {
      dtype::Bf16 v{};
      std::memcpy(&v, static_cast<const std::byte*>(data) + 2 * i, sizeof v);
      return dtype::to_float(v);
    }
    case CUDA_R_8F_E4M3:
      return dtype::from_e4m3(static_cast<const std::uint8_t*>(data)[i]);
    case CUDA_R_8F_E5M2:
      return dtype::from_e5m2(static_cast<const std::uint8_t*>(data)[i]);
    default: {
      float v = 0;
      std::memcpy(&v, static_cast<const std::byte*>(data) + 4 * i, sizeof v);
      return v;
    }
  }
}

// Rows of A, or columns of B, [outer, K] contiguous.
std::vector<float> lines(const Matrix& x, bool is_a, std::int64_t k) {
  const std::int64_t outer = is_a ? x.m() : x.n();
  const bool k_adjacent = is_a == x.transposed;
  std::vector<float> out(static_cast<std::size_t>(outer * k));
  for (std::int64_t i = 0; i < outer; ++i)
    for (std::int64_t l = 0; l < k; ++l)
      out[static_cast<std::size_t>(i * k + l)] = element(x.data, x.type, k_adjacent ? i * x.ld + l : l * x.ld + i);
  return out;
}

// The scale of the block of line i that has element l of K. 128-element blocks of all lines are adjacent, blocks of
// 128x128 along K, with columns of a multiple of 4.
float scale_of(const Matrix& x, std::int64_t i, std::int64_t l, std::int64_t outer, std::int64_t k) {
  if (x.scale == nullptr) return 1;
  switch (x.mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
      return static_cast<const float*>(x.scale)[i];
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
      return static_cast<const float*>(x.scale)[l / kBlock * outer + i];
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
      return static_cast<const float*>(x.scale)[i / kBlock * 4 * up(up(k, kBlock), 4) + l / kBlock];
    default:
      return *static_cast<const float*>(x.scale);
  }
}

float dot(const float* a, const float* b, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Elements of K that have one pair of scales.
std::int64_t block_of(const Product& p, std::int64_t k) {
  const auto one = [k](const Matrix& x) {
    const bool blocks =
        x.mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F || x.mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    return blocks ? kBlock : k;
  };
  return std::min(one(p.a), one(p.b));
}

}  // namespace

std::size_t size_of(cudaDataType type) {
  return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF ? 2 : is_fp8(type) ? 1 : 0;
}

bool is_fp8(cudaDataType type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

std::size_t Matrix::bytes() const { return static_cast<std::size_t>((columns - 1) * ld + rows) * size_of(type); }

std::size_t scale_bytes(cublasLtMatmulMatrixScale_t mode, std::int64_t outer, std::int64_t k) {
  const auto floats = [](std::int64_t n) { return static_cast<std::size_t>(n) * sizeof(float); };
  switch (mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
      return floats(outer);
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
      return floats(up(k, kBlock) * outer);
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
      return floats(up(outer, kBlock) * 4 * up(up(k, kBlock), 4));
    default:
      return sizeof(float);
  }
}

void compute(const Product& p) {
  const std::int64_t m = p.c.rows, n = p.c.columns, k = p.a.n(), block = block_of(p, k);
  const std::vector<float> a = lines(p.a, true, k), b = lines(p.b, false, k);
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t i = 0; i < m; ++i) {
      float sum = 0;
      for (std::int64_t l = 0; l < k; l += block)
        sum += dot(&a[static_cast<std::size_t>(i * k + l)], &b[static_cast<std::size_t>(j * k + l)],
                   std::min(block, k - l)) *
               scale_of(p.a, i, l, m, k) * scale_of(p.b, j, l, n, k);
      const std::int64_t at = j * p.c.ld + i;
      float v = p.alpha * sum;
      if (p.bias != nullptr) v += element(p.bias, p.bias_type, i);
      if (p.beta != 0) v += p.beta * element(p.c.data, p.c.type, at);
      if (p.c.type == CUDA_R_16BF)
        static_cast<dtype::Bf16*>(p.d)[at] = dtype::to_bf16(v);
      else
        static_cast<float*>(p.d)[at] = v;
    }
  }
}

}  // namespace fp8::lt
