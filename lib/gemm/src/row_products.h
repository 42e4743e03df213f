/// C = X W^T with sums in an order that depends on K alone. Products are added to 16 sums, product k to sum k % 16, by
/// fused multiply-add in K's order; then the upper half of the sums is added to the lower, four times. The
/// bits of a row of C therefore do not depend on other rows, the number of threads and the instruction set. W is read
/// at the speed of memory if X has few rows. Private to this crate.
#pragma once

#include <cstdint>

#include "epilogue.h"
#include "fp8/base/cpu.h"
#include "scratch.h"

namespace fp8::gemm {

/// A block of X and of W: rows with unit stride along K.
template <class T>
struct RowBlock {
  const T* data;        ///< first element
  std::int64_t stride;  ///< elements between rows
  std::int64_t rows;    ///< number of rows
};

/// Loops of row_products.isa.cc for one instruction set, on one thread.
struct RowProductKernels {
  /// Most rows of X in one call.
  static constexpr std::int64_t kRows = 4;
  /// sums[i * stride + j] = row i of x times row j of w, both of k elements; at most kRows rows of x.
  template <class T>
  using Multiply = void (*)(std::int64_t k, RowBlock<float> x, RowBlock<T> w, float* sums, std::int64_t stride);
  Multiply<float> f32;         ///< W in f32
  Multiply<dtype::Bf16> bf16;  ///< W in bf16, upcast exactly
};
FP8_ISA_TABLES(RowProductKernels, kRowProductKernels, row_product_kernels)

/// Multiplication with this order of sums, and its scratch memory.
class RowProducts {
 public:
  /// Whether A [M, K] and B [K, N] have rows and columns of unit stride, as an input and a transposed weight have.
  static bool fits(const tensor::View& a, const tensor::View& b);
  /// C = A B with the epilogue; A and B fit, K > 0. If `dry`, only records the scratch.
  void run(bool dry, const tensor::View& a, const tensor::View& b, const tensor::View& c, const Epilogue& epilogue);
  /// Bytes of scratch that the calls so far need.
  std::size_t scratch_bytes() const { return upcast_.bytes(); }

 private:
  Scratch upcast_{device::DeviceType::host};
};

}  // namespace fp8::gemm
