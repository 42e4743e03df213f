/// The GEMMs of a device. Implemented in cublaslt.cu; in builds without CUDA make_device_gemm() throws Error. Private
/// to this crate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "fp8/device/profile.h"
#include "fp8/gemm/gemm.h"

namespace fp8::gemm {

/// What a profile records of the GEMMs of one call.
struct Recorded {
  device::Work work = device::Work::matmul_other;  ///< kind of work
  std::string_view name;                           ///< kind of the operands
  double bytes = 0;                                ///< bytes of all operands and results
  double flops = 0;                                ///< 2 M N K of each, summed
  std::array<std::int64_t, 3> mnk{};               ///< sum of M, N, average K
};

/// GEMMs of an Engine on a device.
class DeviceGemm {
 public:
  DeviceGemm() = default;
  DeviceGemm(const DeviceGemm&) = delete;
  DeviceGemm& operator=(const DeviceGemm&) = delete;
  virtual ~DeviceGemm() = default;
  /// Runs one call that engine.cc has validated. In a dry run makes its plan (if ctx has a stream) and records its
  /// scratch.
  virtual void run(const Context& ctx, const Operand& a, const Operand& b, const View& c,
                   const MatmulOptions& options) = 0;
  /// Computes all products, which engine.cc has validated, in one call of the library, and records it in the profile of
  /// `ctx`. False if the library does not: then nothing was computed, and a note says so unless no library could. In a
  /// dry run records its scratch, and returns false.
  virtual bool run_together(const Context& ctx, std::span<const Product> products, const MatmulOptions& options,
                            const Recorded& recorded) = 0;
  /// Bytes of scratch that the calls so far need.
  virtual std::size_t scratch_bytes() const = 0;
};

/// Without plans; the first plan loads the library.
std::unique_ptr<DeviceGemm> make_device_gemm();

}  // namespace fp8::gemm
