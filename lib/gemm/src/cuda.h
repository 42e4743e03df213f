/// The half of this crate that needs CUDA. Builds without it have stand-ins that say so.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "device_plan.h"
#include "fp8/gemm/gemm.h"

namespace fp8::gemm {

/// See Engine, whose device half it is.
class DeviceGemm {
 public:
  DeviceGemm() = default;
  DeviceGemm(const DeviceGemm&) = delete;
  DeviceGemm& operator=(const DeviceGemm&) = delete;
  virtual ~DeviceGemm() = default;
  /// Runs one call that engine.cc has checked; when ctx is dry, makes its plan (where ctx has a stream) and notes its
  /// scratch.
  virtual void run(const Context& ctx, const Operand& a, const Operand& b, const View& c,
                   const MatmulOptions& options) = 0;
  /// Bytes of all scratch that calls so far need.
  virtual std::size_t scratch_bytes() const = 0;
};

/// A device half without plans; the library is loaded by its first plan. Throws Error where there is no CUDA.
std::unique_ptr<DeviceGemm> make_device_gemm();

/// What a plan came to in cuBLASLt's own objects, read back from them: for tests, which need no device for it.
struct BuiltPlan {
  int transposed_a = 0, transposed_b = 0;             ///< cublasOperation_t
  int scale_mode_a = 0, scale_mode_b = 0;             ///< cublasLtMatmulMatrixScale_t
  int fast_accumulation = 0;                          ///< 0 or 1
  int epilogue = 0;                                   ///< cublasLtEpilogue_t
  int bias_type = 0;                                  ///< cudaDataType
  std::int64_t rows[3]{}, columns[3]{}, stride[3]{};  ///< of A, B and C
  int type[3]{};                                      ///< cudaDataType of A, B and C
  std::uint64_t workspace = 0;                        ///< bytes that a kernel may take
  std::uint32_t reductions = 0;                       ///< cublasLtReductionScheme_t that are allowed
  std::uint32_t alignment[4]{};                       ///< of A, B, C and D
};

/// Makes the library's objects for a plan and reads them back. Throws Error where the library cannot be loaded.
BuiltPlan build_for_test(const DevicePlan& plan);

}  // namespace fp8::gemm
