// Reads in vectors of 64 bytes, added to sums of their own, so that no addition waits for another.
#include "read_loops.h"

namespace fp8::gemm {
namespace {

constexpr std::int64_t kLine = 64;  // bytes of a cache line and of a vector

using Vector [[gnu::vector_size(kLine)]] = std::uint64_t;

template <int kStreams, int kAhead>
std::uint64_t read(const std::uint64_t* data, std::int64_t bytes) {
  constexpr int kLines = 4;  // lines of a stream that are read at a time
  const std::int64_t lines = bytes / kStreams / kLine;
  const auto* const from = reinterpret_cast<const Vector*>(data);
  Vector sum[kLines] = {};
  for (std::int64_t line = 0; line < lines; line += kLines) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const Vector* const at = from + s * lines + line;
#pragma GCC unroll 4
      for (int l = 0; l < kLines; ++l) {
        if constexpr (kAhead > 0) __builtin_prefetch(at + l + kAhead / kLine);
        sum[l] += at[l];
      }
    }
  }
  const Vector all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  std::uint64_t total = 0;
  for (unsigned i = 0; i < sizeof all / sizeof total; ++i) total += all[i];
  return total;
}

}  // namespace

constinit const ReadKernels FP8_ISA::kReadKernels{
    {read<1, 0>, read<1, 1024>, read<1, ReadKernels::kAhead>, read<4, 0>, read<4, 1024>}};

}  // namespace fp8::gemm
