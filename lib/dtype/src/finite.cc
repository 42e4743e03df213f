// The exponent bits of infinities and NaN are all ones, so without the sign bit a non-finite value is an integer above
// those of all finite values; with the sign bit, so is every negative value.
#include "fp8/dtype/finite.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/dtype/element.h"

namespace fp8::dtype {
namespace {

// Whether all values, as integers without the bits outside `mask`, are below `first_bad`.
template <class Bits>
bool all_below(std::span<const std::byte> bytes, std::uint64_t mask, std::uint64_t first_bad) {
  Bits largest = 0;
  const std::byte* const data = bytes.data();
  const std::size_t count = bytes.size() / sizeof(Bits);
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * sizeof(Bits), sizeof(Bits));
    largest = std::max(largest, static_cast<Bits>(bits & static_cast<Bits>(mask)));
  }
  return largest < first_bad;
}

}  // namespace

bool all_finite(DType type, std::span<const std::byte> bytes, bool unsigned_only) {
  if (bytes.size() % size_of(type) != 0) throw Error("values: not a whole number of elements");
  const auto mask = [&](unsigned bits) { return (std::uint64_t{1} << (bits - (unsigned_only ? 0 : 1))) - 1; };
  switch (type) {
    case DType::f32:
      return all_below<std::uint32_t>(bytes, mask(32), 0x7F800000u);
    case DType::bf16:
      return all_below<std::uint16_t>(bytes, mask(16), 0x7F80u);
    case DType::f16:
      return all_below<std::uint16_t>(bytes, mask(16), 0x7C00u);
    case DType::f64:
      return all_below<std::uint64_t>(bytes, unsigned_only ? ~std::uint64_t{0} : mask(64), 0x7FF0000000000000u);
    case DType::e4m3:
      return all_below<std::uint8_t>(bytes, mask(8), 0x7Fu);
    case DType::e5m2:
      return all_below<std::uint8_t>(bytes, mask(8), 0x7Cu);
    case DType::e8m0:
      return all_below<std::uint8_t>(bytes, 0xFFu, 0xFFu);
    case DType::e2m1:  // every code is finite
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64:
    case DType::i32:
    case DType::i64:
      break;
  }
  return true;
}

std::string bad_scale(std::span<const float> scales, DType codes) {
  if (is_fp4(codes)) {
    const auto bad = std::ranges::find_if(scales, [](float s) { return !(s >= 0 && std::isfinite(s)); });
    if (bad == scales.end()) return "";
    return "scale at index " + std::to_string(bad - scales.begin()) + " is " + format_short(*bad, 6);
  }
  const float half = max_of(codes) / 2;
  const auto product_is_finite = [&](float s) { return std::isfinite(to_float(to_bf16(s * half))); };
  const auto bad = std::ranges::find_if(scales, [&](float s) { return !(s > 0 && product_is_finite(s)); });
  if (bad == scales.end()) return "";
  return "scale at index " + std::to_string(bad - scales.begin()) + " is " + format_short(*bad, 6) +
         (*bad > 0 && std::isfinite(*bad) ? ", and " + format_short(half, 6) + " times it is not finite in bf16" : "");
}

}  // namespace fp8::dtype
