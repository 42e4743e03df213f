/// The parameters of a model on one rank, from which the decoder gets the weights of a unit, prepared for a pass, and
/// to which it gives gradients; and their update. What the rank has of them is in layout.h, the memory in own_rows.h;
/// the all-gather of weights is in gather.h, the sums of gradients in reduce.h, and FP8 scales in scales.h. All memory
/// comes from one arena, so that a dry run measures it. Frozen parameters (all but adapters, in a model that has
/// adapters) have no moments and no gradients; their shards are in the format in which they are stored, and their
/// compute weights, scales and codes are computed once. The linears of experts are prepared one by one. Not the loop of
/// steps (run.h) and not the arithmetic of the update (optim).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/model/decoder.h"
#include "fp8/optim/adamw.h"
#include "fp8/shard/expert_group.h"
#include "fp8/shard/gather.h"
#include "fp8/shard/muon.h"
#include "fp8/shard/reduce.h"
#include "fp8/shard/scales.h"
#include "fp8/shard/tensor_group.h"

namespace fp8::shard {

/// Position of a micro-batch, which determines the elements that dropout leaves out, and the random bits of stochastic
/// rounding.
struct BatchPosition {
  std::uint64_t seed = 0;      ///< seed of the run
  std::int64_t step = 0;       ///< step of the run
  std::int64_t first_row = 0;  ///< number of the micro-batch's first token in the step's global batch
  std::int64_t rows = 0;       ///< tokens of the step's global batch
  std::int64_t own_rows = 0;   ///< tokens of the micro-batch
};

/// The parameters of one rank.
class ParameterStore final : public model::ParameterAccess {
 public:
  /// Allocates all memory from the context's arena and zeroes the moments. The groups of `mesh` move memory of the
  /// context's device between the ranks, and outlive the store. Under tensor parallelism the table is that of this rank
  /// (model/split.h). Not collective.
  ParameterStore(const Context& ctx, const comm::Mesh& mesh, const hf::ModelConfig& config,
                 std::vector<model::Parameter> table, const StoreOptions& options);
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  /// What this rank has of each parameter.
  const Layout& layout() const { return layout_; }
  /// The parameters, with their precisions.
  const std::vector<model::Parameter>& table() const { return layout_.table(); }
  /// This rank's shard of each, in the order of the table.
  const std::vector<ParameterShard>& shards() const { return own_.parameters; }
  /// The layers of this rank.
  const model::StageRange& stage() const { return layout_.stage(); }
  /// The ranks that share the parameters.
  const comm::Mesh& mesh() const { return mesh_; }
  /// FP8 scales that are kept from step to step.
  Scales& scales() { return scales_; }
  /// The same.
  const Scales& scales() const { return scales_; }
  /// Gradients.
  GradientReducer& gradients() { return gradients_; }

  /// From now on computes the linears that are FP8 in the table with these of their GEMMs in FP8, by number in the
  /// table; the others stay as they are. StoreOptions::fp8_all_gather must be off.
  void set_gemms(const std::vector<quant::GemmSet>& gemms) { gemms_ = gemms; }
  /// From now on LinearPrecision::column_factors of all linears, for which memory must be planned.
  /// StoreOptions::fp8_all_gather must be off.
  void set_column_factors(const View& factors) { column_factors_ = factors; }
  /// Whether casts in passes from here on add to CastOptions::counts, as at first. Kernels that count have more
  /// instructions than the memory of a GPU leaves time for.
  void count_casts(bool on) {
    counts_casts_ = on;
    gather_.count_casts(on);
  }
  /// The micro-batch of passes from here on; nothing: none in training, without dropout, as at first.
  void set_position(const std::optional<BatchPosition>& position) { position_ = position; }
  /// GradientReducer::trace(). Gathered weights are discarded, so that they are gathered again.
  void trace_gradients(GradientTrace* trace);

  /// Computes compute weights, scales (with one reduction for all weights) and codes from the masters. Collective.
  void refresh_compute_weights(const Context& ctx);
  /// Ends the calibration of scales(), and computes the codes of all weights. Collective.
  void end_calibration(const Context& ctx);
  /// Delayed scales from the amaxes of the step, unless it is skipped; AdamW or Muon on the own rows, Muon with GEMMs
  /// of `engine`; then compute weights, scales and codes. `changes`, if not empty, f64 with an element for each
  /// parameter of the table: sums of the squares of the changes of its master weights, over the ranks of Mesh::model().
  /// Collective.
  void update(const Context& ctx, gemm::Engine& engine, const optim::Settings& settings, const optim::Scalars& scalars,
              const View& changes = {});

