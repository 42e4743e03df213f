/// Multiplication of FP8 codes on the host, summed as tensor cores sum them; the rule is in tensor_core_kernels.h.
/// Operands are already validated (engine.cc); nothing is counted here.
#pragma once

#include <cstddef>

#include "epilogue.h"
#include "fp8/gemm/gemm.h"
#include "scratch.h"
#include "tensor_core_kernels.h"

namespace fp8::gemm {

/// The part of Engine that emulates tensor cores. Bits depend neither on the loops nor on the number of threads.
class TensorCoreGemm {
 public:
  /// With the loops of an instruction set.
  explicit TensorCoreGemm(const TensorCoreKernels& kernels) : kernels_(kernels) {}
  /// C = A B as Engine::matmul, where options.accumulation is not f32; when `dry` only notes its scratch.
  ///   a, b  FP8 codes as bf16
  void run(bool dry, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options);
  /// Bytes of scratch that calls so far need.
  std::size_t scratch_bytes() const;

 private:
  struct Tile;
  void sum(const Tile& tile, const TensorCoreLoops& loops, bool fast);

  const TensorCoreKernels& kernels_;
  Scratch a_{device::DeviceType::host}, b_{device::DeviceType::host}, sums_{device::DeviceType::host};
};

}  // namespace fp8::gemm
