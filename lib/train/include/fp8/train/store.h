/// The parameters of a model on one rank: master weights, moments, gradients and compute weights of the rows that the
/// rank owns, the all-gather of whole weights for the decoder, and the reduce-scatter of whole gradients. The
/// all-gather of the next unit and the reduce-scatter of the previous one run while a unit computes. All memory comes
/// from one arena, so that a dry run measures it. Not the loop of steps (run.h) and not the arithmetic of the update
/// (optim).
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

/// How parameters are kept and gathered.
struct StoreOptions {
  DType compute = DType::bf16;         ///< format of activations and of weights outside FP8
  linear::LinearPrecision fp8;         ///< recipe of FP8 linears; null: there are none
  bool fp8_all_gather = true;          ///< FP8 all-gather, if the recipe allows it
  DType master = DType::f32;           ///< f32 or bf16
  DType moments = DType::f32;          ///< f32 or bf16
  int zero = 3;                        ///< 1: optimizer state sharded; 2: gradients too; 3: weights too
  bool reshard_after_forward = true;   ///< with zero 3: gather again for backward
  bool several_micro_batches = false;  ///< per step, whose gradients are summed
  bool training = true;                ///< false: only weights, for evaluation
};

/// One rank's shard of one parameter. Views are [own rows, cols] (vectors: [own rows]).
struct ParameterShard {
  int number = 0;        ///< in the parameter table
  shard::RowRange rows;  ///< of the whole parameter
  View master, m, v;     ///< m and v empty unless training
  View gradient;         ///< f32; empty unless training
  View compute_weight;   ///< in the compute format; the master itself if that has it; empty with FP8 all-gather
  View codes;            ///< u8; empty without FP8 all-gather
  std::int64_t scale;    ///< index among the scales; -1: none
};

/// Digests of gradients in the order of computation, to compare two computations of a step.
struct GradientTrace {
  /// The gradient of one parameter.
  struct Entry {
    int parameter = 0;  ///< in the parameter table
    Digest digest;      ///< of its values
    /// The same parameter and the same bits.
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> given;   ///< whole gradients of this rank's batches, before the sum over ranks
  std::vector<Entry> summed;  ///< own rows, after the sum
};

/// The parameters of one rank, from which the decoder gets weights and to which it gives gradients.
class ParameterStore final : public model::WeightSource {
 public:
  /// Allocates all memory from the context's arena and zeroes the moments. `device_comm` moves memory of the context's
  /// device between the ranks. Not collective.
  ParameterStore(const Context& ctx, comm::Communicator& device_comm, const hf::ModelConfig& config,
                 std::vector<model::Parameter> table, const StoreOptions& options);
  ~ParameterStore() override;

  /// The parameters, with their precisions.
  const std::vector<model::Parameter>& table() const { return table_; }
  /// This rank's shard of each, in the order of the table.
  const std::vector<ParameterShard>& shards() const { return shards_; }

  /// Computes compute weights, scales (with one reduction for all weights) and codes from the masters. Collective.
  void refresh_compute_weights(const Context& ctx);
  /// Begins micro-batch `index` of `count` of a step.
  void begin_micro_batch(int index, int count);
  /// Fills `trace` until finish_gradients(), and discards gathered weights, so that they are gathered again. Null: ends
  /// the tracing.
  void trace_gradients(GradientTrace* trace);
  /// Finishes all reductions; after the last micro-batch the own gradients are complete.
  void finish_gradients(const Context& ctx);
  /// Adds the squares of the gradients of all ranks to `total`, which is on the context's device and 0 before; every
  /// rank gets the sum. Does not wait for the device. Collective.
  void add_gradient_squares(const Context& ctx, double* total);
  /// AdamW on the own rows, then compute weights, scales and codes. Collective.
  void update(const Context& ctx, const optim::Settings& settings, const optim::Scalars& scalars);

  void prefetch(int unit) override;
  model::UnitWeights unshard(const Context& ctx, int unit, model::Pass pass) override;
  model::UnitGradients gradient_buffers(int unit) override;
  void gradients_done(int unit) override;

 private:
  static constexpr std::size_t kSlots = model::kSlots;
  /// The parameters of one slot of one unit.
  struct SlotState {
    bool present = false;
    bool fp8_gathered = false;        // FP8 all-gather
    model::Extent extent;             // of the whole matrix
    std::vector<int> parameters;      // numbers in the table, in row order
    std::vector<linear::Part> parts;  // of a linear
    std::int64_t own_rows = 0;
    View compute_shard, codes_shard, gradient_shard;
    std::int64_t first_scale = -1;
  };
  /// Whole matrices of one unit, valid or being gathered.
  struct Gathered {
    int unit = -1;
    std::array<View, kSlots> slot;
    std::vector<comm::Request> requests;
    double bytes = 0;  // of the matrices being gathered
  };
  /// Whole gradients of one unit, being computed or reduced.
  struct Reducing {
    std::array<View, kSlots> slot;
    std::array<View, kSlots> incoming;  // own rows of micro-batches after the first; empty with one micro-batch
    int unit = -1;                      // being reduced
    bool add = false;
    std::vector<comm::Request> requests;
    double bytes = 0;  // of the matrices being reduced
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
  comm::Communicator& device_comm_;
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
