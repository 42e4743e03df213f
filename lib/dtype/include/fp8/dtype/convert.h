/// Loops over arrays of elements on the host: plain conversions between storage formats, vectorized, single-threaded
/// (callers split work). `in` and `out` must not overlap. Throws Error when sizes differ. Scaling, amaxes and recipes
/// are in quant.
#pragma once

#include <cstdint>
#include <span>

#include "fp8/dtype/dtype.h"
#include "fp8/dtype/element.h"

namespace fp8::dtype {

/// out[i] = in[i] rounded to nearest even; sizes must be equal.
void convert(std::span<const float> in, std::span<Bf16> out);
/// out[i] = in[i], exact; sizes must be equal.
void convert(std::span<const Bf16> in, std::span<float> out);
/// E4M3 or E5M2 codes to the BF16 values they represent, exact. Throws Error for another format.
void decode_fp8(DType format, std::span<const std::uint8_t> in, std::span<Bf16> out);
/// out.size() elements of format `type` (f32, bf16, f16, f64, e4m3, e5m2, e2m1, e8m0) at `in`, any alignment, to
/// floats; f64 is rounded. e2m1: two codes in each byte, the even element in the low four bits. Throws Error for an
/// integer format, and for an odd number of e2m1 elements.
void to_floats(DType type, const void* in, std::span<float> out);
/// Packs E2M1 codes, one in each byte, into half as many bytes: the even element into the low four bits. Throws Error
/// unless the sizes fit.
void pack_e2m1(std::span<const std::uint8_t> in, std::span<std::uint8_t> out);
/// Floats to `type` (f32 or bf16, rounded to nearest even) at `out`, aligned to an element. Throws Error for another
/// format.
void from_floats(std::span<const float> in, DType type, void* out);

}  // namespace fp8::dtype
