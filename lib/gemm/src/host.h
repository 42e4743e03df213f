/// Matrix multiply on the host: which oneDNN multiplications a call is made of, and the scratch memory they share. Sums
/// of tensor cores are TensorCoreGemm's. Operands are already validated (engine.cc); nothing is counted here.
#pragma once

#include <cstddef>

#include "epilogue.h"
#include "fp8/gemm/gemm.h"
#include "plan.h"
#include "scratch.h"
#include "tensor_core.h"

namespace fp8::gemm {

/// See Engine, whose host half it is.
class HostGemm {
 public:
  /// Chooses the way of bf16 by the CPU when asked to detect.
  explicit HostGemm(HostBf16 bf16);
  /// Runs one call, or when `dry` makes its plans and notes its scratch.
  void run(bool dry, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options);
  /// Bytes of all scratch that calls so far need.
  std::size_t scratch_bytes() const;

 private:
  View upcast(bool dry, const View& v, Scratch& scratch);
  View contiguous_row(bool dry, const View& v, Scratch& scratch);
  void multiply(bool dry, const View& a, const View& b, const View& c, bool accumulate);
  void multiply_once(bool dry, const View& a, const View& b, const View& c, bool accumulate);
  void run_tiles(bool dry, const View& a, const View& b, const View& c, const Epilogue& epilogue);

  bool upcast_;
  PlanCache plans_;
  TensorCoreGemm tensor_core_{tensor_core_kernels()};
  Scratch scratchpad_{device::DeviceType::host}, sums_{device::DeviceType::host}, a_{device::DeviceType::host},
      b_{device::DeviceType::host};
};

}  // namespace fp8::gemm
