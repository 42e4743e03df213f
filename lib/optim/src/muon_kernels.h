/// The loops of muon.isa.cc: one chunk of a block or matrix, on one thread. Private to this crate. Same bits for every
/// instruction set.
#pragma once

#include "adamw_kernels.h"
#include "muon_element.h"

namespace fp8::optim {

/// An update of the momentum of a block, with arrays in the types of the kernel.
struct MomentumUpdate {
  const float* gradient;  ///< read
  void* momentum;         ///< updated
  void* direction;        ///< written
  Gate gate;              ///< skip flag and clipping factor
  RandomNumbers random;   ///< of stochastic rounding
};

/// A step of a block, with arrays in the types of the kernel.
struct MuonUpdate {
  void* master;                   ///< updated
  const void* direction;          ///< read
  void* compute_weight;           ///< written
  MuonCoefficients coefficients;  ///< shared by all elements
  Gate gate;                      ///< skip flag
  RandomNumbers random;           ///< of stochastic rounding
};

/// Loops of one instruction set over elements [begin, end), at most kChunk. Indices are types: 0 f32, 1 bf16.
struct MuonKernels {
  /// By the types of momentum and direction.
  void (*momentum[2][2])(const MomentumUpdate& update, std::int64_t begin, std::int64_t end);
  /// Returns the bits of the largest magnitude of the masters, with NaN above all. By the types of master, direction
  /// and compute weight (kNoComputeWeight: none).
  std::uint32_t (*step[2][2][3])(const MuonUpdate& update, std::int64_t begin, std::int64_t end);
  /// x /= divisor, by the type of x.
  void (*divide[2])(void* x, float divisor, std::int64_t begin, std::int64_t end);
  /// out = a x + b sums, rounded once, by the type of x and out.
  void (*combine[2])(const void* x, float a, const float* sums, float b, void* out, std::int64_t begin,
                     std::int64_t end);
};
FP8_ISA_TABLES(MuonKernels, kMuonKernels, muon_kernels)

}  // namespace fp8::optim
