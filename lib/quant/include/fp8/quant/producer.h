/// Casts of matrices that an operation on a device computes: the kernel that computes the elements rounds them to bf16
/// in registers, as if it stored them, and writes their codes. Codes, scales, amaxes and counts have the bits of a cast
/// of the stored matrix.
#pragma once

#include "fp8/quant/keep.h"

namespace fp8::quant {

/// Memory for the results of a cast, and the rest of what the kernel needs. Each matrix of `codes` has scales that are
/// in memory, or has blocks, whose scales the kernel computes.
struct ProducedCodes {
  QuantizedPair codes;           ///< a matrix without codes is not wanted
  bool shared = false;           ///< CastPair::shared()
  bool power_of_2 = false;       ///< rounds scales of blocks down to powers of two
  View amax{};                   ///< f32 [1], becomes max(itself, amax without NaN); empty: not recorded
  CastCounts* counts = nullptr;  ///< added to if not null; on the device
};

/// Whether an operation can write the codes of a bf16 matrix with these casts: on a device with FP8, where scales of
/// whole tensors are known, by themselves or by the amax, the others are of blocks of 128, ranks do not share the
/// matrix, and all codes have one format.
bool can_produce(const Context& ctx, const CastPair& casts, const CastOptions& options);

/// Allocates the results of quantize_both() of a matrix [rows, cols] that can_produce() allows, in the same memory, and
/// computes scales from a given amax. With `keep` in that of quantize_keeping(), which counts both casts.
ProducedCodes begin_produced(const Context& ctx, std::int64_t rows, std::int64_t cols, const CastPair& casts,
                             const CastOptions& options, device::PooledMemory* keep = nullptr);

/// Bytes that a kernel writes for the results, scales of blocks included.
double bytes_of_produced(const ProducedCodes& to);

}  // namespace fp8::quant
