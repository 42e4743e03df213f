// Loops over arrays of elements. Each body is one inline function of element.h, so that the compiler can vectorize it.
#include <bit>
#include <cstring>

#include "convert_kernels.h"
#include "fp8/dtype/e2m1.h"

namespace fp8::dtype {
namespace {

void to_bf16s(const float* in, Bf16* out, std::size_t n) {
#pragma omp simd
  for (std::size_t i = 0; i < n; ++i) out[i] = to_bf16(in[i]);
}

// out[i] = kFunction(in[i]) over elements at any alignment.
template <class In, class Out, Out (*kFunction)(In)>
void map(const void* in, Out* out, std::size_t n) {
  const auto* bytes = static_cast<const unsigned char*>(in);
#pragma omp simd
  for (std::size_t i = 0; i < n; ++i) {
    In v;
    std::memcpy(&v, bytes + i * sizeof(In), sizeof(In));
    out[i] = kFunction(v);
  }
}

template <class Grid>
inline Bf16 decoded(std::uint8_t code) {
  return Bf16{decode_to_bf16<Grid>(code)};
}

inline float from_f64(double v) { return static_cast<float>(v); }
inline float from_f16(std::uint16_t v) {
  const std::uint32_t sign = (v & 0x8000u) << 16, m = v & 0x7FFFu;
  const std::uint32_t normal = (m << 13) + (112u << 23);
  // Subnormal: m counts units of 2^-24, the unit in the last place of 1/2.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(0x3F000000u | m) - 0.5f);
  const std::uint32_t finite = m < 0x400u ? subnormal : normal;
  return std::bit_cast<float>((m >= 0x7C00u ? (m << 13) | 0x7F800000u : finite) | sign);
}

void e2m1_to_f32(const void* in, float* out, std::size_t n) {
  const auto* bytes = static_cast<const std::uint8_t*>(in);
#pragma omp simd
  for (std::size_t i = 0; i < n; ++i)
    out[i] = e2m1_value(static_cast<std::uint8_t>(bytes[i / 2] >> (i % 2 == 0 ? 0 : 4)));
}

}  // namespace

constinit const ConvertKernels FP8_ISA::kConvertKernels{
    .f32_to_bf16 = to_bf16s,
    .e4m3_to_bf16 = map<std::uint8_t, Bf16, decoded<E4m3Grid>>,
    .e5m2_to_bf16 = map<std::uint8_t, Bf16, decoded<E5m2Grid>>,
    .bf16_to_f32 = map<Bf16, float, to_float>,
    .f64_to_f32 = map<double, float, from_f64>,
    .f16_to_f32 = map<std::uint16_t, float, from_f16>,
    .e4m3_to_f32 = map<std::uint8_t, float, from_e4m3>,
    .e5m2_to_f32 = map<std::uint8_t, float, from_e5m2>,
    .e2m1_to_f32 = e2m1_to_f32,
    .e8m0_to_f32 = map<std::uint8_t, float, from_e8m0>,
};

}  // namespace fp8::dtype
