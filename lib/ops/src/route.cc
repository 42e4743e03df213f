// Mixtures of experts on the host, tokens or rows in parallel. The rows are sorted by counting: blocks of tokens, which
// do not depend on the number of threads, count their experts, and then number their rows from the sums of the counts.
#include "fp8/ops/route.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "cuda.h"
#include "route_kernels.h"
#include "rows.h"

namespace fp8::ops {
namespace {

using device::DeviceType;

bool is(const View& v, DType type, std::int64_t rows, std::int64_t columns) {
  return v.dtype == type && v.rank == 2 && v.shape[0] == rows && v.shape[1] == columns && v.contiguous();
}

bool is(const View& v, DType type, std::int64_t size) {
  return v.dtype == type && v.rank == 1 && v.shape[0] == size && v.contiguous();
}

void check_routes(const Context& ctx, const char* op, const Routes& r) {
  need_device(ctx, op, r.probabilities, r.log_sums, r.experts, r.weights, r.rows, r.tokens, r.counts);
  need(r.probabilities.rank == 2 && r.experts.rank == 2, op, "probabilities and experts must have 2 dimensions");
  const std::int64_t m = r.probabilities.shape[0], e = r.probabilities.shape[1], k = r.per_token();
  need(k >= 1 && k <= e, op, "a token cannot have so many experts");
  need(is(r.probabilities, DType::f32, m, e) && is(r.log_sums, DType::f32, m) && is(r.experts, DType::i32, m, k) &&
           is(r.weights, DType::f32, m, k) && is(r.rows, DType::i32, m, k) && is(r.counts, DType::i32, e),
       op, "the parts of the routes do not match");
  need(r.tokens.dtype == DType::i32 && r.tokens.rank == 1 && r.tokens.contiguous(), op,
       "tokens must be int32, one for each row");
}

// Checks the rows of tokens, [M, C], and of experts, [N, C].
void check_activations(const Context& ctx, const char* op, const Routes& r, const View& of_tokens,
                       const View& of_rows) {
  need_device(ctx, op, of_tokens, of_rows);
  need(of_tokens.dtype == of_rows.dtype, op, "activations of different types");
  need(of_tokens.rank == 2 && is(of_tokens, of_tokens.dtype, r.experts.shape[0], of_tokens.shape[1]) &&
           is(of_rows, of_rows.dtype, r.tokens.shape[0], of_tokens.shape[1]),
       op, "activations do not match the routes");
}

// Blocks of tokens, each with sums or counts in scratch memory.
std::int64_t blocks_of(const Context& ctx, std::int64_t tokens) {
  return ctx.device == DeviceType::cuda ? cuda::route_blocks(tokens) : RowBlocks(tokens).count;
}

// Whether tokens are routed.
class Padding {
 public:
  explicit Padding(const RouteOptions& options)
      : lengths_(options.lengths.empty() ? nullptr : options.lengths.as<std::int32_t>()),
        length_(options.length),
        first_(options.first) {}
  bool routed(std::int64_t row) const {
    const std::int64_t token = first_ + row;
    return lengths_ == nullptr || token % length_ < lengths_[token / length_];
  }

