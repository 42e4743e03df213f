/// Where the codes and scales of groups of rows lie in memory that all groups share. Each group has room for its
/// padding, and its place follows from its number and its first row alone, so that the memory of all groups depends on
/// the numbers of rows and groups only, and kernels need no other table than the first rows.
#pragma once

#include <cstdint>

#include "fp8/dtype/element.h"
#include "fp8/quant/tile_sizes.h"

namespace fp8::quant {

/// Groups of one launch. Their first rows are arguments of kernels, 2116 of the 4096 bytes that every chip has.
inline constexpr int kMostGroups = 512;
/// On a device, GEMMs with scales for blocks of 128 read rows of codes, and scales of rows, up to a multiple of this.
inline constexpr std::int64_t kDeviceRows = 8;
/// Lines of codes of a group, along both dimensions, are rounded up to a multiple of this.
inline constexpr std::int64_t kGroupLines = 16;

/// A bit for each group.
struct GroupBits {
  static constexpr int kBits = 32;           ///< bits of a word
  std::uint32_t words[kMostGroups / kBits];  ///< bit g % 32 of word g / 32 is that of group g
  /// Sets the bit of a group.
  void set(std::int64_t group) { words[group / kBits] |= std::uint32_t{1} << group % kBits; }
  /// Whether the bit of a group is set.
  FP8_HD bool has(std::int64_t group) const { return (words[group / kBits] >> group % kBits & 1u) != 0; }
};

/// First rows of groups, and the number of rows after the last of them.
struct RowGroups {
  std::int32_t count;                   ///< groups
  std::int32_t first[kMostGroups + 1];  ///< as many as `count` and one more
  GroupBits known;                      ///< groups that need no amax, because their scale is known
};

/// What is counted up to a group to find its part of an array.
enum class GroupUnit : std::uint8_t {
  group,       ///< groups
  line,        ///< rows with padding to kGroupLines
  tile,        ///< kTile rows, the last ones of each group fewer
  four_tiles,  ///< tiles with padding to four
};

/// The beginning of a group. The one past the last group gives the size of all.
struct GroupStart {
  std::int64_t group;  ///< its number
  std::int64_t row;    ///< its first row in the matrix

  /// The units before this group. For each, n rows need at most as many as lie between two groups n rows apart.
  FP8_HD std::int64_t at(GroupUnit unit) const {
    const std::int64_t tiles = row / kTile + group;
    switch (unit) {
      case GroupUnit::line:
        return (row + (group + 1) * (kGroupLines - 1)) / kGroupLines * kGroupLines;
      case GroupUnit::tile:
        return tiles;
      case GroupUnit::four_tiles:
        return (tiles + (group + 1) * 3) / 4 * 4;
      case GroupUnit::group:
        break;
    }
    return group;
  }
};

/// Elements of an array for one unit.
struct GroupStep {
  GroupUnit unit = GroupUnit::group;  ///< unit
  std::int64_t each = 0;              ///< elements
  /// Elements of the array before a group.
  FP8_HD std::int64_t before(const GroupStart& start) const { return start.at(unit) * each; }
};

}  // namespace fp8::quant
