/// Dense peak FLOP/s of GPUs, from their data sheets, for shares of the peak.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fp8::probe {

/// Compute capability of the first chips with FP8 tensor cores, 89 for 8.9.
inline constexpr int kFirstFp8 = 89;

/// Peak FLOP/s of dense matrix multiply with f32 accumulation.
struct Peak {
  double bf16 = 0;       ///< peak with bf16 operands
  double fp8 = 0;        ///< peak with FP8 operands; 0 if they are not supported, or unknown
  std::string source{};  ///< source of the numbers
};

/// The peak of a chip by its CUDA name ("NVIDIA H100 80GB HBM3"); nullopt for a chip that is not in the table.
std::optional<Peak> known_peak(std::string_view name);

}  // namespace fp8::probe
