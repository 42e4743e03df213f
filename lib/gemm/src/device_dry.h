/// GEMMs of a device in a dry run that has no device: their checks, their scratch, and what a plan of time records.
/// Private to this crate.
#pragma once

#include <span>

#include "device_scratch.h"
#include "fp8/device/profile.h"
#include "fp8/gemm/gemm.h"

namespace fp8::gemm {

/// Whether the GEMMs of a context are those of a device that is not asked: without a stream, or in a plan of time,
/// which is of another machine.
inline bool runs_without_device(const Context& ctx) {
  return ctx.device == device::DeviceType::cuda && ctx.dry && (ctx.stream == nullptr || device::planned(ctx));
}

/// The GEMMs of an Engine in such contexts.
class DryGemm {
 public:
  /// Checks one call that engine.cc has validated, and records its scratch.
  void run(const Context& ctx, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options);
  /// Whether one call of the library computes all products, which engine.cc has validated: in a plan of time, with the
  /// newest library, if the chip has such calls; `recorded` is then recorded with its launches. Otherwise false, with
  /// the scratch that it would need.
  bool run_together(const Context& ctx, std::span<const Product> products, const MatmulOptions& options,
                    device::Span recorded);
  /// Adds to what a plan of time records of a GEMM the kernels beside the library's.
  static void add_kernels(const Context& ctx, const Product& product, const MatmulOptions& options, device::Span& span);
  /// Bytes of scratch that the calls so far need.
  std::size_t scratch_bytes() const { return scratch_.bytes(); }

 private:
  DeviceScratch scratch_;
};

/// The calls of products, with their bias, on a device of this capability, and the plan that computes them together, if
/// there is one.
struct TogetherCalls {
  std::vector<DeviceCall> calls;
  std::optional<DevicePlan> plan;
  TogetherCalls(std::span<const Product> products, const MatmulOptions& options, int capability);
};

}  // namespace fp8::gemm
