/// Kinds of GEMMs without sizes, and dry runs of small ones that check whether a device supports them.
#pragma once

#include <cstdint>

#include "fp8/gemm/gemm.h"

namespace fp8::gemm::testing {

/// A kind of GEMM.
struct Mode {
  /// One operand.
  struct Side {
    DType format = DType::bf16;              ///< f32, bf16, e4m3, e5m2; FP8 means codes
    bool vector = false;                     ///< an inverse scale for each row of A, column of B
    ScaleBlocks blocks = ScaleBlocks::none;  ///< or for blocks of elements
  };
  Side a, b;                       ///< operands
  DType c = DType::bf16;           ///< result, f32 or bf16
  bool accumulate = false;         ///< added to C
  bool fast_accumulation = false;  ///< see MatmulOptions
};

/// A view whose memory is never accessed, at an address aligned like a large buffer.
inline View nowhere(device::DeviceType device, DType dtype, tensor::Shape shape) {
  return tensor::make_view(reinterpret_cast<void*>(std::uintptr_t{1} << 62), dtype, device, shape);  // NOLINT
}

/// The small matrix of a mode, [outer, K] = [256, 256], both multiples of every block.
inline Operand sample(const Mode::Side& side, device::DeviceType device) {
  constexpr std::int64_t kSide = 256;
  const bool fp8 = side.format == DType::e4m3 || side.format == DType::e5m2;
  const DType storage = !fp8 ? side.format : device == device::DeviceType::cuda ? DType::u8 : DType::bf16;
  Operand o{nowhere(device, storage, {kSide, kSide}), side.format, {}, side.blocks};
  if (fp8) o.inverse_scale = nowhere(device, DType::f32, {side.vector ? kSide : 1});
  if (side.blocks == ScaleBlocks::block1x128) o.inverse_scale = nowhere(device, DType::f32, {2, kSide}).transposed();
  if (side.blocks == ScaleBlocks::block128x128) o.inverse_scale = nowhere(device, DType::f32, {2, 4}).columns(0, 2);
  if (side.blocks == ScaleBlocks::block1x32) o.inverse_scale = nowhere(device, DType::f32, {kSide, kSide / 32});
  return o;
}

/// Makes the plan of a small GEMM of this mode on ctx.device in a dry run. Throws Error that names the mode if chip or
/// library do not support it.
inline void plan_mode(Engine& engine, const Context& ctx, const Mode& mode) {
  const Operand a = sample(mode.a, ctx.device), b = sample(mode.b, ctx.device);
  Operand turned = b;
  turned.matrix = b.matrix.transposed();
  Context dry = ctx;
  dry.dry = true;
  const View c = nowhere(ctx.device, mode.c, {a.matrix.shape[0], b.matrix.shape[0]});
  engine.matmul(dry, a, turned, c, {GemmRole::other, mode.accumulate, mode.fast_accumulation, {}});
}

}  // namespace fp8::gemm::testing
