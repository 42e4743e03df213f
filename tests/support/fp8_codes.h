/// FP8 formats of dtype by name, for tests that compute expected codes.
#pragma once

#include <cstdint>

#include "fp8/dtype/element.h"

namespace fp8::dtype {

/// Code of v: saturated, rounded to nearest even; NaN gives 0x7F with v's sign.
inline std::uint8_t to_e4m3(float v) { return encode<E4m3Grid>(v); }
/// Encodes like to_e4m3().
inline std::uint8_t to_e5m2(float v) { return encode<E5m2Grid>(v); }
/// The value of to_e4m3(v).
inline float round_to_e4m3(float v) { return round_to_grid<E4m3Grid>(v); }
/// The value of to_e5m2(v).
inline float round_to_e5m2(float v) { return round_to_grid<E5m2Grid>(v); }

}  // namespace fp8::dtype
