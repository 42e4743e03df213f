/// The product of a call of the stand-in for cuBLASLt: the arguments as values, and the computation.
#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace fp8::lt {

/// One matrix, column-major.
struct Matrix {
  cudaDataType type = CUDA_R_32F;                                              ///< of the elements
  std::int64_t rows = 0, columns = 0;                                          ///< shape in memory
  std::int64_t ld = 0;                                                         ///< elements between columns
  bool transposed = false;                                                     ///< whether its transpose is multiplied
  const void* data = nullptr;                                                  ///< first element
  const void* scale = nullptr;                                                 ///< scales, or null for 1
  cublasLtMatmulMatrixScale_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;  ///< what they belong to
  /// Rows and columns of what is multiplied.
  std::int64_t m() const { return transposed ? columns : rows; }
  std::int64_t n() const { return transposed ? rows : columns; }
  /// Bytes from the first element to the end of the last one.
  std::size_t bytes() const;
};

/// D = alpha scale_a scale_b A B + beta C + bias, where C and D have one layout.
struct Product {
  Matrix a, b, c;
  void* d = nullptr;
  const void* bias = nullptr;  ///< one element for each row of D, or null
  cudaDataType bias_type = CUDA_R_32F;
  float alpha = 1, beta = 0;
};

/// Bytes of an element; 0 for types that the stand-in lacks.
std::size_t size_of(cudaDataType type);

/// Whether a type is e4m3 or e5m2.
bool is_fp8(cudaDataType type);

/// Bytes of the scales of A, or of B, whose rows to scale are `outer`.
std::size_t scale_bytes(cublasLtMatmulMatrixScale_t mode, std::int64_t outer, std::int64_t k);

/// Computes D. Sums are in f32, per block of K if scales are.
void compute(const Product& product);

}  // namespace fp8::lt
