/// Casts of groups of rows on a device as data: memory and the places of groups in it.
#pragma once

#include <span>
#include <vector>

#include "fp8/quant/groups.h"
#include "fp8/quant/row_groups.h"

namespace fp8::quant {

/// Codes of all groups for GEMMs that contract one dimension. Without codes: not wanted.
struct GroupCodes {
  Cast cast;                                         ///< format and granularity
  ContractionAxis contract = ContractionAxis::last;  ///< dimension that the GEMMs contract
  View codes{};                                      ///< u8, flat, GroupUnit::line lines
  View scale{}, inverse_scale{};                     ///< f32, flat; of known scales those of the first group
  GroupStep step{};                                  ///< scales of a group
};

/// One call of quantize_groups().
struct GroupCast {
  View x;                               ///< [M, K]; of codes that an operation writes only shape and type
  std::vector<std::int64_t> first;      ///< first rows, and M
  GroupCodes last, of_first;            ///< results for both contractions
  View scales{}, inverse_scales{};      ///< f32, flat: all scales that are computed from amaxes; empty: none are
  bool shared = false;                  ///< CastPair::shared(), and elements are counted once
  View known_amax{};                    ///< f32 [1]: where the amax of the first group is recorded; empty: not
  std::int64_t known_step = 0;          ///< elements from it to that of the next group
  GroupBits known{};                    ///< groups whose scales are known while `scales` has those of all
  View known_scale{}, known_inverse{};  ///< f32 [1]: scale and reciprocal of the first group; empty: none is known
  std::int64_t scale_step = 0;          ///< elements from these to those of the next group
};

/// The number of groups.
inline std::int64_t groups_of(std::span<const std::int64_t> first) { return std::ssize(first) - 1; }

}  // namespace fp8::quant
