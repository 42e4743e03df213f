/// Where the time of a step goes: operations note what they did, from when to when, and the bytes and FLOPs that it
/// needs at least. Off unless a context carries a Profile; then a Timer costs one test of a pointer. Not a sampling
/// profiler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fp8/device/device.h"

namespace fp8::device {

/// What time is spent on, in the order of tables.
enum class Work : std::uint8_t {
  matmul_forward,  ///< y = x w^T
  matmul_dgrad,    ///< gradient of x
  matmul_wgrad,    ///< gradient of w
  matmul_other,    ///< outside of linear layers
  attention,       ///< forward and backward
  cross_entropy,   ///< loss and its gradient
  elementwise,     ///< norms, rope, SwiGLU, embedding, sums
  cast,            ///< to FP8 and back, amaxes
  optimizer,       ///< AdamW, norm of the gradient
  communication,   ///< collectives, waiting included
  input_output,    ///< batches in, records out
};

/// Names of Work, by its number, for people and for traces.
inline constexpr std::array<std::string_view, 11> kWorkNames{
    "matmul forward", "matmul dgrad", "matmul wgrad", "matmul other",  "attention",        "cross-entropy",
    "element-wise",   "casts",        "optimizer",    "communication", "input and output",
};

/// One operation.
struct Span {
  Work work = Work::elementwise;      ///< what it counts as
  std::string_view name;              ///< of the operation; lives as long as the program
  std::int64_t begin = 0;             ///< nanoseconds of the steady clock
  std::int64_t end = 0;               ///< the same, when it was done
  double bytes = 0;                   ///< read and written by the algorithm, each operand once
  double flops = 0;                   ///< additions and multiplications of the formula
  std::array<std::int64_t, 3> mnk{};  ///< of a matrix multiply, C [m, n] over k; else zeros
};

/// The operations of some steps in order. Used from the thread that runs the step.
class Profile {
 public:
  /// Whether operations are noted; they are not until it is set.
  bool on = false;
  /// What was noted so far.
  const std::vector<Span>& spans() const { return spans_; }
  /// Forgets all, keeps the memory.
  void clear() { spans_.clear(); }

 private:
  friend class Timer;
  std::vector<Span> spans_;
  bool busy_ = false;
};

/// Nanoseconds of the steady clock.
std::int64_t now_ns();

/// Notes one operation, from construction to destruction. An operation inside another one counts as part of that one.
/// On a device it waits for the work before, and for its own: times are those of the work, and nothing overlaps.
class Timer {
 public:
  /// Begins; does nothing when `ctx` is dry or has no profile that is on.
  Timer(const Context& ctx, Work work, std::string_view name, double bytes, double flops = 0,
        const std::array<std::int64_t, 3>& mnk = {})
      : ctx_(ctx), profile_(ctx.dry || ctx.profile == nullptr || !ctx.profile->on ? nullptr : ctx.profile) {
    if (profile_ != nullptr) begin({work, name, 0, 0, bytes, flops, mnk});
  }
  ~Timer() {
    if (profile_ != nullptr) end();
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  void begin(const Span& span);
  void end();

  const Context& ctx_;
  Profile* profile_;
  std::size_t at_ = 0;
};

}  // namespace fp8::device
