/// The input of a linear as FP8 codes that were cast before the call: ranks that share the rows of x cast their own and
/// exchange codes, which are half as many bytes as bf16. The results have the bits of linear.h's functions with the
/// whole x.
#pragma once

#include "fp8/linear/linear.h"

namespace fp8::linear {

/// x [M, K], or some of its rows, as codes with one scale.
struct InputCodes {
  View bytes;                                    ///< u8 [M, K]
  View scale, inverse_scale;                     ///< f32 [1]
  dtype::DType format = dtype::DType::e4m3;      ///< format of the codes
  dtype::DType activation = dtype::DType::bf16;  ///< type of x
};

/// Whether the GEMMs of a weight in a pass (forward, or wgrad in Pass::backward) read x only as codes with one scale
/// that is known before the cast: by `amax`, the amax of the whole x, or by Weight::known. The same on all ranks that
/// divide the weight.
bool reads_codes(const Weight& weight, Pass pass, const View& amax);

/// Casts rows of x if reads_codes(); records their amax where Weight::known says so. Memory from the arena.
InputCodes cast_rows(const Context& ctx, const Weight& weight, Pass pass, const View& rows, const View& amax);

/// forward() with the codes of cast_rows() of all rows.
void forward_codes(const Context& ctx, gemm::Engine& engine, const Weight& weight, const InputCodes& x, const View& y);

/// backward() with the codes of cast_rows() of all rows; dw must be wanted.
void backward_codes(const Context& ctx, gemm::Engine& engine, const Weight& weight, const InputCodes& x, const View& dy,
                    const Gradients& gradients, const KnownAmaxes& amaxes);

}  // namespace fp8::linear
