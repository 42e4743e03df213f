/// The parameters of a run on one rank: master weights, moments, gradients and compute copies of the rows it owns, and
/// the movements that make whole weights of them when the decoder needs them and shards of gradients when it is done.
/// Gathers start one unit ahead; gradients are summed behind backward. All memory comes from one arena, so that a dry
/// store tells what a real one takes. Not the loop (run.h) and not the arithmetic of the update (optim).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fp8/base/digest.h"
#include "fp8/comm/comm.h"
#include "fp8/model/decoder.h"
#include "fp8/optim/adamw.h"
#include "fp8/quant/quantize.h"
#include "fp8/shard/shard.h"

namespace fp8::train {

using device::Context;
using dtype::DType;
using tensor::View;

/// How parameters are kept and moved.
struct StoreOptions {
  DType compute = DType::bf16;        ///< activations' type, and that of weights outside FP8
  linear::LinearPrecision fp8;        ///< recipe of FP8 linears; null recipe: none are
  bool fp8_all_gather = true;         ///< FP8 weights travel as codes where the recipe allows
  DType master = DType::f32;          ///< f32 or bf16
  DType moments = DType::f32;         ///< f32 or bf16
  int zero = 3;                       ///< 1: optimizer state sharded; 2: gradients too; 3: weights too
  bool reshard_after_forward = true;  ///< zero 3: gather again for backward
  bool accumulation = false;          ///< several micro-batches a step
  bool training = true;               ///< false: weights alone, for evaluation
};

/// What one rank holds of one parameter. Views are [own rows, cols] (vectors: [own rows]).
struct ParameterShard {
  int number = 0;        ///< in the parameter table
  shard::RowRange rows;  ///< of the whole parameter
  View master, m, v;     ///< m and v empty unless training
  View gradient;         ///< f32; empty unless training
  View compute_weight;   ///< compute copy; the master itself when it has the compute type; empty when only codes travel
  View codes;            ///< u8; empty unless codes travel
  std::int64_t scale;    ///< index among the scales; -1: none
};

/// What two computations of the same step are compared by: digests of gradients, in the order they came about.
struct GradientTrace {
  /// The gradient of one parameter.
  struct Entry {
    int parameter = 0;  ///< in the parameter table
    Digest digest;      ///< of its values
    /// The same parameter and the same bits.
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> given;   ///< whole gradients of this rank's batches, before they are summed over ranks
  std::vector<Entry> summed;  ///< own rows, after
};

/// See the top of this file.
class ParameterStore final : public model::WeightSource {
 public:
  /// Takes all memory from the context's arena and zeroes moments. `table` has its precisions. Collective only in what
  /// follows.
  ParameterStore(const Context& ctx, comm::Communicator& group, const hf::ModelConfig& config,
                 std::vector<model::Parameter> table, const StoreOptions& options);
  ~ParameterStore() override;

  /// The parameters, with their precisions.
  const std::vector<model::Parameter>& table() const { return table_; }
  /// What this rank owns of each, in the order of the table.
  const std::vector<ParameterShard>& shards() const { return shards_; }

  /// After the masters were filled: compute copies, scales (one reduction for all weights) and codes. Collective.
  void refresh_compute_weights(const Context& ctx);
  /// Begins micro-batch `index` of `count` of a step.
  void begin_micro_batch(int index, int count);
  /// Fills `trace` from here to finish_gradients(), and gathers weights again that are kept. Null: no more.
  void trace_gradients(GradientTrace* trace);
  /// Finishes every reduction under way; own gradients are complete when the last micro-batch was.
  void finish_gradients(const Context& ctx);
  /// The sum over all ranks of `total` and the squares of all gradients, into `total`, which lies at the context's
  /// place and is 0 before. Does not wait for a device. Collective.
  void add_gradient_squares(const Context& ctx, double* total);
  /// AdamW on everything owned, new compute copies, then scales and codes. Collective.
  void update(const Context& ctx, const optim::Settings& settings, const optim::Scalars& scalars);

  void prefetch(int unit) override;
  model::UnitWeights unshard(const Context& ctx, int unit, model::Pass pass) override;
  void release(int unit) override;
  model::UnitGradients gradients(int unit) override;
  void gradients_done(int unit) override;

 private:
  static constexpr std::size_t kSlots = model::kSlots;
  /// What is common to all of a slot's parameters in one unit.
  struct SlotState {
    bool present = false;
    bool fp8_gathered = false;        // gathered as codes
    model::Extent extent;             // of the whole matrix
    std::vector<int> parameters;      // numbers, in row order
    std::vector<linear::Part> parts;  // of a linear
    std::int64_t own_rows = 0;
    View compute_shard, codes_shard, gradient_shard;
    std::int64_t first_scale = -1;
  };
  /// Whole matrices of one unit, being gathered or valid.
  struct Gathered {
    int unit = -1;
    std::array<View, kSlots> slot;
    std::vector<comm::Request> requests;
    double bytes = 0;  // of the whole matrices under way
  };
  /// Whole gradients of one unit, being computed or reduced.
  struct Reducing {
    std::array<View, kSlots> slot;
    std::array<View, kSlots> incoming;  // own rows of micro-batches after the first; empty without accumulation
    int unit = -1;                      // whose reduction is under way
    bool add = false;
    std::vector<comm::Request> requests;
    double bytes = 0;  // of the whole matrices under way
  };

  void build_slots(const hf::ModelConfig& config);
  void allocate_memory(const Context& ctx);
  void allocate_buffers(const Context& ctx);
  void allocate_slot(const Context& ctx, SlotState& s);
  View matrix(const Context& ctx, DType dtype, std::int64_t rows, std::int64_t cols, bool vector,
              std::string_view category) const;
  std::size_t buffer_of(int unit, bool every_unit) const;
  Gathered& gathered(int unit);
  Reducing& reducing(int unit);
  void finish(const Context& ctx, Reducing& r);
  void trace_given(int unit);
  void scales_and_codes(const Context& ctx);
  bool keeps_gathered() const { return options_.zero < 3 || !options_.reshard_after_forward; }

  Context ctx_;
  comm::Communicator& group_;
  std::vector<model::Parameter> table_;
  StoreOptions options_;
  int units_ = 0;
  bool tied_ = false;
  std::vector<std::array<SlotState, kSlots>> slots_;  // by unit
  std::vector<ParameterShard> shards_;
  View amax_, scales_, inverse_scales_;  // f32 [number of parameters gathered in FP8]
  std::vector<Gathered> gathered_;
  std::vector<Reducing> reducing_;
  int micro_ = 0, micro_count_ = 1;
  GradientTrace* trace_ = nullptr;
};

}  // namespace fp8::train
