/// What chips promise: dense peaks of their tensor cores, from their data sheets, to say how near a measurement comes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fp8::probe {

/// Compute capability of the first chips with FP8 tensor cores, 89 for 8.9.
inline constexpr int kFirstFp8 = 89;

/// Floating-point operations a second of dense matrix multiply, sums in f32.
struct Peak {
  double bf16 = 0;       ///< of bf16 operands
  double fp8 = 0;        ///< of FP8 operands; 0: the chip has none, or it is not known
  std::string source{};  ///< where the numbers come from
};

/// The peak of the chip of that name, as CUDA tells it ("NVIDIA H100 80GB HBM3"); nothing for one that is not in the
/// table.
std::optional<Peak> known_peak(std::string_view name);

}  // namespace fp8::probe