 private:
  const std::int32_t* lengths_;
  std::int64_t length_, first_;
};

// The k largest of p[0] ... p[n - 1], of equal ones those with lower indices, with their indices, ascending.
void choose(const float* p, std::int64_t n, std::int64_t k, std::int32_t* index, float* value) {
  std::int64_t held = 0;
  for (std::int64_t e = 0; e < n; ++e) {
    if (held == k && !(p[e] > value[k - 1])) continue;
    std::int64_t j = held < k ? held++ : k - 1;
    for (; j > 0 && p[e] > value[j - 1]; --j) value[j] = value[j - 1], index[j] = index[j - 1];
    value[j] = p[e], index[j] = static_cast<std::int32_t>(e);
  }
  std::sort(index, index + k);
  for (std::int64_t j = 0; j < k; ++j) value[j] = p[index[j]];
}

void normalize_weights(float* weights, std::int64_t k) {
  float sum = 0;
  for (std::int64_t j = 0; j < k; ++j) sum += weights[j];
  for (std::int64_t j = 0; j < k; ++j) weights[j] /= sum;
}

// Fills the parts of the routes that belong to a token alone; counts its experts.
void route_token(const float* logits, bool routed, bool normalize, const Routes& r, std::int64_t token,
                 std::int32_t* counts) {
  const std::int64_t n = r.probabilities.shape[1], k = r.per_token();
  float *p = r.probabilities.as<float>() + token * n, *weights = r.weights.as<float>() + token * k;
  float& log_sum = r.log_sums.as<float>()[token];
  std::int32_t* const experts = r.experts.as<std::int32_t>() + token * k;
  if (!routed) {
    std::fill(p, p + n, 0.0f);
    std::fill(weights, weights + k, 0.0f);
    std::fill(experts, experts + k, -1);
    log_sum = 0;
    return;
  }
  log_sum = route_kernels().softmax(logits, p, n);
  choose(p, n, k, experts, weights);
  if (normalize) normalize_weights(weights, k);
  for (std::int64_t j = 0; j < k; ++j) ++counts[experts[j]];
}

// Turns the counts of blocks into the first row of each expert in each block; sets the counts of all. Returns the
// number of rows.
std::int32_t first_rows(std::int32_t* of_blocks, std::int64_t blocks, std::int64_t experts, std::int32_t* counts) {
  std::int32_t row = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int32_t first = row;
    for (std::int64_t b = 0; b < blocks; ++b) {
      std::int32_t& of_block = of_blocks[b * experts + e];
      row += std::exchange(of_block, row);
    }
    counts[e] = row - first;
  }
  return row;
}

// Numbers the rows of a token; `next` has the next row of each expert.
void number_rows(const Routes& r, std::int64_t token, std::int32_t* next) {
  const std::int64_t k = r.per_token();
  const std::int32_t* const experts = r.experts.as<std::int32_t>() + token * k;
  std::int32_t* const rows = r.rows.as<std::int32_t>() + token * k;
  for (std::int64_t j = 0; j < k; ++j) {
    rows[j] = experts[j] < 0 ? -1 : next[experts[j]]++;
    if (rows[j] >= 0) r.tokens.as<std::int32_t>()[rows[j]] = static_cast<std::int32_t>(token);
  }
}

void route_on_host(const View& logits, const RouteOptions& options, const Routes& r, const View& scratch) {
  const std::int64_t m = logits.shape[0], n = logits.shape[1];
  const RowBlocks blocks(m);
  const Padding padding(options);
  auto* const of_blocks = scratch.as<std::int32_t>();
  parallel_for(blocks.count, blocks.each * n * 8, [&](std::int64_t b) {
    std::int32_t* const counts = of_blocks + b * n;
    std::fill(counts, counts + n, 0);
    for (std::int64_t i = blocks.begin(b); i < blocks.end(b); ++i)
      route_token(logits.as<float>() + i * n, padding.routed(i), options.normalize, r, i, counts);
  });
  const std::int32_t used = first_rows(of_blocks, blocks.count, n, r.counts.as<std::int32_t>());
  parallel_for(blocks.count, blocks.each * r.per_token() * 4, [&](std::int64_t b) {
    for (std::int64_t i = blocks.begin(b); i < blocks.end(b); ++i) number_rows(r, i, of_blocks + b * n);
  });
  std::fill(r.tokens.as<std::int32_t>() + used, r.tokens.as<std::int32_t>() + r.tokens.size(), -1);
}

void sum_on_host(const Routes& r, const View& scratch, double* sums) {
  const std::int64_t m = r.probabilities.shape[0], n = r.probabilities.shape[1], k = r.per_token();
  const RowBlocks blocks(m);
  const auto *p = r.probabilities.as<float>(), *log_sums = r.log_sums.as<float>();
  auto* const partial = scratch.as<double>();
  parallel_for(blocks.count, blocks.each * n, [&](std::int64_t b) {
    double* const sum = partial + b * (n + 2);
    std::fill(sum, sum + n + 2, 0.0);
    for (std::int64_t i = blocks.begin(b); i < blocks.end(b); ++i) {
      if (r.experts.as<std::int32_t>()[i * k] < 0) continue;
      route_kernels().add_to(p + i * n, sum, n);
      sum[n] += static_cast<double>(log_sums[i]) * static_cast<double>(log_sums[i]);
      ++sum[n + 1];
    }
  });
  for (std::int64_t b = 0; b < blocks.count; ++b)
    for (std::int64_t e = 0; e < n + 2; ++e) sums[e] += partial[b * (n + 2) + e];
}

// out = weighted sum of rows of `from`, weights and addend may be empty.
void sum_rows_on_host(const View& from, const Routes& r, const View& weights, const View& addend, const View& out) {
  const std::int64_t k = r.per_token(), n = out.shape[1];
  with_float_type(out.dtype, "rows of experts", [&]<class T>() {
    const RouteLoops<T>& loops = route_loops<T>();
    parallel_for(out.shape[0], n * (k + 1), [&](std::int64_t i) {
      const std::int32_t* const rows = r.rows.as<std::int32_t>() + i * k;
      loops.sum({from.as<T>(), rows, rows[0] < 0 ? 0 : k, weights.empty() ? nullptr : weights.as<float>() + i * k,
                 addend.empty() ? nullptr : addend.as<float>() + i * n, out.as<T>() + i * n},
                n);
    });
  });
}

// The gradient of one token's logits: of the softmax, to which the chosen experts add that of their weights. Weights
// that are divided by their sum do not change if all are scaled, so their gradient is without its mean; this is exact
// also where the sum of the experts' p dp cancels.
void route_gradient(const float* dweights, const Routes& r, bool normalize, const BalanceGradients& balance,
                    std::int64_t token, float* out) {
  const std::int64_t n = r.probabilities.shape[1], k = r.per_token();
  const std::int32_t* const experts = r.experts.as<std::int32_t>() + token * k;
  if (experts[0] < 0) return std::fill(out, out + n, 0.0f);
  const float *p = r.probabilities.as<float>() + token * n, *weights = r.weights.as<float>() + token * k;
  const float* const aux = balance.aux.empty() ? nullptr : balance.aux.as<float>();
  float mean = 0;
  for (std::int64_t j = 0; j < k; ++j) mean += weights[j] * dweights[j];
  const float of_z = 2.0f * balance.z * r.log_sums.as<float>()[token];
  const float all = route_kernels().softmax_gradient(p, aux, normalize ? -of_z : mean - of_z, out, n);
  for (std::int64_t j = 0; j < k; ++j) {
    const std::int32_t e = experts[j];
    if (normalize) {
      out[e] += weights[j] * (dweights[j] - mean);
    } else {
      out[e] = p[e] * ((aux == nullptr ? 0.0f : aux[e]) + dweights[j] - all);
    }
  }
}

}  // namespace

