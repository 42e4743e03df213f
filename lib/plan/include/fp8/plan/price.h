/// The time of a planned step on a machine: each operation of a rank's record costs the longer of its FLOPs and its
/// bytes, and a launch; exchanges run beside the operations from their start to their wait, one after the other; stages
/// of a pipeline wait for each other.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/plan/machine.h"

namespace fp8::plan {

/// What takes the time of a step, in the order of the tables.
enum class Term : std::uint8_t {
  gemm_forward,   ///< GEMMs of forward
  gemm_dgrad,     ///< GEMMs of the gradient of the input
  gemm_wgrad,     ///< GEMMs of the gradient of the weight
  gemm_other,     ///< other GEMMs
  attention,      ///< forward and backward
  casts,          ///< casts to and from FP8, amaxes
  kernels,        ///< norms, RoPE, SwiGLU, embedding, loss, sums
  launches,       ///< gaps between kernels, and waits for the host where it launches too slowly
  communication,  ///< exchanges that no operation hides, and what hidden ones cost operations
  bubble,         ///< waits for other stages of a pipeline
  update,         ///< norm of the gradient, AdamW, casts of weights after it
};

/// Number of terms.
inline constexpr std::size_t kTerms = 11;

/// Names of terms, for tables and records.
inline constexpr std::array<std::string_view, kTerms> kTermNames{
    "gemm_forward", "gemm_dgrad", "gemm_wgrad",    "gemm_other", "attention", "casts",
    "kernels",      "launches",   "communication", "bubble",     "update"};

/// Seconds by term.
struct Times {
  std::array<double, kTerms> of{};
  /// Seconds of one term.
  double& operator[](Term t) { return of[static_cast<std::size_t>(t)]; }
  /// Seconds of one term.
  double operator[](Term t) const { return of[static_cast<std::size_t>(t)]; }
  /// Their sum.
  double total() const;
  /// Adds `factor` times the other.
  void add(const Times& other, double factor = 1);
};

/// Which of the two values of each kind of figure counts: true makes a step fast.
struct Corner {
  bool gemm = false, attention = false, bytes = false, launch = false, network = false;
};

/// How another program differs from this one in what its steps cost, where no flag says so. Sources are in fp8-plan(1).
struct Habits {
  double awaited = 1;    ///< share that is left of exchanges for which a pass waits at once (tp overlap)
  double fused = 1;      ///< share that is left of the bytes and launches of kernels other than GEMMs and attention
  double attention = 1;  ///< share of the rates of attention that is reached
  double repeated_gemms = 0;  ///< share of the GEMMs of forward that backward repeats under --recompute selective
  bool emulated = false;      ///< FP8 values are multiplied as bf16
  bool graphs = false;        ///< launches are recorded in graphs, so that the host costs nothing
};

/// The habits of "megatron" or "fsdp2", or our own for an empty name. Throws Error for another.
Habits habits_of(const std::string& name);

/// What prices depend on.
struct Prices {
  const Machine& machine;
  Corner corner;
  Habits habits{};
};

/// Seconds of an operation alone, without its launch.
double seconds_of(const Machine& machine, const Corner& corner, const device::Span& operation);

/// Seconds of an exchange alone.
double seconds_of(const Machine& machine, const Corner& corner, const device::Exchange& exchange);

/// The spans of a rank's step. Equal operations and exchanges, such as those of equal layers, are priced once.
class Record {
 public:
  Record() = default;
  /// Takes the spans of a planned profile.
  explicit Record(std::vector<device::Span> spans);
  /// The spans, in order.
  const std::vector<device::Span>& spans() const { return spans_; }
  /// Seconds of the different operations and exchanges alone, without launches.
  std::vector<double> prices(const Prices& prices) const;
  /// Number of a span among prices().
  std::size_t price_of(std::size_t span) const { return price_[span]; }

 private:
  std::vector<device::Span> spans_;
  std::vector<std::size_t> price_, distinct_;  // the price of each span; the first span of each price
};

/// What one rank computes between two marks of its record.
struct Pass {
  std::string_view mark;         ///< device::kForwardMark, kBackwardMark, kUpdateMark; empty before the first
  std::int64_t micro_batch = 0;  ///< of forward and backward
  Times times;                   ///< without bubble
};

/// The passes of a rank's record. Messages between stages take no time here.
std::vector<Pass> passes_of(const Prices& prices, const Record& record);

/// Seconds of the operations of each unit in forward and backward of a micro-batch, by unit: 0 the embedding, i + 1
/// layer i, then the head. Units that the record does not have are missing.
std::map<std::int64_t, double> units_of(const Prices& prices, const Record& record);

/// What the stages of a pipeline go through in a step.
struct Schedule {
  std::int64_t micro_batches = 1;  ///< of a step
  double message = 0;              ///< seconds of a message between stages
  int virtual_stages = 1;  ///< interleaved stages of each rank: they divide the bubble and multiply the messages
};

/// The time of a step, from the passes of a rank of each stage, in order; with the terms of the stage that ends last.
Times step_of(const std::vector<std::vector<Pass>>& stages, const Schedule& schedule);

}  // namespace fp8::plan
