/// Profile of a step: its operations and exchanges in the order in which the step runs them, with the bytes, FLOPs and
/// kernel launches of the GPU path. Timed, it has begin and end of each; planned, it is the list of a step that runs
/// dry, without times, for a model of the time. Off unless the context has a Profile that records; a Timer then costs
/// one test of a pointer. Not a sampling profiler.
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

/// Operands of a GEMM by kind: the formats that share a rate of the hardware.
enum class OperandKind : std::uint8_t { f32, bf16, fp8, fp4 };

/// Scales of the FP8 or FP4 operands of a GEMM.
enum class Scaling : std::uint8_t {
  none,          ///< operands without scales
  tensor,        ///< one for each operand
  row,           ///< one for each row of A, column of B
  block1x128,    ///< 1 x 128 along the contraction for both operands
  block128x128,  ///< 1 x 128 for one operand, 128 x 128 for the other
  mx,            ///< 1 x 32, E8M0
  nvfp4,         ///< 1 x 16, or 16 x 16 for one operand, E4M3
};

/// What a Span stands for.
enum class SpanKind : std::uint8_t {
  operation,  ///< work of this rank; in a timed profile also an exchange for which the rank waits at once
  start,      ///< an exchange is started; the rank goes on
  wait,       ///< the rank waits for the exchange of the same number
  mark,       ///< begin of a part of the step, with a name from below; planned profiles only
};

/// Marks at which forward and backward of a micro-batch begin; their number is the micro-batch, from 0.
inline constexpr std::string_view kForwardMark = "forward", kBackwardMark = "backward";
/// Mark at which a unit begins within a pass; its number is the unit: 0 the embedding, i + 1 layer i, then the head.
inline constexpr std::string_view kUnitMark = "unit";
/// Mark after the last pass, at which gradients are completed, and then used for the update.
inline constexpr std::string_view kUpdateMark = "update";

/// Pattern of an exchange between ranks.
enum class ExchangeKind : std::uint8_t { none, all_gather, reduce_scatter, all_reduce, all_to_all, message };

/// An exchange between ranks: one collective, the collectives that are started together, or messages to one stage.
struct Exchange {
  ExchangeKind kind = ExchangeKind::none;
  int ranks = 1;     ///< ranks of the group
  int machines = 1;  ///< machines on which they are (comm::Communicator::machines())
  /// all_gather: the whole that is gathered; reduce_scatter: the terms of this rank; all_reduce: the values;
  /// all_to_all, message: what this rank sends to others; 0 if it only receives.
  double bytes = 0;
};

/// One recorded operation, exchange or mark.
struct Span {
  Work work = Work::elementwise;  ///< category
  std::string_view name{};        ///< name of the operation, with static lifetime
  std::int64_t begin = 0;         ///< nanoseconds of the steady clock; 0 in a planned profile
  std::int64_t end = 0;           ///< nanoseconds of the steady clock; 0 in a planned profile
  double bytes = 0;               ///< that kernels of the GPU path read or write, each once for a kernel
  double flops = 0;               ///< additions and multiplications of the formula
  /// m, n, k of a GEMM, C [m, n] summed over k; of attention heads of all sequences, positions and elements of a head;
  /// else zeros.
  std::array<std::int64_t, 3> mnk{};
  SpanKind kind = SpanKind::operation;      ///< operation, start, wait or mark
  int launches = 1;                         ///< kernels that the GPU path launches
  int gemms = 0;                            ///< GEMMs, of which mnk has the sum of m, and the mean of k; 0: no GEMM
  OperandKind operands = OperandKind::f32;  ///< of a GEMM
  Scaling scaling = Scaling::none;          ///< of a GEMM
  bool accumulate = false;                  ///< of a GEMM: adds to C, which it reads
  Exchange exchange{};                      ///< of a start, or of an operation that is an exchange
  std::int64_t number = 0;                  ///< ties a wait to its start, from 1; of a mark as there
};

/// What a Profile records.
enum class Recording : std::uint8_t {
  off,      ///< nothing
  timed,    ///< in contexts that are not dry: the operations, with their times
  planned,  ///< in dry contexts: the operations, without clock or synchronization
};

/// The recorded operations in order. Use it only on the thread that runs the step.
class Profile {
 public:
  /// What is recorded.
  Recording recording = Recording::off;
  /// Compute capability of the GPU for which a step is planned, 90 for 9.0; 0: unknown. It selects kernels as that of
  /// the stream does.
  int compute_capability = 0;
  /// Rows of this rank's experts in a planned step as a multiple of the mean over the ranks that share experts, at
  /// least
  /// 1. The rank is the one that the others wait for.
  double imbalance = 1;
  /// Whether operations of a context are recorded.
  bool records(bool dry) const { return recording == (dry ? Recording::planned : Recording::timed); }
  /// The operations recorded since the last clear().
  const std::vector<Span>& spans() const { return spans_; }
  /// Removes all operations; keeps the allocated memory.
  void clear() { spans_.clear(); }

 private:
  friend class Timer;
  friend void mark(const Context& ctx, std::string_view name, std::int64_t number);
  std::vector<Span> spans_;
  std::int64_t started_ = 0;  // exchanges
  bool busy_ = false;
};

/// Whether `ctx` is dry and its operations are recorded: a plan of time, which has balanced rows of experts and the
/// exchanges of a run.
inline bool planned(const Context& ctx) {
  return ctx.dry && ctx.profile != nullptr && ctx.profile->recording == Recording::planned;
}

/// Whether `ctx` is dry and nothing is recorded: a plan of memory, which has the most rows of experts and no exchanges.
inline bool plans_memory(const Context& ctx) { return ctx.dry && !planned(ctx); }

/// Nanoseconds of the steady clock.
std::int64_t now_ns();

/// Records one operation from construction to destruction; a nested operation counts as part of the outer one. In a
/// timed profile on a device synchronizes before and after, so that the time is that of the work and operations do not
/// overlap. In a planned profile an operation with an exchange becomes its start and its wait, and a nested exchange is
/// recorded after the operation around it.
class Timer {
 public:
  /// Starts the record of an operation, a start or a wait; does nothing unless the profile of `ctx` records it. A start
  /// gets its number here.
  Timer(const Context& ctx, const Span& span)
      : ctx_(ctx), profile_(ctx.profile != nullptr && ctx.profile->records(ctx.dry) ? ctx.profile : nullptr) {
    if (profile_ != nullptr) begin(span);
  }
  /// Starts the record of an operation that is neither a GEMM nor an exchange.
  Timer(const Context& ctx, Work work, std::string_view name, double bytes, double flops = 0, int launches = 1)
      : Timer(ctx, Span{.work = work, .name = name, .bytes = bytes, .flops = flops, .launches = launches}) {}
  ~Timer() {
    if (profile_ != nullptr) end();
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  /// Number of a recorded start, for the wait; else 0.
  std::int64_t number() const { return number_; }

 private:
  void begin(const Span& span);
  void end();

  const Context& ctx_;
  Profile* profile_;
  std::size_t at_ = 0;
  std::int64_t number_ = 0;
  bool outermost_ = true;
};

/// Adds a mark if `ctx` is dry and its profile planned.
void mark(const Context& ctx, std::string_view name, std::int64_t number);

}  // namespace fp8::device
