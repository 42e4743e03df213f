/// The GEMMs of a device. Implemented in cublaslt.cu; in builds without CUDA make_device_gemm() throws Error. Private
/// to this crate.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "fp8/device/profile.h"
#include "fp8/gemm/gemm.h"

namespace fp8::gemm {

/// GEMMs of an Engine on a device.
class DeviceGemm {
 public:
  DeviceGemm() = default;
  DeviceGemm(const DeviceGemm&) = delete;
  DeviceGemm& operator=(const DeviceGemm&) = delete;
  virtual ~DeviceGemm() = default;
  /// Runs one call that engine.cc has validated. In a dry run makes its plan and records its scratch.
  virtual void run(const Context& ctx, const Operand& a, const Operand& b, const View& c,
                   const MatmulOptions& options) = 0;
  /// Computes all products, which engine.cc has validated, in one call of the library, and records `recorded` in the
  /// profile of `ctx`. False if the library does not: then nothing was computed, and a note says so unless no library
  /// could. In a dry run records its scratch, and returns false.
  virtual bool run_together(const Context& ctx, std::span<const Product> products, const MatmulOptions& options,
                            const device::Span& recorded) = 0;
  /// Whether the calls are those of layers whose number of rows differs from call to call, see VaryingRows.
  bool rows_vary = false;
  /// Bytes of scratch that the calls so far need.
  virtual std::size_t scratch_bytes() const = 0;
};

/// Without plans; the first plan loads the library.
std::unique_ptr<DeviceGemm> make_device_gemm();

}  // namespace fp8::gemm
