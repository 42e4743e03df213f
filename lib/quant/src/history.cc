// Delayed scaling on the host, and the checks of its arguments.
#include "fp8/quant/history.h"

#include <algorithm>
#include <cmath>

#include "cuda.h"
#include "fp8/device/profile.h"
#include "matrix.h"

namespace fp8::quant {

DelayedRule delayed_rule(dtype::DType format, std::int64_t margin, AmaxAlgorithm algorithm) {
  return {std::ldexp(dtype::max_of(format), -static_cast<int>(margin)), algorithm};
}

float update_history(std::span<float> history, const DelayedRule& rule, float scale) {
  const float last = history[0];
  if (last == 0.0f) return scale;
  float amax = last;
  if (rule.algorithm == AmaxAlgorithm::max) {
    amax = 0.0f;
    for (const float h : history) amax = larger_amax(amax, h);
  }
  std::copy(history.begin() + 1, history.end(), history.begin());
  history.back() = last;
  history.front() = 0.0f;
  return delayed_scale(amax, rule.max, scale);
}

void update_scales(const device::Context& ctx, const ScaleSlots& slots, const DelayedRule& rule,
                   const std::int32_t* skip) {
  const std::int64_t n = slots.amax.size(), length = n > 0 ? slots.history.size() / n : 0;
  for (const View& v : {slots.amax, slots.history, slots.scale, slots.inverse_scale}) {
    require_device(ctx, v, "update_scales");
    if (!v.contiguous() || v.size() != (v.data == slots.history.data ? n * length : n))
      throw Error("update_scales: amaxes, histories and scales differ in number");
  }
  if (length < 1) throw Error("update_scales: a history has at least one amax");
  const device::Timer timer(ctx, device::Work::cast, "delayed scales", 2 * tensor::bytes_of(slots.history));
  if (ctx.dry) return;
  if (on_device(ctx)) return cuda::update_scales(ctx, slots, rule, skip);
  for (std::int64_t i = 0; i < n; ++i) {
    float &amax = slots.amax.as<float>()[i], &scale = slots.scale.as<float>()[i];
    if (std::isfinite(amax) && (skip == nullptr || *skip == 0)) {
      const std::span history(slots.history.as<float>() + i * length, static_cast<std::size_t>(length));
      history[0] = amax;
      scale = update_history(history, rule, scale);
    }
    amax = 0.0f;
    slots.inverse_scale.as<float>()[i] = 1.0f / scale;
  }
}

}  // namespace fp8::quant
