/// Casts of matrices that an operation on a device computes: the kernel that computes the elements rounds them to bf16
/// in registers, as if it stored them, and writes their codes. Codes, scales, amaxes and counts have the bits of a cast
/// of the stored matrix.
#pragma once

#include "fp8/quant/group_cast.h"
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

/// The same for groups of rows, as quantize_groups() casts them.
struct ProducedGroups {
  GroupCast cast;                    ///< memory of all groups
  std::vector<QuantizedPair> codes;  ///< those of each group in it; a matrix without codes is not wanted
  CastOptions options;               ///< CastOptions::power_of_2 and CastOptions::counts count
};

/// Whether an operation can write the codes of `groups` groups of the rows of a bf16 matrix with so many columns:
/// casts_groups() has the casts, without emulation, all scales are known or of blocks of 128, all codes have one
/// format, and one launch has all groups.
bool can_produce_groups(const Context& ctx, std::int64_t columns, std::int64_t groups, const CastPair& casts,
                        const CastOptions& options, std::span<const KnownScale> known);

/// Allocates the results of quantize_groups() of x, of which shape and type are read, in the same memory. Throws Error
/// unless can_produce_groups() and, with `keep`, keeps_groups().
ProducedGroups begin_produced_groups(const Context& ctx, const View& x, std::span<const std::int64_t> first,
                                     const CastPair& casts, const CastOptions& options,
                                     std::span<const KnownScale> known, const KeptGroups& keep = {});

/// Bytes that a kernel writes for the results, scales of blocks included.
double bytes_of_produced(const ProducedGroups& to);

}  // namespace fp8::quant
