/// Operands of FP8 codes with scales of every kind in the layout for devices, and their exact product. Values are small
/// integers and scales powers of two, so that every sum is exact in f32 in any order.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fp8/device/philox.h"
#include "fp8/gemm/gemm.h"
#include "fp8_codes.h"

namespace fp8::gemm::testing {

/// How inverse scales are shared.
enum class Sharing : std::uint8_t { one, vector, block1x128, block128x128 };

/// How the scales of A and of B are shared, in every pair that a device supports.
struct SharingPair {
  Sharing a, b;
};
constexpr SharingPair kSharingPairs[] = {{Sharing::one, Sharing::one},
                                         {Sharing::vector, Sharing::vector},
                                         {Sharing::vector, Sharing::one},
                                         {Sharing::one, Sharing::vector},
                                         {Sharing::block1x128, Sharing::block1x128},
                                         {Sharing::block1x128, Sharing::block128x128},
                                         {Sharing::block128x128, Sharing::block1x128}};

/// Codes [outer, K] with unit stride along K, and their inverse scales.
struct Codes {
  tensor::Tensor memory, scale_memory;  ///< on the host
  View codes, scales;                   ///< codes and scales of an Operand
  DType format = DType::e4m3;
  Sharing sharing = Sharing::one;
  std::vector<float> values;  ///< [outer, K], scaled

  /// The operand A, or transposed the operand B.
  Operand operand(bool as_b) const {
    const ScaleBlocks blocks = sharing == Sharing::block1x128     ? ScaleBlocks::block1x128
                               : sharing == Sharing::block128x128 ? ScaleBlocks::block128x128
                                                                  : ScaleBlocks::none;
    return {as_b ? codes.transposed() : codes, format, scales, blocks};
  }
};

/// A power of two from 1/4 to 2, different for each index.
inline float power_of_2(std::uint64_t seed, std::int64_t index) {
  return std::ldexp(1.0f, static_cast<int>(device::philox(seed, static_cast<std::uint64_t>(index), 1)[0] % 4) - 2);
}

/// Index of the scale of element (outer, k) in scale memory. Source: cuBLAS 13.1, "Scaling factors
/// layouts".
inline std::int64_t scale_at(Sharing sharing, std::int64_t outers, std::int64_t ks, std::int64_t outer,
                             std::int64_t k) {
  const auto up = [](std::int64_t n, std::int64_t to) { return (n + to - 1) / to; };
  switch (sharing) {
    case Sharing::one:
      return 0;
    case Sharing::vector:
      return outer;
    case Sharing::block1x128:
      return k / 128 * (8 * up(outers, 8)) + outer;
    case Sharing::block128x128:
      break;
  }
  return outer / 128 * (4 * up(up(ks, 128), 4)) + k / 128;
}

/// Codes of integers from -3 to 3 with random scales.
inline Codes make_codes(DType format, std::int64_t outer, std::int64_t k, Sharing sharing, std::uint64_t seed) {
  const std::int64_t stride = (k + 15) / 16 * 16, groups = (k + 127) / 128;
  Codes out;
  out.format = format;
  out.sharing = sharing;
  const std::int64_t lines = (outer + 7) / 8 * 8;  // lines of blocks of 1 x 128 can be read as a whole
  out.memory = tensor::Tensor(DType::u8, {sharing == Sharing::block1x128 ? lines : outer, stride});
  out.codes = out.memory.view().rows(0, outer).columns(0, k);
  if (sharing == Sharing::one || sharing == Sharing::vector) {
    out.scale_memory = tensor::Tensor(DType::f32, {sharing == Sharing::one ? 1 : outer});
    out.scales = out.scale_memory.view();
  } else if (sharing == Sharing::block1x128) {
    out.scale_memory = tensor::Tensor(DType::f32, {groups, lines});
    out.scales = out.scale_memory.view().columns(0, outer).transposed();
  } else {
    out.scale_memory = tensor::Tensor(DType::f32, {(outer + 127) / 128, (groups + 3) / 4 * 4});
    out.scales = out.scale_memory.view().columns(0, groups);
  }
  auto* bytes = static_cast<std::uint8_t*>(out.memory.view().data);
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < k; ++i) {
      const auto word = device::philox(seed, static_cast<std::uint64_t>(o * k + i), 0)[0];
      const float value = static_cast<float>(word % 7) - 3.0f;
      const std::int64_t at = scale_at(sharing, outer, k, o, i);
      const float scale = power_of_2(seed, at);
      static_cast<float*>(out.scales.data)[at] = scale;
      bytes[o * stride + i] = format == DType::e4m3 ? dtype::to_e4m3(value) : dtype::to_e5m2(value);
      out.values.push_back(value * scale);
    }
  }
  return out;
}

/// C = A B^T of the scaled values, exact; f32 [rows of a, rows of b].
inline std::vector<float> product(const Codes& a, const Codes& b) {
  const std::int64_t m = a.codes.shape[0], n = b.codes.shape[0], k = a.codes.shape[1];
  std::vector<float> out;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += a.values[static_cast<std::size_t>(i * k + l)] * b.values[static_cast<std::size_t>(j * k + l)];
      out.push_back(sum);
    }
  }
  return out;
}

}  // namespace fp8::gemm::testing
