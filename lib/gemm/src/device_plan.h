/// How a multiplication on a device is put to cuBLASLt, as data: which of our operands is its A, how matrices lie, what
/// scales and epilogue are asked for, and what is refused. Nothing here speaks to the library, so that all of it is
/// tested where there is no GPU. cuBLASLt counts columns first, our views rows first: it computes C^T = B^T A^T, its A
/// is our B and its m our columns.
/// Source: cuBLAS 13.1 manual, "cublasLtMatmul()" (tables of types), "Tensor Core Usage", "Narrow Precision Data Types
/// Usage"; what it does not say is marked with who found it out.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "epilogue.h"
#include "fp8/gemm/gemm.h"

namespace fp8::gemm {

/// How inverse scales of one operand are given to the library; the names of its enum cublasLtMatmulMatrixScale_t.
enum class Scaling : std::uint8_t { none, scalar_32f, outer_vec_32f, vec128_32f, blk128x128_32f, vec32_ue8m0 };

/// One operand as the library sees it: columns first.
struct Factor {
  DType format = DType::f32;           ///< of the elements: f32, bf16, e4m3, e5m2
  bool transposed = false;             ///< whether it is multiplied as its transpose
  std::int64_t rows = 0, columns = 0;  ///< as it lies in memory
  std::int64_t stride = 0;             ///< elements between columns
  Scaling scaling = Scaling::none;     ///< how its scales are given
  std::uint32_t alignment = 0;         ///< of its address, in bytes, 256 at most
  /// Order without meaning, for the map.
  auto operator<=>(const Factor&) const = default;
};

/// What tells one plan from another: C^T [m, n] (+)= A B (+ bias), in the library's order.
struct DevicePlan {
  std::int64_t m = 0, n = 0, k = 0;  ///< k is 0 where the library is not asked at all
  Factor a, b;                       ///< our B and our A
  DType c = DType::f32;              ///< f32 or bf16
  std::int64_t c_stride = 0;         ///< elements between columns, our rows
  std::uint32_t c_alignment = 0;     ///< as in Factor
  bool accumulate = false;           ///< beta is 1
  bool fast_accumulation = false;    ///< only with FP8
  bool bias = false;                 ///< one number a row, our column
  DType bias_type = DType::f32;      ///< f32 or bf16
  std::uint32_t bias_alignment = 0;  ///< as in Factor
  /// Order without meaning, for the map.
  auto operator<=>(const DevicePlan&) const = default;
};

/// One call: what the library does, and what is left for our own kernels.
struct DeviceCall {
  DevicePlan plan;
  /// The library (if it is asked) writes bare f32 sums [M, N] to scratch, and finish() of finish.cuh makes C of them:
  /// where it takes no bias of that type, no scales for operands that are no codes or none for each row, or there is
  /// nothing to multiply.
  bool finish = false;
  bool after = false;  ///< scales of codes are finish()'s: the library multiplies with none
  /// Floats of a vector of one inverse scale repeated: the library wants vectors on both sides or on none. 0: not so.
  std::int64_t broadcast_a = 0, broadcast_b = 0;

  /// Bytes of sums in scratch.
  std::size_t sums_bytes() const;
  /// Bytes of both repeated scales in scratch, each beginning at a multiple of 256.
  std::size_t broadcast_bytes() const;
  /// Where B's begins.
  std::size_t broadcast_b_at() const;
};

/// The call for operands that engine.cc found to fit each other. `capability` is 90 for compute capability 9.0, 0 where
/// the device is not known yet. Scales for each row are the library's on compute capability 9.0 alone; elsewhere, and
/// where `after` says that it has no kernel with them, they are applied after the product, which is what they are by
/// definition. Throws Error naming what this chip or the library does not offer.
DeviceCall describe(const Operand& a, const Operand& b, const View& c, const MatmulOptions& options, int capability,
                    bool after = false);

/// What finish() is left with where a call wants it: without the scales that the library applies.
Epilogue epilogue_of(const DeviceCall& call, const Operand& a, const Operand& b, const MatmulOptions& options);

/// "float8_e4m3fn with row scales times float8_e4m3fn with row scales into bfloat16 [16, 32], K = 64": for messages.
std::string name_of(const DevicePlan& plan);

/// Whether an operand is FP8 codes as bytes, rather than numbers on the FP8 grid.
bool is_codes(const Operand& o);

}  // namespace fp8::gemm
