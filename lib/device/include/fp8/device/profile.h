/// Profile of a step: operations record their begin and end, and the minimum of bytes and FLOPs that they need. Off
/// unless the context has a Profile that is on; a Timer then costs one test of a pointer. Not a sampling profiler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fp8/device/device.h"

namespace fp8::device {

/// Category of work, in the order of the tables.
enum class Work : std::uint8_t {
  matmul_forward,  ///< y = x w^T
  matmul_dgrad,    ///< gradient of x
  matmul_wgrad,    ///< gradient of w
  matmul_other,    ///< GEMMs outside linear layers
  attention,       ///< forward and backward
  cross_entropy,   ///< loss and its gradient
  elementwise,     ///< norms, RoPE, SwiGLU, embedding, sums
  cast,            ///< casts to and from FP8, amax
  optimizer,       ///< AdamW, norm of the gradient
  communication,   ///< collectives, including waiting
  input_output,    ///< reading batches, writing records
};

/// Names of Work by its value, for tables and traces.
inline constexpr std::array<std::string_view, 11> kWorkNames{
    "matmul forward", "matmul dgrad", "matmul wgrad", "matmul other",  "attention",        "cross-entropy",
    "element-wise",   "casts",        "optimizer",    "communication", "input and output",
};

/// One recorded operation.
struct Span {
  Work work = Work::elementwise;      ///< category
  std::string_view name;              ///< name of the operation, with static lifetime
  std::int64_t begin = 0;             ///< nanoseconds of the steady clock
  std::int64_t end = 0;               ///< nanoseconds of the steady clock
  double bytes = 0;                   ///< bytes read and written, each operand once
  double flops = 0;                   ///< additions and multiplications of the formula
  std::array<std::int64_t, 3> mnk{};  ///< m, n, k of a GEMM, C [m, n] summed over k; else zeros
};

/// The recorded operations in order. Use it only on the thread that runs the step.
class Profile {
 public:
  /// Whether operations are recorded.
  bool on = false;
  /// The operations recorded since the last clear().
  const std::vector<Span>& spans() const { return spans_; }
  /// Removes all operations; keeps the allocated memory.
  void clear() { spans_.clear(); }

 private:
  friend class Timer;
  std::vector<Span> spans_;
  bool busy_ = false;
};

/// Nanoseconds of the steady clock.
std::int64_t now_ns();

/// Records one operation from construction to destruction; a nested operation counts as part of the outer one. On a
/// device synchronizes before and after, so that the time is that of the work and operations do not overlap.
class Timer {
 public:
  /// Starts the record; does nothing when `ctx` is dry or has no profile that is on.
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
