// Loops over arrays of elements. Each body is one inline function of element.h, so that the compiler can vectorize it;
// nothing here knows about instruction sets.
#include "fp8/dtype/convert.h"

#include <bit>
#include <cstring>
#include <string>

#include "fp8/base/error.h"

namespace fp8::dtype {
namespace {

void require_equal(std::size_t in, std::size_t out) {
  if (in != out) throw Error("convert: " + std::to_string(in) + " elements into " + std::to_string(out));
}

[[noreturn]] void refuse(DType type, const char* what) { throw Error(std::string(name_of(type)) + ": " + what); }

// out[i] = function(in[i])
template <class In, class Out, class Function>
void map(const In* in, Out* out, std::size_t n, Function function) {
#pragma omp simd
  for (std::size_t i = 0; i < n; ++i) out[i] = function(in[i]);
}

// The same over elements that may lie at any byte, as in a mapped file.
template <class In, class Function>
void map_unaligned(const void* in, float* out, std::size_t n, Function function) {
  const auto* bytes = static_cast<const unsigned char*>(in);
#pragma omp simd
  for (std::size_t i = 0; i < n; ++i) {
    In v;
    std::memcpy(&v, bytes + i * sizeof(In), sizeof(In));
    out[i] = function(v);
  }
}

float from_f16(std::uint16_t v) {
  const std::uint32_t sign = (v & 0x8000u) << 16, m = v & 0x7FFFu;
  const std::uint32_t normal = (m << 13) + (112u << 23);
  // Subnormal: m counts units of 2^-24, which are the units in the last place of 1/2.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(0x3F000000u | m) - 0.5f);
  const std::uint32_t finite = m < 0x400u ? subnormal : normal;
  return std::bit_cast<float>((m >= 0x7C00u ? (m << 13) | 0x7F800000u : finite) | sign);
}

}  // namespace

void convert(std::span<const float> in, std::span<Bf16> out) {
  require_equal(in.size(), out.size());
  map(in.data(), out.data(), in.size(), [](float v) { return to_bf16(v); });
}

void convert(std::span<const Bf16> in, std::span<float> out) {
  require_equal(in.size(), out.size());
  map(in.data(), out.data(), in.size(), [](Bf16 v) { return to_float(v); });
}

void decode_fp8(DType format, std::span<const std::uint8_t> in, std::span<Bf16> out) {
  require_equal(in.size(), out.size());
  if (format == DType::e4m3)
    map(in.data(), out.data(), in.size(), [](std::uint8_t c) { return Bf16{decode_to_bf16<E4m3Grid>(c)}; });
  else if (format == DType::e5m2)
    map(in.data(), out.data(), in.size(), [](std::uint8_t c) { return Bf16{decode_to_bf16<E5m2Grid>(c)}; });
  else
    refuse(format, "not an FP8 format");
}

void decode_fp8(DType format, std::span<const std::uint8_t> in, std::span<float> out) {
  require_equal(in.size(), out.size());
  if (format == DType::e4m3)
    map(in.data(), out.data(), in.size(), [](std::uint8_t c) { return from_e4m3(c); });
  else if (format == DType::e5m2)
    map(in.data(), out.data(), in.size(), [](std::uint8_t c) { return from_e5m2(c); });
  else
    refuse(format, "not an FP8 format");
}

void to_floats(DType type, const void* in, std::span<float> out) {
  float* const to = out.data();
  const std::size_t n = out.size();
  switch (type) {
    case DType::f32:
      if (n > 0) std::memmove(to, in, n * sizeof(float));
      return;
    case DType::f64:
      return map_unaligned<double>(in, to, n, [](double v) { return static_cast<float>(v); });
    case DType::bf16:
      return map_unaligned<Bf16>(in, to, n, [](Bf16 v) { return to_float(v); });
    case DType::f16:
      return map_unaligned<std::uint16_t>(in, to, n, [](std::uint16_t v) { return from_f16(v); });
    case DType::e4m3:
    case DType::e5m2:
      return decode_fp8(type, {static_cast<const std::uint8_t*>(in), n}, out);
    case DType::e8m0:
      return map(static_cast<const std::uint8_t*>(in), to, n, [](std::uint8_t c) { return from_e8m0(c); });
    default:
      refuse(type, "not a floating-point format");
  }
}

void from_floats(std::span<const float> in, DType type, void* out) {
  if (type == DType::f32) {
    if (!in.empty()) std::memmove(out, in.data(), in.size_bytes());
  } else if (type == DType::bf16) {
    map(in.data(), static_cast<Bf16*>(out), in.size(), [](float v) { return to_bf16(v); });
  } else {
    refuse(type, "floats are stored as float32 or bfloat16");
  }
}

}  // namespace fp8::dtype
