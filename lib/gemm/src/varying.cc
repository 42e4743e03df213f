// Sizes of pieces for AMX: kernels for 512 rows are as fast as larger ones, and a piece costs the packing of B, which
// takes as long as 20 rows. A contraction that is not a multiple of 32 takes up to 1.6 times as long as the next one;
// one more piece reads and writes all of C, so short contractions are padded in a copy of both operands.
#include "varying.h"

#include <algorithm>
#include <cstring>

#include "fp8/base/round.h"

namespace fp8::gemm {
namespace {

constexpr std::int64_t kLargest = 512, kStep = 64, kLastRows = 16, kShortest = 32;
constexpr std::int64_t kParallelFrom = 1 << 16;  // elements; fewer are copied by one thread

View in_scratch(bool dry, Scratch& scratch, DType type, std::int64_t rows, std::int64_t columns) {
  View v = tensor::make_view(nullptr, type, device::DeviceType::host, {rows, columns});
  if (!dry) v.data = scratch.memory();
  return v;
}

std::byte* row_of(const View& v, std::int64_t row) {
  return static_cast<std::byte*>(v.data) + row * v.stride[0] * static_cast<std::int64_t>(size_of(v.dtype));
}

// Copies rows whose elements are adjacent to the first rows of `to`; zeros in the others.
void copy_padded(const View& from, const View& to) {
  const std::int64_t rows = from.shape[0];
  const auto size = static_cast<std::size_t>(to.shape[1]) * size_of(to.dtype);
#pragma omp parallel for schedule(static) if (to.size() >= kParallelFrom)
  for (std::int64_t i = 0; i < to.shape[0]; ++i) {
    if (i < rows)
      std::memcpy(row_of(to, i), row_of(from, i), size);
    else
      std::memset(row_of(to, i), 0, size);
  }
}

// to (+)= from, as many rows as `to` has.
void move_rows(const View& from, const View& to, bool accumulate) {
  const auto columns = static_cast<std::size_t>(to.shape[1]);
  for (std::int64_t i = 0; i < to.shape[0]; ++i) {
    if (!accumulate) {
      std::memcpy(row_of(to, i), row_of(from, i), columns * size_of(to.dtype));
      continue;
    }
    const auto* const add = reinterpret_cast<const float*>(row_of(from, i));
    auto* const sums = reinterpret_cast<float*>(row_of(to, i));
    for (std::size_t j = 0; j < columns; ++j) sums[j] += add[j];
  }
}

bool unit_rows(const View& v) { return v.stride[1] == 1 || v.shape[1] == 1; }

std::int64_t padded_contraction(std::int64_t k) { return k <= kShortest ? kShortest : round_up(k, kStep); }

// Calls f(size) for each size of a piece of an extent up to `most`.
template <class F>
void each_size(std::int64_t most, F f) {
  for (std::int64_t size = kStep; size <= std::min(most, kLargest); size += kStep) f(size);
}

}  // namespace

std::int64_t varying_piece(std::int64_t limit) {
  const std::int64_t step = limit < kLargest ? kStep : kLargest;
  return limit / step * step;
}

std::size_t PlannedGemm::scratch_bytes() const { return scratchpad_.bytes() + a_.bytes() + b_.bytes() + c_.bytes(); }

void PlannedGemm::run(bool dry, const View& a, const View& b, const View& c, bool accumulate) {
  MatmulPlan& plan = plans_.find(key_of(a, b, c, accumulate));
  scratchpad_.need(plan.scratchpad_bytes());
  if (!dry) plan.run(a.data, b.data, c.data, scratchpad_.memory());
}

void PlannedGemm::run_varying(bool dry, Varying varying, const View& a, const View& b, const View& c, bool accumulate) {
  const bool f32 = a.dtype == DType::f32;
  if (varying == Varying::rows && unit_rows(a))
    return f32 ? run_any_rows(dry, a, b, c, accumulate) : run_rows(dry, a, b, c, accumulate);
  if (varying == Varying::contraction && unit_rows(a.transposed()) && unit_rows(b))
    return f32 ? run_any_contraction(dry, a, b, c, accumulate) : run_contraction(dry, a, b, c, accumulate);
  run(dry, a, b, c, accumulate);
}

void PlannedGemm::run_key(bool dry, const PlanKey& key, const View& a, const View& b, const View& c) {
  MatmulPlan& plan = plans_.find(key);
  scratchpad_.need(plan.scratchpad_bytes());
  if (!dry) plan.run_any(a.shape[0], a.shape[1], a.data, b.data, c.data, scratchpad_.memory());
}

void PlannedGemm::run_any_rows(bool dry, const View& a, const View& b, const View& c, bool accumulate) {
  PlanKey key = key_of(a, b, c, accumulate);
  key.m = kAnyExtent;
  run_key(dry, key, a, b, c);
}

void PlannedGemm::run_any_contraction(bool dry, const View& a, const View& b, const View& c, bool accumulate) {
  PlanKey key = key_of(a, b, c, accumulate);
  key.k = kAnyExtent;
  key.stride_a = a.shape[0] == 1 ? std::array{kLongest, std::int64_t{1}} : std::array{std::int64_t{1}, a.stride[1]};
  key.stride_b = {b.stride[0], 1};
  run_key(dry, key, a, b, c);
}

void PlannedGemm::run_rows(bool dry, const View& a, const View& b, const View& c, bool accumulate) {
  const std::int64_t m = c.shape[0];
  if (dry) each_size(m, [&](std::int64_t rows) { run(true, a.rows(0, rows), b, c.rows(0, rows), accumulate); });
  std::int64_t done = 0;
  while (!dry && m - done >= kStep) {
    const std::int64_t end = done + std::min(kLargest, (m - done) / kStep * kStep);
    run(false, a.rows(done, end), b, c.rows(done, end), accumulate);
    done = end;
  }
  if (dry || done < m) run_last_rows(dry, a.rows(done, m), b, c.rows(done, m), accumulate);
}

// Fewer than kStep rows, or of any number if `dry`.
void PlannedGemm::run_last_rows(bool dry, const View& a, const View& b, const View& c, bool accumulate) {
  const std::int64_t most = std::min(kStep, round_up(a.shape[0], kLastRows));
  a_.need(static_cast<std::size_t>(most * a.shape[1]) * size_of(a.dtype));
  c_.need(static_cast<std::size_t>(most * c.shape[1]) * size_of(c.dtype));
  for (std::int64_t rows = dry ? kLastRows : most; rows <= most; rows += kLastRows) {
    const View padded = in_scratch(dry, a_, a.dtype, rows, a.shape[1]),
               sums = in_scratch(dry, c_, c.dtype, rows, c.shape[1]);
    if (!dry) copy_padded(a, padded);
    run(dry, padded, b, sums, false);
    if (!dry) move_rows(sums, c, accumulate);
  }
}

void PlannedGemm::run_contraction(bool dry, const View& a, const View& b, const View& c, bool accumulate) {
  const std::int64_t k = a.shape[1];
  if (dry) {
    if (k >= kLargest) run(true, a.columns(0, kLargest), b.rows(0, kLargest), c, accumulate);
    run_last_contraction(true, a, b, c, accumulate);
    if (k > kLargest && !accumulate) run_contraction(true, a, b, c, true);  // pieces after the first one
    return;
  }
  std::int64_t done = 0;
  for (; k - done >= kLargest; done += kLargest)
    run(false, a.columns(done, done + kLargest), b.rows(done, done + kLargest), c, accumulate || done > 0);
  if (done < k) run_last_contraction(false, a.columns(done, k), b.rows(done, k), c, accumulate || done > 0);
}

// Fewer than kLargest, or of any number if `dry`.
void PlannedGemm::run_last_contraction(bool dry, const View& a, const View& b, const View& c, bool accumulate) {
  const std::int64_t most = std::min(kLargest, padded_contraction(a.shape[1]));
  a_.need(static_cast<std::size_t>(most * a.shape[0]) * size_of(a.dtype));
  b_.need(static_cast<std::size_t>(most * b.shape[1]) * size_of(b.dtype));
  const auto run_size = [&](std::int64_t k) {
    const View left = in_scratch(dry, a_, a.dtype, k, a.shape[0]), right = in_scratch(dry, b_, b.dtype, k, b.shape[1]);
    if (!dry) copy_padded(a.transposed(), left);
    if (!dry) copy_padded(b, right);
    run(dry, left.transposed(), right, c, accumulate);
  };
  if (!dry) return run_size(most);
  run_size(kShortest);
  each_size(most, run_size);
}

}  // namespace fp8::gemm
