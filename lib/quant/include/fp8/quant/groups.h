/// Casts of consecutive groups of the rows of a matrix on a device, each as if it were a matrix alone: the rows of
/// experts, and the weights of experts that are parts of one matrix. Results have the bits of quantize_both() and
/// from_bytes() of each group, in memory that depends on the numbers of rows and groups only, and the number of
/// launches does not depend on the number of groups up to 512.
#pragma once

#include <span>
#include <vector>

#include "fp8/quant/quantize.h"

namespace fp8::quant {

/// Whether the functions below have this case: bf16 on a device, with a multiple of 16 columns, amaxes of this rank
/// alone, no blocks whose codes are emulated, and KnownScales, if there are any, of which all have a scale and are
/// equally far apart in memory; some may have KnownScale::own_amax. `known` has an element for each group, or none.
bool casts_groups(const Context& ctx, dtype::DType type, std::int64_t columns, const CastPair& casts,
                  const CastOptions& options, std::span<const KnownScale> known);

/// Where the codes and scales of groups for the GEMMs that contract the first dimension stay after the arena is
/// released. Their memory does not depend on the rows that there are, so that the next layer finds as much.
struct KeptGroups {
  device::PooledMemory* memory = nullptr;  ///< null: they are in the arena too
  std::int64_t rows = 0;                   ///< the most rows that x can have
};

/// Whether quantize_groups() can keep the codes of `groups` groups of x, of which shape and type are read, and whether
/// they take less memory than x with as many rows: both casts are to FP8 without emulation, and one launch has all
/// groups.
bool keeps_groups(const Context& ctx, const View& x, std::int64_t groups, const CastPair& casts,
                  const CastOptions& options, std::span<const KnownScale> known);

/// quantize_both() of each group of x [M, K] bf16, rows with unit stride; group g has the rows [first[g], first[g +
/// 1]), and first[0] is 0. `known` replaces CastOptions::known. Amaxes are not given (CastOptions::amax is empty).
/// Memory from the arena, category "fp8 codes", and from `keep`, category "activation codes", which must not have fewer
/// rows than x; known scales are referred to by the result all the same. With `keep` both casts are counted, as if each
/// were alone. At most four launches, of which two read x, for the same format of both casts. Throws Error unless
/// casts_groups() and, with `keep`, keeps_groups().
std::vector<QuantizedPair> quantize_groups(const Context& ctx, const View& x, std::span<const std::int64_t> first,
                                           const CastPair& casts, const CastOptions& options,
                                           std::span<const KnownScale> known, const KeptGroups& keep = {});

/// amax() of each group of x [M, K], f32 or bf16, rows with unit stride, all with rows: of the group, f32 [groups],
/// with Granularity::tensor, else of each of its columns, [groups K]. On a device with a multiple of 16 columns two
/// launches, else a call for each group.
void amax_groups(const Context& ctx, const View& x, std::span<const std::int64_t> first, Granularity granularity,
                 const View& out);

/// cast_to_bytes() of each group of contiguous x [M, K], f32 or bf16, or cast_columns_to_bytes(): codes u8 [M, K],
/// contiguous. `scales` is f32, adjacent, one for each group, [groups], or for each column of each group, [groups K].
/// `counts` (may be null) is added to. On a device with a multiple of 16 columns one launch, else a call for each
/// group.
void cast_groups_to_bytes(const Context& ctx, const View& x, std::span<const std::int64_t> first, dtype::DType format,
                          const View& scales, const View& codes, CastCounts* counts);

/// Whether from_bytes_groups() has codes with so many columns: on a device, a multiple of 16.
bool moves_groups(const Context& ctx, std::int64_t columns);

/// from_bytes() of each group of contiguous codes u8 [M, K] that moves_groups() has. `scale` and `inverse_scale` are
/// f32, adjacent: [groups], or one for each row, [M], if `contract` is last, else for each column of each group,
/// [groups K]; or of three dimensions, the blocks of 128 x 128 of each group, which all have equally many: [groups, M /
/// groups / 128, K / 128] with the strides of Quantized::scale in a group. `emulate` not with blocks. At most two
/// launches.
std::vector<Quantized> from_bytes_groups(const Context& ctx, const View& codes, std::span<const std::int64_t> first,
                                         dtype::DType format, ContractionAxis contract, const View& scale,
                                         const View& inverse_scale, bool emulate);

}  // namespace fp8::quant