void route_forward(const Context& ctx, const View& logits, const RouteOptions& options, const Routes& routes) {
  constexpr const char* kOp = "route";
  check_routes(ctx, kOp, routes);
  need_device(ctx, kOp, logits, options.lengths);
  const std::int64_t m = routes.experts.shape[0], n = routes.probabilities.shape[1], k = routes.per_token();
  need(is(logits, DType::f32, m, n), kOp, "logits must be float32 and match the routes");
  need(routes.tokens.shape[0] == k * m && k * m <= std::numeric_limits<std::int32_t>::max(), kOp,
       "tokens must have an element for each expert of each token");
  if (!options.lengths.empty()) {
    const std::int64_t end = options.first + m, sequences = options.lengths.size();
    need(options.length > 0 && options.first >= 0 && end <= sequences * options.length &&
             is(options.lengths, DType::i32, sequences),
         kOp, "lengths must be int32, one for each sequence");
  }
  need(ctx.arena != nullptr, kOp, "needs an arena");
  const device::Scope scope(*ctx.arena);
  const View scratch = tensor::allocate(ctx, DType::i32, {blocks_of(ctx, m), n}, "scratch");
  const device::Timer timer(ctx, device::Work::elementwise, kOp,
                            bytes_of(logits, routes.probabilities, routes.log_sums, routes.weights) +
                                2 * bytes_of(routes.experts, routes.rows) + bytes_of(routes.tokens),
                            flops_of(logits, 5), 3);
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::route_forward(ctx, logits, options, routes, scratch);
  route_on_host(logits, options, routes, scratch);
}

void add_route_sums(const Context& ctx, const Routes& routes, const View& sums) {
  constexpr const char* kOp = "sums of routes";
  check_routes(ctx, kOp, routes);
  need_device(ctx, kOp, sums);
  const std::int64_t n = routes.probabilities.shape[1];
  need(is(sums, DType::f64, n + 2), kOp, "sums must be float64, one for each expert and two");
  need(ctx.arena != nullptr, kOp, "needs an arena");
  const device::Scope scope(*ctx.arena);
  const View scratch = tensor::allocate(ctx, DType::f64, {blocks_of(ctx, routes.experts.shape[0]), n + 2}, "scratch");
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(routes.probabilities, routes.log_sums),
                            flops_of(routes.probabilities, 1), 2);
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::add_route_sums(ctx, routes, sums, scratch);
  sum_on_host(routes, scratch, sums.as<double>());
}

