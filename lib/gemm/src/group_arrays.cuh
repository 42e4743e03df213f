/// The kernel that writes the arrays of group_arrays.h. Entries are its arguments, so that no memory of the host must
/// outlive the call.
#pragma once

#include <algorithm>
#include <span>

#include "fp8/device/kernel.h"
#include "group_arrays.h"

namespace fp8::gemm {

static_assert(kGroupsOfLaunch == device::kWarp);

/// One thread for each entry: writes the entries [first, first + count) of the arrays, and alpha 1 and beta. A
/// template, so that sources can share it.
template <class Entries>
__global__ void group_arrays_kernel(Entries entries, int first, int count, float beta, GroupArrays to) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < kGroupFactors) to.factors()[i] = i == 0 ? 1.0f : beta;
  if (i >= count) return;
  FP8_UNROLL
  for (int a = 0; a < kGroupAddresses; ++a) to.addresses(a)[first + i] = entries.at[i].addresses[a];
  FP8_UNROLL
  for (int e = 0; e < kGroupExtents; ++e) to.extents(e)[first + i] = entries.at[i].extents[e];
}

/// Writes the arrays of all entries, of which there are at most to.capacity.
template <class Launcher>
void write_group_arrays(const Launcher& launch, std::span<const GroupEntry> entries, float beta,
                        const GroupArrays& to) {
  for (std::size_t first = 0; first < entries.size(); first += kGroupsOfLaunch) {
    GroupEntries part{};
    const std::size_t count = std::min<std::size_t>(kGroupsOfLaunch, entries.size() - first);
    std::copy_n(entries.begin() + static_cast<std::ptrdiff_t>(first), count, part.at);
    launch("gemm group arrays", dim3(1), dim3(device::kWarp), group_arrays_kernel<GroupEntries>, part,
           static_cast<int>(first), static_cast<int>(count), beta, to);
  }
}

}  // namespace fp8::gemm
