// Checks, then the loops of convert.isa.cc.
#include "fp8/dtype/convert.h"

#include <cstring>
#include <string>

#include "convert_kernels.h"
#include "fp8/base/error.h"

namespace fp8::dtype {
namespace {

void require_equal(std::size_t in, std::size_t out) {
  if (in != out) throw Error("convert: " + std::to_string(in) + " elements into " + std::to_string(out));
}

[[noreturn]] void refuse(DType type, const char* what) { throw Error(std::string(name_of(type)) + ": " + what); }

}  // namespace

void convert(std::span<const float> in, std::span<Bf16> out) {
  require_equal(in.size(), out.size());
  convert_kernels().f32_to_bf16(in.data(), out.data(), in.size());
}

void convert(std::span<const Bf16> in, std::span<float> out) {
  require_equal(in.size(), out.size());
  convert_kernels().bf16_to_f32(in.data(), out.data(), in.size());
}

void decode_fp8(DType format, std::span<const std::uint8_t> in, std::span<Bf16> out) {
  require_equal(in.size(), out.size());
  if (!is_fp8(format)) refuse(format, "not an FP8 format");
  const ConvertKernels& kernels = convert_kernels();
  (format == DType::e4m3 ? kernels.e4m3_to_bf16 : kernels.e5m2_to_bf16)(in.data(), out.data(), in.size());
}

void to_floats(DType type, const void* in, std::span<float> out) {
  float* const to = out.data();
  const std::size_t n = out.size();
  const ConvertKernels& kernels = convert_kernels();
  switch (type) {
    case DType::f32:
      if (n > 0) std::memmove(to, in, n * sizeof(float));
      return;
    case DType::f64:
      return kernels.f64_to_f32(in, to, n);
    case DType::bf16:
      return kernels.bf16_to_f32(in, to, n);
    case DType::f16:
      return kernels.f16_to_f32(in, to, n);
    case DType::e4m3:
      return kernels.e4m3_to_f32(in, to, n);
    case DType::e5m2:
      return kernels.e5m2_to_f32(in, to, n);
    case DType::e2m1:
      if (n % 2 != 0) refuse(type, "an odd number of elements");
      return kernels.e2m1_to_f32(in, to, n);
    case DType::e8m0:
      return kernels.e8m0_to_f32(in, to, n);
    default:
      refuse(type, "not a floating-point format");
  }
}

void pack_e2m1(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) {
  require_equal(in.size(), 2 * out.size());
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::uint8_t>((in[2 * i] & 15u) | (in[2 * i + 1] & 15u) << 4);
}

void from_floats(std::span<const float> in, DType type, void* out) {
  if (type == DType::f32) {
    if (!in.empty()) std::memmove(out, in.data(), in.size_bytes());
  } else if (type == DType::bf16) {
    convert_kernels().f32_to_bf16(in.data(), static_cast<Bf16*>(out), in.size());
  } else {
    refuse(type, "floats are stored as float32 or bfloat16");
  }
}

}  // namespace fp8::dtype