  /// Memory for the changes that update() measures, from the context's arena.
  View allocate_changes(const Context& ctx) const;

  /// Compares the masters and moments of the own rows with those of the other replicas and of the tp ranks that have
  /// the same block. Names the first parameter that differs: "replica 1 of model.norm.weight is not the same as replica
  /// 0", or "tp rank 3 of ... tp rank 2"; nothing if all are the same. Collective.
  std::optional<std::string> differing_replica(const Context& ctx) const;

  model::ExpertExchange* exchange() override { return exchange_ ? &*exchange_ : nullptr; }
  model::TensorExchange& tensor() override { return tensor_ ? *tensor_ : ParameterAccess::tensor(); }
  void prefetch(int unit, model::Pass pass) override { gather_.prefetch(unit, pass); }
  model::UnitWeights unshard(const Context& ctx, int unit, model::Pass pass) override;
  model::UnitGradients gradient_buffers(int unit) override { return gradients_.gradient_buffers(unit); }
  void gradients_done(int unit) override { gradients_.gradients_done(unit); }

 private:
  /// The whole weight of a slot, or of one of its linears.
  struct Whole {
    View weight;      // codes, or compute weights
    View row_scales;  // of codes with a scale for each row; in dgrad of codes of a pass, and else, not used
    View bias;        // or empty
    View source;      // compute weights or masters of codes, where they are needed; else empty
    View block_scales{}, inverse_block_scales{};  // of codes with a scale for each block
  };
  /// What an update of a parameter writes besides master and moments.
  struct Written {
    View compute_weight;  // as in optim::AdamwBlock
    View amax;            // as in optim::AdamwBlock
    bool measured;        // whether the amax is measured afterwards, because the scale is that of the compute weight
  };
  Written written_by_update(const ParameterShard& o) const;
  View before_update(const Context& ctx, const ParameterShard& o, const View& changes) const;
  void add_change(const Context& ctx, const ParameterShard& o, const View& before, const View& changes) const;
  View bias_of(int unit, std::size_t slot, model::Pass pass) const;
  void add_adapters(int unit, const model::AdaptedSlot& slots, model::UnitWeights& weights) const;
  void cast_codes(const Context& ctx);
  void cast_parts(const Context& ctx, const SlotLayout& s);
  linear::NeededAmaxes needed_of_down(int unit, model::Pass pass) const;
  std::int64_t first_row_of(const SlotLayout& s, const BatchPosition& at) const;
  linear::LinearPrecision precision_of(const SlotLayout& s) const;
  std::vector<linear::Part> parts_of(const SlotLayout& s, const SlotLinear& l) const;
  View dequantized(const Context& ctx, const SlotLayout& s, const SlotLinear& l, const linear::Codes& codes) const;
  std::vector<linear::Weight> prepare_weights(const Context& ctx, int unit, std::size_t slot, model::Pass pass) const;
  linear::Codes codes_of(const Context& ctx, const SlotLayout& s, const SlotLinear& l, const Whole& whole,
                         model::Pass pass) const;
  std::vector<linear::Weight> prepare_experts(const Context& ctx, const SlotLayout& s, const Whole& whole,
                                              model::Pass pass) const;
  linear::Weight prepare_linear(const Context& ctx, const SlotLayout& s, const SlotLinear& l, const Whole& whole,
                                model::Pass pass) const;

  comm::Mesh mesh_;
  std::optional<TensorGroup> tensor_;    // if ranks divide linears
  std::optional<ExpertGroup> exchange_;  // if ranks share experts
  Layout layout_;
  OwnRows own_;
  Scales scales_;
  DgradScales dgrad_;
  WeightGatherer gather_;
  GradientReducer gradients_;
  MuonDirections muon_;
  std::vector<quant::GemmSet> gemms_;  // by number in the table; empty: the sets of the table
  View column_factors_;
  View adapter_scaling_;
  float dropout_probability_ = 0;
  bool counts_casts_ = true;
  std::optional<BatchPosition> position_;
};

}  // namespace fp8::shard
