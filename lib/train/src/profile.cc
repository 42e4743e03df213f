// Table and trace of profiled steps, and the limits they are compared with.
#include "profile.h"

#include <algorithm>
#include <cstdio>

#include "fp8/json/trace.h"

namespace fp8::train {
namespace {

using device::Span;
using device::Work;

// Sums over the operations of one kind of work.
struct Sum {
  std::int64_t calls = 0;
  double seconds = 0, bytes = 0, flops = 0;

  void add(const Span& s) {
    ++calls;
    seconds += static_cast<double>(s.end - s.begin) * 1e-9;
    bytes += s.bytes;
    flops += s.flops;
  }
};

bool multiplies(Work work) { return work <= Work::matmul_other || work == Work::attention; }

// A line of the table, right-aligned under the heading.
std::string line(const std::string& name, double steps, double whole, const Sum& s, const std::string& limit) {
  char text[160];
  const double each = s.seconds / steps;
  std::snprintf(text, sizeof text, "  %-17s %9.2f %6.1f %8.0f %9.3f %9.2f %8.1f %8.1f %8s\n", name.c_str(), each * 1e3,
                100 * s.seconds / whole, static_cast<double>(s.calls) / steps, s.bytes / steps * 1e-9,
                s.flops / steps * 1e-9, s.bytes / s.seconds * 1e-9, s.flops / s.seconds * 1e-9, limit.c_str());
  return text;
}

// The time that the work would take at the limits, as a share of the measured time; "-" if either is unknown.
std::string of_limit(const Sum& s, bool matmul, const Limits& limits) {
  if ((s.bytes == 0 && s.flops == 0) || limits.bytes_per_s == 0) return "-";
  const double memory = s.bytes / limits.bytes_per_s, arithmetic = matmul ? s.flops / limits.flop_per_s : 0;
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * std::max(memory, arithmetic) / s.seconds);
  return text;
}

// Seconds of the fastest of several executions of work on the device of `ctx`.
template <class Body>
double fastest(const Context& ctx, int times, Body&& body) {
  double best = 1e9;
  for (int i = 0; i < times; ++i) {
    device::synchronize(ctx);
    const std::int64_t begin = device::now_ns();
    body();
    device::synchronize(ctx);
    best = std::min(best, static_cast<double>(device::now_ns() - begin) * 1e-9);
  }
  return best;
}

tensor::Tensor filled(dtype::DType type, std::int64_t rows, std::int64_t columns) {
  tensor::Tensor t(type, {rows, columns}, device::DeviceType::host, "a tensor for measuring limits");
  const std::int64_t n = t.view().size();
#pragma omp parallel for schedule(static) num_threads(device::host_threads())
  for (std::int64_t i = 0; i < n; ++i) {
    if (type == dtype::DType::f32) t.as<float>()[i] = 1.0f;
    if (type == dtype::DType::bf16) t.as<dtype::Bf16>()[i] = dtype::Bf16{0x3F80};
  }
  return t;
}

// A filled matrix on the device of `ctx`.
tensor::Tensor filled_on(const Context& ctx, dtype::DType type, std::int64_t rows, std::int64_t columns) {
  tensor::Tensor here = filled(type, rows, columns);
  if (ctx.device == device::DeviceType::host) return here;
  tensor::Tensor there(type, {rows, columns}, ctx.device, "a tensor for measuring limits");
  tensor::copy_across(ctx, here.view(), there.view());
  return there;
}

// Measures the speed of memory by a triad on the host, and by a copy on a GPU.
double memory_bytes_per_s(const Context& ctx) {
  constexpr std::int64_t kElements = std::int64_t{1} << 24;  // 64 MiB each: more than caches hold
  const tensor::Tensor ta = filled_on(ctx, dtype::DType::f32, 1, kElements),
                       tb = filled_on(ctx, dtype::DType::f32, 1, kElements);
  if (ctx.device != device::DeviceType::host) {
    const std::size_t bytes = ta.view().bytes();
    const auto copy = [&] { device::copy_bytes(ctx, ta.view().data, ctx.device, tb.view().data, ctx.device, bytes); };
    return 2.0 * static_cast<double>(bytes) / fastest(ctx, 8, copy);
  }
  const tensor::Tensor tc = filled(dtype::DType::f32, 1, kElements);
  float* a = ta.as<float>();
  const float *b = tb.as<float>(), *c = tc.as<float>();
  const double seconds = fastest(ctx, 5, [&] {
#pragma omp parallel for simd schedule(static) num_threads(device::host_threads())
    for (std::int64_t i = 0; i < kElements; ++i) a[i] = b[i] + 3.0f * c[i];
  });
  return 12.0 * static_cast<double>(kElements) / seconds;
}

}  // namespace

