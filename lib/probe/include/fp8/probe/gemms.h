/// Computes GEMMs of FP8 codes from a file with the accumulation of tensor cores, for scripts that study their sums.
#pragma once

#include <string>

#include "fp8/gemm/gemm.h"

namespace fp8::probe {

/// Reads codes from the plain HDF5 file `in` and writes their sums to `out`, atomically.
///   in   groups `<format of a>_<format of b>/<name>`, the formats e4m3 or e5m2, with datasets
///        a [M, K] and b [N, K], uint8; other datasets are ignored
///   out  the same groups with datasets fast, slow (sums of `accumulation`, not f32) and f32, each f32 [M, N]: a b^T
/// Deterministic; fast and slow do not depend on the number of threads. Throws Error when `in` has another layout, or
/// `out` exists without `force`.
void write_gemms(const std::string& in, const std::string& out, bool force, gemm::Accumulation accumulation);

}  // namespace fp8::probe
