/// A GEMM on a device as data for cuBLASLt: order of the operands, layouts, scale modes, epilogue, and the checks of
/// what the library supports. The library is not called here, so that this is tested without a GPU. cuBLASLt is
/// column-major and views are row-major: it computes C^T = B^T A^T, so its A is our B and its m our columns. Private to
/// this crate. Source: cuBLAS 13.1 manual, "cublasLtMatmul()" (tables of types), "Tensor Core Usage", "Narrow Precision
/// Data Types Usage"; other sources are named where they are used.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "epilogue.h"
#include "fp8/base/error.h"
#include "fp8/gemm/gemm.h"

namespace fp8::gemm {

/// Scale mode of one operand; the names of cublasLtMatmulMatrixScale_t.
/// `per_batch_scalar_32f` is scalar_32f for GEMMs that are computed together.
enum class Scaling : std::uint8_t { none, scalar_32f, outer_vec_32f, vec128_32f, blk128x128_32f, per_batch_scalar_32f };

/// One operand of the library, column-major.
struct Factor {
  DType format = DType::f32;           ///< format of the elements: f32, bf16, e4m3, e5m2
  bool transposed = false;             ///< whether its transpose is multiplied
  std::int64_t rows = 0, columns = 0;  ///< shape in memory
  std::int64_t stride = 0;             ///< elements between columns
  Scaling scaling = Scaling::none;     ///< scale mode
  std::uint32_t alignment = 0;         ///< alignment of the address in bytes, 256 at most
  /// Any total order, for the map.
  auto operator<=>(const Factor&) const = default;
};

/// The key of a plan: C^T [m, n] (+)= A B (+ bias), in the library's order. Of several GEMMs that are computed together
/// m, n and k are averages, and the extents and strides of matrices are 0.
struct DevicePlan {
  std::int64_t groups = 0;           ///< number of GEMMs that are computed together; 0: one GEMM
  std::int64_t m = 0, n = 0, k = 0;  ///< k is 0 if the library is not called
  Factor a, b;                       ///< our B and our A
  DType c = DType::f32;              ///< f32 or bf16
  std::int64_t c_stride = 0;         ///< elements between columns, our rows
  std::uint32_t c_alignment = 0;     ///< alignment of C, as in Factor
  bool accumulate = false;           ///< beta is 1
  bool fast_accumulation = false;    ///< fast accumulation, which only FP8 GEMMs have
  bool bias = false;                 ///< one element per row, our column
  DType bias_type = DType::f32;      ///< f32 or bf16
  std::uint32_t bias_alignment = 0;  ///< alignment of the bias, as in Factor
  /// Any total order, for the map.
  auto operator<=>(const DevicePlan&) const = default;
};

/// One call: the plan for the library, and the work left for the kernels of epilogue.cuh.
struct DeviceCall {
  DevicePlan plan;
  /// The library (if it is called) writes f32 sums [M, N] to scratch, and finish_cuda() computes C: if the library does
  /// not support the type of the bias, scales of operands that are not codes, row scales, or C's number of rows, or if
  /// K is 0.
  bool finish = false;
  bool after = false;  ///< scales of codes are applied by finish_cuda(), not by the library
  /// Elements to which one inverse scale is broadcast, if the other operand has row scales: the library needs vectors
  /// for both operands or for none. 0: no broadcast.
  std::int64_t broadcast_a = 0, broadcast_b = 0;

  /// Bytes of sums in scratch.
  std::size_t sums_bytes() const;
  /// Bytes of both broadcast scales in scratch, each aligned to 256.
  std::size_t broadcast_bytes() const;
  /// Offset of B's broadcast scales.
  std::size_t broadcast_b_at() const;
};

/// The call for operands that engine.cc has validated. `capability` is 90 for compute capability 9.0, 0 if the device
/// is unknown. The library applies row scales on compute capability 9.0 only; otherwise, and with `after`, they are
/// applied to the sums, with the same result by definition. Throws Error that names what this chip or the library does
/// not support.
DeviceCall describe(const Operand& a, const Operand& b, const View& c, const MatmulOptions& options, int capability,
                    bool after = false);

/// The plan of several calls that one grouped GEMM can compute: all with operands of the same types and orientations,
/// bf16 or FP8 with one scale for each matrix, and nothing left for finish_cuda(); addresses and lengths of columns are
/// multiples of 16 bytes, and no extent is 0. Averages of extents that differ are rounded up to powers of two, so that
/// few plans serve all divisions of rows. Empty for other calls, and for fewer than two.
/// Source: cuBLAS 13.5 manual, "cublasLtMatmul()", requirements of grouped matrices.
std::optional<DevicePlan> together(std::span<const DeviceCall> calls);

/// The plan of a call whose number of rows differs from call to call (VaryingRows), with that number rounded up to one
/// of a few, four for each doubling. The kernel that the library chooses for these rows then serves every number that
/// is rounded to them, so that the rows of experts need few plans. The rows of wgrad are the contraction.
DevicePlan with_rounded_rows(DevicePlan plan, GemmRole role);

/// The epilogue for finish_cuda(), without the scales that the library applies.
Epilogue epilogue_of(const DeviceCall& call, const Operand& a, const Operand& b, const MatmulOptions& options);

/// "float8_e4m3fn with row scales times float8_e4m3fn with row scales into bfloat16 [16, 32], K = 64": for messages.
std::string name_of(const DevicePlan& plan);

/// Whether an operand is FP8 codes as bytes, rather than FP8 values as bf16 or f32; or, in a dry run, FP4 codes.
bool is_codes(const Operand& o);

/// The options of one product, with its bias.
inline MatmulOptions with_bias(MatmulOptions options, const Product& product) {
  options.bias = product.bias;
  return options;
}

/// Throws Error "matrix multiply: reason".
[[noreturn]] inline void refuse(const std::string& reason) { throw Error("matrix multiply: " + reason); }

/// Shape of a matrix, such as "[4, 6]".
inline std::string shape_of(const View& v) {
  return "[" + std::to_string(v.shape[0]) + ", " + std::to_string(v.shape[1]) + "]";
}

}  // namespace fp8::gemm