void gather_rows(const Context& ctx, const View& x, const View& tokens, const View& out) {
  constexpr const char* kOp = "rows of experts";
  need_device(ctx, kOp, x, tokens, out);
  need(x.dtype == out.dtype, kOp, "activations of different types");
  need(x.rank == 2 && is(x, x.dtype, x.shape[0], x.shape[1]) && is(tokens, DType::i32, tokens.size()) &&
           is(out, x.dtype, tokens.size(), x.shape[1]),
       kOp, "activations do not match the routes");
  if (out.size() == 0) return;
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(tokens) + 2 * bytes_of(out));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::gather_rows(ctx, x, tokens, out);
  const auto bytes = static_cast<std::size_t>(x.shape[1]) * dtype::size_of(x.dtype);
  const auto* const rows = tokens.as<std::int32_t>();
  parallel_for(out.shape[0], out.shape[1], [&](std::int64_t r) {
    if (rows[r] < 0) return;
    std::memcpy(static_cast<std::byte*>(out.data) + static_cast<std::size_t>(r) * bytes,
                static_cast<const std::byte*>(x.data) + static_cast<std::size_t>(rows[r]) * bytes, bytes);
  });
}

void combine_rows(const Context& ctx, const View& y, const Routes& routes, const View& out) {
  constexpr const char* kOp = "sums of experts";
  check_routes(ctx, kOp, routes);
  check_activations(ctx, kOp, routes, out, y);
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(y, out), flops_of(y, 2));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::add_experts(ctx, kOp, y, routes, routes.weights, {}, out);
  sum_rows_on_host(y, routes, routes.weights, {}, out);
}

void combine_rows_backward(const Context& ctx, const View& dout, const View& y, const Routes& routes, const View& dy,
                           const View& dweights) {
  constexpr const char* kOp = "sums of experts backward";
  check_routes(ctx, kOp, routes);
  need_device(ctx, kOp, dweights);
  check_activations(ctx, kOp, routes, dout, y);
  check_activations(ctx, kOp, routes, dout, dy);
  const std::int64_t m = routes.experts.shape[0], k = routes.per_token(), n = dout.shape[1];
  need(is(dweights, DType::f32, m, k), kOp, "dweights must be float32 and match the routes");
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(dout, y, dy), flops_of(y, 3));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::combine_rows_backward(ctx, dout, y, routes, dy, dweights);
  const auto* rows = routes.rows.as<std::int32_t>();
  const auto* weights = routes.weights.as<float>();
  with_float_type(dout.dtype, kOp, [&]<class T>() {
    const RouteLoops<T>& loops = route_loops<T>();
    parallel_for(m, k * n * 2, [&](std::int64_t i) {
      for (std::int64_t j = i * k; j < (i + 1) * k; ++j) {
        dweights.as<float>()[j] = rows[j] < 0 ? 0.0f
                                              : loops.weighted(dout.as<T>() + i * n, y.as<T>() + rows[j] * n,
                                                               weights[j], dy.as<T>() + rows[j] * n, n);
      }
    });
  });
}

void sum_rows(const Context& ctx, const View& dx, const Routes& routes, const View& addend, const View& out) {
  constexpr const char* kOp = "rows of experts backward";
  check_routes(ctx, kOp, routes);
  need_device(ctx, kOp, addend);
  check_activations(ctx, kOp, routes, out, dx);
  need(is(addend, DType::f32, out.shape[0], out.shape[1]), kOp, "the addend must be float32 and match the result");
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(dx, addend, out), flops_of(dx, 1));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::add_experts(ctx, kOp, dx, routes, {}, addend, out);
  sum_rows_on_host(dx, routes, {}, addend, out);
}

void route_backward(const Context& ctx, const View& dweights, const Routes& routes, bool normalize,
                    const BalanceGradients& balance, const View& dlogits) {
  constexpr const char* kOp = "route backward";
  check_routes(ctx, kOp, routes);
  need_device(ctx, kOp, dweights, balance.aux, dlogits);
  const std::int64_t m = routes.experts.shape[0], n = routes.probabilities.shape[1], k = routes.per_token();
  need(is(dweights, DType::f32, m, k) && is(dlogits, DType::f32, m, n), kOp,
       "gradients must be float32 and match the routes");
  need(balance.aux.empty() || is(balance.aux, DType::f32, n), kOp, "aux must be float32, one for each expert");
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(dlogits, routes.probabilities),
                            flops_of(dlogits, 4));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::route_backward(ctx, dweights, routes, normalize, balance, dlogits);
  parallel_for(m, n * 2, [&](std::int64_t i) {
    route_gradient(dweights.as<float>() + i * k, routes, normalize, balance, i, dlogits.as<float>() + i * n);
  });
}

}  // namespace fp8::ops
