/// FP8 GEMMs on the host with the accumulation of tensor cores, whose rule is in tensor_core_kernels.h. Operands have
/// been validated by engine.cc, which also counts. Private to this crate.
#pragma once

#include <cstddef>

#include "epilogue.h"
#include "fp8/gemm/gemm.h"
#include "scratch.h"
#include "tensor_core_kernels.h"

namespace fp8::gemm {

/// FP8 GEMMs of an Engine with emulated accumulation. Bits do not depend on instruction set or number of threads.
class TensorCoreGemm {
 public:
  /// A GEMM that uses the loops of one instruction set.
  explicit TensorCoreGemm(const TensorCoreKernels& kernels) : kernels_(kernels) {}
  /// Computes C = A B like Engine::matmul if options.accumulation is not f32. If `dry`, it only records its scratch.
  ///   a, b  FP8 values as bf16; both with scales for blocks of 128, or neither
  void run(bool dry, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options);
  /// Bytes of scratch that the calls so far need.
  std::size_t scratch_bytes() const;

 private:
  struct Tile;
  void sum(const Tile& tile, const TensorCoreLoops& loops, bool fast);

  const TensorCoreKernels& kernels_;
  Scratch a_{device::DeviceType::host}, b_{device::DeviceType::host}, sums_{device::DeviceType::host},
      scales_{device::DeviceType::host};
};

}  // namespace fp8::gemm
