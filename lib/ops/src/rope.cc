// Rotary positions on the host: the tables, and the rotation in place. In parallel over positions of all sequences.
#include "cuda.h"
#include "elements.h"
#include "fp8/ops/attention.h"
#include "row_kernels.h"
#include "rows.h"

namespace fp8::ops {
namespace {

using device::DeviceType;

bool is_table(const View& v, std::int64_t columns) {
  return v.rank == 2 && v.dtype == DType::f32 && v.shape[1] == columns && v.contiguous();
}

}  // namespace

void rope_tables(const Context& ctx, std::span<const float> inv_freq, const View& cos, const View& sin) {
  constexpr const char* kOp = "rope tables";
  need_device(ctx, kOp, cos, sin);
  const auto half = static_cast<std::int64_t>(inv_freq.size());
  need(is_table(cos, half) && is_table(sin, half) && cos.shape[0] == sin.shape[0], kOp,
       "must be float32, positions x frequencies");
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(cos, sin));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::rope_tables(ctx, inv_freq, cos, sin);
  float *c = cos.as<float>(), *s = sin.as<float>();
  parallel_for(cos.shape[0], half * 16, [&](std::int64_t t) {
    for (std::int64_t i = 0; i < half; ++i) {
      rope_angle(t, inv_freq[static_cast<std::size_t>(i)], c[t * half + i], s[t * half + i]);
    }
  });
}

void rope(const Context& ctx, const View& x, const View& cos, const View& sin, bool inverse) {
  constexpr const char* kOp = "rope";
  need_device(ctx, kOp, x, cos, sin);
  need(x.rank == 4 && x.shape[3] % 2 == 0 && unit_last_stride(x), kOp,
       "x must have 4 dimensions, the last even and with unit stride");
  const std::int64_t positions = x.shape[1], heads = x.shape[2], half = x.shape[3] / 2;
  need(is_table(cos, half) && is_table(sin, half) && cos.shape[0] >= positions && sin.shape[0] >= positions, kOp,
       "the tables have too few positions or another width");
  const device::Timer timer(ctx, device::Work::elementwise, kOp, 2 * bytes_of(x) + bytes_of(cos, sin), flops_of(x, 3));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::rope(ctx, x, cos, sin, inverse);
  const float *c = cos.as<float>(), *s = sin.as<float>();
  const float sign = inverse ? -1.0f : 1.0f;
  with_float_type(x.dtype, kOp, [&]<class T>() {
    T* data = x.as<T>();
    const RowLoops<T>& loops = row_loops<T>();
    parallel_for(x.shape[0] * positions, heads * half * 2, [&](std::int64_t i) {
      const std::int64_t t = i % positions;
      T* row = data + i / positions * x.stride[0] + t * x.stride[1];
      loops.rotate(row, heads, x.stride[2], c + t * half, s + t * half, sign, half);
    });
  });
}

}  // namespace fp8::ops
