/// Computes GEMMs of FP8 codes from a file with the accumulation of tensor cores, for scripts that study their sums.
#pragma once

#include <string>

#include "fp8/gemm/gemm.h"

namespace fp8::probe {

/// Reads codes from the safetensors file `in` and writes their sums to `out`, atomically.
///   in   tensors NAME/a [M, K] and NAME/b [N, K], each F8_E4M3 or F8_E5M2; other tensors are ignored
///   out  tensors NAME/fast, NAME/slow (sums of `accumulation`, not f32) and NAME/f32, each F32 [M, N]: a b^T
/// Deterministic; fast and slow do not depend on the number of threads. Throws Error when `in` has no such tensors or
/// one of another shape or format, or `out` exists without `force`.
void write_gemms(const std::string& in, const std::string& out, bool force, gemm::Accumulation accumulation);

}  // namespace fp8::probe
