// Attention over a key/value cache on the host: one task per head and query, each in its thread's scratch memory, so
// that results do not depend on the threads.
#include "attention_cached.h"

#include <omp.h>

#include "fp8/ops/attention.h"
#include "rows.h"

namespace fp8::ops {
namespace {

constexpr const char* kOp = "cached attention";

// First element of head h at position t of sequence b.
template <class T>
T* at(const View& v, std::int64_t b, std::int64_t t, std::int64_t h) {
  return static_cast<T*>(v.data) + b * v.stride[0] + t * v.stride[1] + h * v.stride[2];
}

void check(const View& q, const View& k, const View& v, std::int64_t first, const View& out) {
  need(q.rank == 4 && k.rank == 4 && v.rank == 4, kOp, "q, k and v must have 4 dimensions");
  need(same_shape(q, out) && same_shape(k, v) && k.shape[0] == q.shape[0] && k.shape[3] == q.shape[3], kOp,
       "shapes do not match");
  need(k.shape[2] > 0 && q.shape[2] % k.shape[2] == 0, kOp, "query heads must be a multiple of key heads");
  need(first >= 0 && k.shape[1] >= first + q.shape[1], kOp, "fewer keys than positions");
  need(k.dtype == q.dtype && v.dtype == q.dtype && out.dtype == q.dtype, kOp, "activations of different types");
  need(unit_last_stride(q) && unit_last_stride(k) && unit_last_stride(v) && unit_last_stride(out), kOp,
       "heads must have unit stride");
}

}  // namespace

void attention_cached(const Context& ctx, const View& q, const View& k, const View& v, std::int64_t first, float scale,
                      const View& out) {
  need_device(ctx, kOp, q, k, v, out);
  need(ctx.device == device::DeviceType::host, kOp, "not available on a GPU");
  need(ctx.arena != nullptr, kOp, "needs an arena");
  check(q, k, v, first, out);
  const std::int64_t positions = q.shape[1], heads = q.shape[2], dim = q.shape[3], group = heads / k.shape[2];
  const std::int64_t tasks = q.shape[0] * positions * heads, last = first + positions;
  const int threads = threads_for(tasks * last * dim);
  const std::int64_t each = last + 2 * dim;
  const device::Scope scope(*ctx.arena);
  const View scratch = tensor::allocate(ctx, DType::f32, {device::host_threads(), each}, "scratch");
  if (ctx.dry) return;
  const double pairs = static_cast<double>(positions) * (static_cast<double>(first + last + 1)) / 2;
  const device::Timer timer(ctx, device::Work::attention, kOp, bytes_of(q, out) + 2 * bytes_of(k),
                            4.0 * static_cast<double>(q.shape[0] * heads * dim) * pairs);
  float* const memory = scratch.as<float>();
  with_float_type(q.dtype, kOp, [&]<class T>() {
    const auto attend = cached_kernel<T>();
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (std::int64_t task = 0; task < tasks; ++task) {
      const std::int64_t h = task % heads, t = task / heads % positions, b = task / heads / positions, g = h / group;
      attend({at<T>(q, b, t, h), at<T>(k, b, 0, g), at<T>(v, b, 0, g), k.stride[1], v.stride[1], first + t + 1, dim,
              scale, at<T>(out, b, t, h), memory + omp_get_thread_num() * each});
    }
  });
}

}  // namespace fp8::ops
