/// Extents, strides and addresses of the GEMMs of a group, which cuBLASLt reads from arrays on the device. Private to
/// this crate.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8/dtype/element.h"

namespace fp8::gemm {

/// Rows, columns and stride of the library's A, B and C of one GEMM.
inline constexpr int kGroupExtents = 9;
/// Addresses of A, B, C and the scales of A and B of one GEMM.
inline constexpr int kGroupAddresses = 5;
/// Alpha and beta, which all GEMMs of a group share and the library reads on the device.
inline constexpr int kGroupFactors = 2;
/// GEMMs whose entries are arguments of one launch: 2496 bytes of the 4096 that every chip has.
inline constexpr int kGroupsOfLaunch = 32;

/// One GEMM.
struct GroupEntry {
  std::uint64_t addresses[kGroupAddresses];  ///< A, B, C, scale of A, scale of B
  std::int32_t extents[kGroupExtents];       ///< rows, columns, stride of A, of B and of C
};

/// Entries of one launch.
struct GroupEntries {
  GroupEntry at[kGroupsOfLaunch];  ///< as many as the launch has
};

/// The place of the arrays: arrays of addresses one after the other, then arrays of extents, then alpha and beta.
struct GroupArrays {
  std::byte* memory = nullptr;  ///< aligned to 16 bytes
  std::int64_t capacity = 0;    ///< elements of each array, a multiple of 4

  /// Bytes of all arrays of `capacity` elements.
  static std::size_t bytes(std::int64_t capacity) {
    return static_cast<std::size_t>(capacity) *
               (kGroupAddresses * sizeof(std::uint64_t) + kGroupExtents * sizeof(std::int32_t)) +
           kGroupFactors * sizeof(float);
  }
  /// The array of address `which` of GroupEntry.
  FP8_HD std::uint64_t* addresses(int which) const {
    return reinterpret_cast<std::uint64_t*>(memory) + which * capacity;
  }
  /// The array of extent `which` of GroupEntry.
  FP8_HD std::int32_t* extents(int which) const {
    return reinterpret_cast<std::int32_t*>(addresses(kGroupAddresses)) + which * capacity;
  }
  /// Alpha, and beta after it.
  FP8_HD float* factors() const { return reinterpret_cast<float*>(extents(kGroupExtents)); }
};

}  // namespace fp8::gemm