Limits probe_limits(const Context& at, dtype::DType type, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  const Context ctx{at.device, at.stream};  // without a profile
  Limits limits;
  limits.bytes_per_s = memory_bytes_per_s(ctx);
  const tensor::Tensor a = filled_on(ctx, type, rows, inner), b = filled_on(ctx, type, columns, inner),
                       c = filled_on(ctx, type, rows, columns);
  gemm::Engine engine;
  const double seconds = fastest(ctx, 8, [&] {
    engine.matmul(ctx, {a.view(), type, {}}, {b.view().transposed(), type, {}}, c.view(), {});
  });
  limits.flop_per_s =
      2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(inner) / seconds;
  return limits;
}

void Profiler::begin_step(std::int64_t step) {
  profile_.recording = step >= first_ && step <= last_ ? device::Recording::timed : device::Recording::off;
  begin_ = device::now_ns();
}

void Profiler::end_step(double busy) {
  if (profile_.recording == device::Recording::off) return;
  profile_.recording = device::Recording::off;
  ++steps_;
  busy_ += busy;
  step_spans_.push_back({Work::input_output, {}, begin_, device::now_ns()});
}

void Profiler::clear() {
  steps_ = 0;
  busy_ = 0;
  profile_.clear();
  step_spans_.clear();
}

std::string Profiler::file_name() const {
  return "profile-" + std::to_string(first_) + "-" + std::to_string(last_) + ".json";
}

std::string Profiler::table(const Limits& limits) const {
  std::array<Sum, device::kWorkNames.size()> sums;
  Sum known, whole;
  for (const Span& s : profile_.spans()) {
    sums[static_cast<std::size_t>(s.work)].add(s);
    known.add(s);
  }
  for (const Span& s : step_spans_) whole.add(s);
  const auto steps = static_cast<double>(steps_);
  std::string text = "                     ms/step  share    calls        GB     GFLOP     GB/s  GFLOP/s of limit\n";
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].calls == 0) continue;
    text += line(std::string(device::kWorkNames[i]), steps, whole.seconds, sums[i],
                 of_limit(sums[i], multiplies(static_cast<Work>(i)), limits));
  }
  const Sum rest{0, whole.seconds - known.seconds, 0, 0};
  text += line("the rest", steps, whole.seconds, rest, "-");
  whole.calls = known.calls, whole.bytes = known.bytes, whole.flops = known.flops;
  text += line("step", steps, whole.seconds, whole, "");
  if (limits.bytes_per_s == 0) return text;
  char last[120];
  std::snprintf(last, sizeof last, "  limits: memory %.1f GB/s, matmul %.0f GFLOP/s\n", limits.bytes_per_s * 1e-9,
                limits.flop_per_s * 1e-9);
  return text + last;
}

StepTimes Profiler::times() const {
  Sum whole, communication;
  for (const Span& s : step_spans_) whole.add(s);
  for (const Span& s : profile_.spans())
    if (s.work == Work::communication) communication.add(s);
  const auto steps = static_cast<double>(steps_);
  return {(whole.seconds - communication.seconds) / steps, communication.seconds / steps, busy_ / steps};
}

std::string Profiler::trace_lines(int rank, const std::string& row, std::int64_t origin) const {
  std::vector<std::string> lines;
  if (!row.empty())
    lines.push_back(json::trace_line({.name = row, .category = {}, .process = rank, .kind = json::TraceKind::process}));
  const auto add = [&](const Span& s, std::string_view name, std::string_view category, json::Object arguments) {
    lines.push_back(json::trace_line({name, category, rank, 0, static_cast<double>(s.begin - origin) * 1e-3,
                                      static_cast<double>(s.end - s.begin) * 1e-3, std::move(arguments)}));
  };
  for (const Span& s : step_spans_) add(s, "step", "step", {});
  for (const Span& s : profile_.spans()) {
    json::Object arguments;
    arguments.set("bytes", s.bytes);
    arguments.set("flops", s.flops);
    if (s.gemms > 0) {
      arguments.set("m", s.mnk[0]);
      arguments.set("n", s.mnk[1]);
      arguments.set("k", s.mnk[2]);
    }
    add(s, s.name, device::kWorkNames[static_cast<std::size_t>(s.work)], std::move(arguments));
  }
  std::string text;
  for (const std::string& l : lines) text += (text.empty() ? "" : ",\n") + l;
  return text;
}

}  // namespace fp8::train
