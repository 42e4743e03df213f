/// The parameters of a model on one rank: master weights, moments, gradients and compute weights of the rows that the
/// rank owns, the all-gather of whole weights for the decoder, and the reduce-scatter of whole gradients. The
/// all-gather of the next unit and the reduce-scatter of the previous one run while a unit computes. All memory comes
/// from one arena, so that a dry run measures it. Frozen parameters (all but adapters, in a model that has adapters)
/// have no moments and no gradients; their shards are in the format in which they are stored, and their compute
/// weights, scales and codes are computed once. The linears of experts are prepared one by one. Not the loop of steps
/// (run.h) and not the arithmetic of the update (optim).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8/base/digest.h"
#include "fp8/comm/mesh.h"
#include "fp8/model/decoder.h"
#include "fp8/model/pipeline.h"
#include "fp8/optim/adamw.h"
#include "fp8/quant/quantize.h"
#include "fp8/shard/expert_group.h"
#include "fp8/shard/options.h"
#include "fp8/shard/shard.h"
#include "fp8/shard/tensor_group.h"

namespace fp8::shard {

using device::Context;
using tensor::View;

/// The form in which the weight of a slot is held and gathered. FP8 operands come from it in prepare_linear().
enum class WeightForm : std::uint8_t {
  absent,          ///< the unit has no such slot
  compute,         ///< in the compute format; its FP8 parts are cast for each pass, with scales of that cast
  delayed,         ///< in the compute format; its FP8 parts are cast for each pass, with delayed scales
  gathered_codes,  ///< codes, cast from the masters after each update, with a scale for each part
  delayed_codes,   ///< the same with delayed scales
  single_copy,     ///< the same with a scale for each row, for both passes
  stored_codes,    ///< frozen codes and factors, as the checkpoint stores them
};

/// One rank's shard of one parameter. Views are [own rows, cols] (vectors: [own rows]).
struct ParameterShard {
  int number = 0;       ///< number in the parameter table
  RowRange rows;        ///< rows of the block of Parameter::shape
  View master, m, v;    ///< m and v empty unless training with updates and trainable
  View gradient;        ///< f32; empty unless training and trainable
  View compute_weight;  ///< weight in the compute format: the master itself if that has it; empty with FP8 all-gather
  View codes;           ///< u8; empty without FP8 all-gather; the master itself if that is stored as codes
  View factors;         ///< f32, of the whole parameter: factors of stored codes, in the shape of the file; else empty
  View row_scales;      ///< f32 [own rows] of codes with a scale for each row; else empty
  std::int64_t scale;   ///< index among the scales; -1: none
};

/// Scale and history of an FP8 tensor of a linear under a delayed recipe; equal on all ranks. The input of fused
/// projections is one tensor, which each of them has under its own name. An expert may have had no rows: then its
/// inputs and gradients have the scale 1 and a history of zeros, and are cast with their own amax.
struct ScaleState {
  std::string name;        ///< name of the linear, and input, weight or grad_output: `LINEAR/input`
  int parameter = 0;       ///< number in the parameter table
  View scale;              ///< f32 [1]
  View history;            ///< f32 [length]
  std::int64_t index = 0;  ///< number among all scales, for ParameterStore::set_history
};

/// Position of a micro-batch, which determines the elements that dropout leaves out.
struct DropoutPosition {
  std::uint64_t seed = 0;      ///< seed of the run
  std::int64_t step = 0;       ///< step of the run
  std::int64_t first_row = 0;  ///< number of the micro-batch's first token in the step's global batch
};

/// Digests of gradients in the order of computation, to compare two computations of a step.
struct GradientTrace {
  /// The gradient of one parameter.
  struct Entry {
    int parameter = 0;  ///< number in the parameter table
    Digest digest;      ///< digest of the gradient's values
    /// The same parameter and the same bits.
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> given;   ///< whole gradients of this rank's batches, before the sum over ranks
  std::vector<Entry> summed;  ///< own rows, after the sum
};

/// The parameters of one rank, from which the decoder gets weights and to which it gives gradients.
class ParameterStore final : public model::ParameterAccess {
 public:
  /// Allocates all memory from the context's arena and zeroes the moments. The groups of `mesh` move memory of the
  /// context's device between the ranks, and outlive the store. Under tensor parallelism configuration and table are
  /// those of this rank (model/split.h). Not collective.
  ParameterStore(const Context& ctx, const comm::Mesh& mesh, const hf::ModelConfig& config,
                 std::vector<model::Parameter> table, const StoreOptions& options);
  ~ParameterStore() override;

  /// The parameters, with their precisions.
  const std::vector<model::Parameter>& table() const { return table_; }
  /// This rank's shard of each, in the order of the table.
  const std::vector<ParameterShard>& shards() const { return shards_; }

  /// The layers of this rank. Parameters of other stages have no rows here, but their delayed scales are on all ranks.
  const model::StageRange& stage() const { return stage_; }
  /// Whether this stage counts and saves a parameter. The last stage has a copy of a tied embedding beside it.
  bool owns(const model::Parameter& p) const { return stage_.has(p.unit); }
  /// The ranks that share the parameters.
  const comm::Mesh& mesh() const { return mesh_; }
  /// Whether this rank is the first of the ranks of mesh().tensor() that have the same block of a parameter.
  bool first_of_copies(const model::Parameter& p) const { return mesh_.tensor().rank() % p.copies == 0; }
  /// The experts of every layer that this rank has; the parameters of others have no rows here.
  RowRange experts() const { return experts_of(mesh_.experts().rank()); }
  /// Scales and histories of a delayed recipe; none under other recipes.
  const std::vector<ScaleState>& scale_states() const { return scale_states_; }
  /// The scale with this number and its history have been loaded.
  void set_history(std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    has_history_[i] = 1;
    unseen_[i] = may_be_idle_[i];
  }
  /// Whether the scale with this number is one of the run: it was loaded, or calibration is done.
  bool has_scale(std::int64_t index) const { return has_history_[static_cast<std::size_t>(index)] != 0; }
  /// Loaded scales are of another format or margin: calibration must come first. Histories are kept.
  void require_calibration() { std::ranges::fill(has_history_, char{0}); }
  /// Whether a tensor has no history, so that calibration must come before the first FP8 cast.
  bool needs_calibration() const;
  /// Until end_calibration() linears compute without FP8, and amaxes of tensors without a history are recorded.
  void begin_calibration() { calibrating_ = true; }
  /// Computes scales from what was recorded, and the codes of all weights. Collective.
  void end_calibration(const Context& ctx);
  /// Whether forward and backward record amaxes for delayed scales; returns the setting of before. Recording does not
  /// change results. True at first.
  bool record_amaxes(bool on) { return std::exchange(recording_, on); }

  /// From now on computes the linears that are FP8 in the table with these of their GEMMs in FP8, by number in the
  /// table; the others stay as they are. StoreOptions::fp8_all_gather must be off.
  void set_gemms(const std::vector<quant::GemmSet>& gemms);
  /// From now on LinearPrecision::column_factors of all linears, for which memory must be planned.
  /// StoreOptions::fp8_all_gather must be off.
  void set_column_factors(const View& factors);

  /// Computes compute weights, scales (with one reduction for all weights) and codes from the masters. Collective.
  void refresh_compute_weights(const Context& ctx);
  /// Begins micro-batch `index` of `count` of a step.
  void begin_micro_batch(int index, int count);
  /// Dropout of adapters in passes from here on; nothing: none, as at first.
  void set_dropout(const std::optional<DropoutPosition>& position) { dropout_ = position; }
  /// Fills `trace` until finish_gradients(), and discards gathered weights, so that they are gathered again. Null: ends
  /// the tracing.
  void trace_gradients(GradientTrace* trace);
  /// Finishes all reductions, and sums over replicas; after the last micro-batch the own gradients are complete.
  void finish_gradients(const Context& ctx);
  /// Adds the squares of all gradients to `total`, which is on the context's device and 0 before; every rank gets the
  /// sum. Each parameter counts once: its squares are summed in f64, then added in the order of the table. Does not
  /// wait for the device. Collective.
  void add_gradient_squares(const Context& ctx, double* total);
  /// Calls `visit` on rank 0 for each parameter that is trained, in the order of the table, with its whole gradient
  /// (f32, on the context's device), which is valid during the call. `visit` must not throw, because the other ranks
  /// wait for the next parameter. With several ranks allocates memory for one gradient at a time. Collective.
  void visit_gradients(const Context& ctx,
                       const std::function<void(const model::Parameter&, const View&)>& visit) const;
  /// Sets the own gradients to zero: those of a step without targets, which computes none.
  void zero_gradients(const Context& ctx);
  /// Delayed scales from the amaxes of the step, unless it is skipped; AdamW on the own rows; then compute weights,
  /// scales and codes. Collective.
  void update(const Context& ctx, const optim::Settings& settings, const optim::Scalars& scalars);

  /// Compares the masters and moments of the own rows with those of the other replicas and of the tp ranks that have
  /// the same block. Names the first parameter that differs: "replica 1 of model.norm.weight is not the same as replica
  /// 0", or "tp rank 3 of ... tp rank 2"; nothing if all are the same. Collective.
  std::optional<std::string> differing_replica(const Context& ctx) const;

  model::ExpertExchange* exchange() override { return exchange_ ? &*exchange_ : nullptr; }
  model::TensorExchange* tensor() override { return tensor_ ? &*tensor_ : nullptr; }
  void prefetch(int unit) override;
  model::UnitWeights unshard(const Context& ctx, int unit, model::Pass pass) override;
  model::UnitGradients gradient_buffers(int unit) override;
  void gradients_done(int unit) override;

 private:
  static constexpr std::size_t kSlots = model::kSlots;
  /// Parts of a slot that have the same input: all of it, or those of one expert.
  struct SlotLinear {
    int expert = -1;                            // number of the expert; -1: none
    std::int64_t begin = 0, end = 0;            // rows of the slot
    std::size_t first_part = 0, last_part = 0;  // parts [first, last) of the slot
    std::int64_t input_scale = -1;              // index of the delayed scale of the input
    RowRange factors;                           // rows of SlotState::factors
  };
  /// The parameters of one slot of one unit.
  struct SlotState {
    WeightForm form = WeightForm::absent;
    comm::Communicator* shards = nullptr;  // the ranks that share its parameters
    bool trainable = false;                // whether its parameters are
    bool adapters = false;                 // whether it has the A of adapters
    linear::LinearPrecision fp8;           // precision of its FP8 parts; without recipe if none is FP8
    DType stored = DType::f32;             // format of the shards of frozen parameters
    model::Extent extent;                  // extent of the whole matrix, of experts: of those of this rank
    std::int64_t first_row = 0;            // Parameter::slot_row of its first row
    std::vector<int> parameters;           // numbers in the table, in row order, of those that this rank has
    std::vector<linear::Part> parts;  // parts of the linears; for adapters, the parts of the linear that they belong to
    std::vector<SlotLinear> linears;  // in row order; none in slots that are not of linears; like parts, all experts
    std::int64_t own_rows = 0;
    View master_shard, compute_shard, codes_shard, gradient_shard, row_scales_shard;
    View factors;                            // f32, factors of stored codes, one parameter after the other
    std::int64_t first_scale = -1;           // index of the first scale of its parts, in row order
    std::int64_t first_gradient_scale = -1;  // index of the first delayed scale of the gradients of its parts
    // Whether this rank has any of its parameters. Slots of other stages have a form, too, for the scales.
    bool present() const { return form != WeightForm::absent && !parameters.empty(); }
    bool codes() const { return form >= WeightForm::gathered_codes; }
    bool delayed() const { return form == WeightForm::delayed || form == WeightForm::delayed_codes; }
    // Whether its parts have scales that are kept from step to step.
    bool scaled() const { return delayed() || form == WeightForm::gathered_codes; }
    // The parts of one of its linears, whose first row is 0.
    std::vector<linear::Part> parts_of(const SlotLinear& l) const;
    // The rows of a parameter in the whole matrix.
    View rows_of(const View& whole, const model::Parameter& p) const {
      return whole.rows(p.slot_row - first_row, p.slot_row - first_row + p.rows());
    }
  };
  /// Tensors by the ranks that share them.
  class ByGroup {
   public:
    void add(comm::Communicator& group, const Sharded& tensor);
    // Starts an operation of each group on its tensors.
    std::vector<comm::Request> start(comm::Request (*operation)(comm::Communicator&, std::span<const Sharded>)) const;

   private:
    std::vector<std::pair<comm::Communicator*, std::vector<Sharded>>> groups_;
  };
  /// Whole matrices of one unit, valid or being gathered.
  struct Gathered {
    int unit = -1;
    int frozen = -1;  // unit whose frozen parameters are valid
    std::array<View, kSlots> slot, row_scales;
    std::vector<comm::Request> requests;  // for all of them, one for each group of ranks
    double bytes = 0;                     // size of the matrices being gathered
  };
  /// The whole weight of a slot, or of one of its linears.
  struct Whole {
    View weight;      // codes, or compute weights
    View row_scales;  // of codes with a scale for each row; else not used
    View bias;        // or empty
    View source;      // compute weights or masters of codes, where they are needed; else empty
  };
  /// A gradient that is reduced over the ranks that share the parameter.
  struct Reduced {
    comm::Communicator* group;  // those ranks
    Sharded f32;                // the sums of the own rows, and the whole gradient of this rank
    View sent,
        terms;  // bf16, if it travels so, else empty: the whole gradient, and own rows of each rank [ranks, elements]
    std::int64_t rows = 0, cols = 0;  // of the whole
  };
  /// Whole gradients of one unit, being computed or reduced.
  struct Reducing {
    std::array<View, kSlots> slot;
    std::array<View, kSlots> incoming;     // own rows of micro-batches after the first; empty with one micro-batch
    std::array<View, kSlots> sent, terms;  // bf16, if gradients travel so: whole matrices, and own rows of each rank
    int unit = -1;                         // being reduced
    bool add = false;
    bool last = false;                     // whether the micro-batch is the last one of the step
    std::vector<comm::Request> requests;   // in f32, one for each group of ranks
    std::vector<comm::Request> exchanges;  // in bf16
    double bytes = 0;                      // size of the matrices being reduced
  };

  /// Gradients of which several ranks of tensor parallelism have a part, in memory together.
  struct CopySum {
    int copies = 1;            // adjacent ranks that have the same parameters
    std::vector<int> numbers;  // of the parameters with own rows
    View sent, terms;          // f32 [n], [copies, n]
  };

  void build_slots();
  RowRange experts_of(int rank) const { return rows_of(expert_count_, rank, mesh_.experts().size()); }
  // Whether this rank has an expert; true for -1, which is none.
  bool has_expert(int expert) const { return expert < 0 || (expert >= experts().begin && expert < experts().end); }
  // Whether this rank's stage has a unit.
  bool has_unit(int unit) const { return stage_.has(unit) || (tied_ && unit == 0 && stage_.ends()); }
  RowRange rows_on(const model::Parameter& p, int shard) const;
  void build_tensor_group();
  void allocate_copy_sums(const Context& ctx);
  void sum_copies(const Context& ctx);
  const ParameterShard* tied_embedding() const;
  void sum_tied(const Context& ctx);
  void place_gradient(const Context& ctx, const model::Parameter& p, const View& pieces, const View& whole) const;
  std::pair<RowRange, RowRange> block_on(const model::Parameter& p, int rank) const;
  static void add_part(SlotState& s, const model::Parameter& p, int number);
  void build_adapters();
  void allocate_memory(const Context& ctx);
  void allocate_buffers(const Context& ctx);
  void allocate_slot(const Context& ctx, SlotState& s);
  void allocate_factors(const Context& ctx, SlotState& s);
  View matrix(const Context& ctx, DType dtype, std::int64_t rows, std::int64_t cols, bool vector,
              std::string_view category) const;
  void allocate_adapters(const Context& ctx, const std::optional<hf::LoraConfig>& lora);
  std::size_t buffer_of(int unit, bool every_unit) const;
  Gathered& gathered(int unit);
  View gathered_slot(int unit, std::size_t slot);
  Reducing& reducing(int unit);
  void allocate_sums(const Context& ctx);
  std::vector<Reduced> reduced_of(Reducing& r, int unit) const;
  void finish(const Context& ctx, Reducing& r);
  void start_replica_sums(int unit);
  void finish_replica_sums(const Context& ctx);
  void sum_replicas_in_bf16(const Context& ctx, const View& gradient);
  void trace_given(int unit);
  void add_adapters(int unit, const model::AdaptedSlot& slots, model::UnitWeights& weights) const;
  void scales_and_codes(const Context& ctx);
  WeightForm form_of(const SlotState& s) const;
  const SlotState& slot_of(const ParameterShard& o) const {
    const model::Parameter& p = table_[static_cast<std::size_t>(o.number)];
    return slots_[static_cast<std::size_t>(p.unit)][static_cast<std::size_t>(p.slot)];
  }
  bool delayed() const { return delayed_ != nullptr; }
  linear::LinearPrecision precision_of(const model::Parameter& p) const;
  linear::NeededAmaxes needed_of_down(int unit, model::Pass pass) const;
  void build_scales();
  void allocate_scales(const Context& ctx);
  void list_scale_states();
  quant::KnownScale known_scale(std::int64_t index, bool record) const;
  linear::KnownScales known_scales(const SlotState& s, const SlotLinear& l, model::Pass pass) const;
  void reduce_amaxes(comm::Communicator& group, const View& amaxes) const;
  void renew_current_scales(const Context& ctx);
  void renew_scales(const Context& ctx, const std::int32_t* skip);
  void list_idle(const Context& ctx);
  void forget_idle(const Context& ctx);
  void find_unseen(const Context& ctx);
  void measure_weight(const Context& ctx, const ParameterShard& o);
  // Counts what this rank sends of its rows of a weight.
  void count_gather(const comm::Communicator& group, const Sharded& tensor) const {
    mesh_.traffic().add_gather(comm::Along::dp_shard, group, tensor.mine.dtype,
                               static_cast<std::int64_t>(tensor.mine.bytes()));
  }
  View gather_weight(const Context& ctx, const SlotState& s, DType type);
  View dequantized(const Context& ctx, const SlotState& s, const SlotLinear& l, const linear::Codes& codes) const;
  std::vector<linear::Weight> prepare_weights(const Context& ctx, const SlotState& s, const Whole& whole,
                                              model::Pass pass);
  linear::Weight prepare_linear(const Context& ctx, const SlotState& s, const SlotLinear& l, const Whole& whole,
                                model::Pass pass);
  bool keeps_gathered() const { return options_.zero < 3 || !options_.reshard_after_forward; }

  Context ctx_;
  comm::Mesh mesh_;
  std::vector<model::Parameter> table_;
  StoreOptions options_;
  int units_ = 0;
  std::int64_t expert_count_ = 0;  // of a layer
  bool tied_ = false;
  model::StageRange stage_;
  std::optional<ExpertGroup> exchange_;  // if ranks share experts
  std::optional<TensorGroup> tensor_;    // if ranks divide linears
  bool alone_ = false;                   // whether no parameter is sharded
  bool frozen_ = false;                  // whether any parameter is, which is so for all linears then
  View adapter_scaling_;
  float dropout_probability_ = 0;
  std::optional<DropoutPosition> dropout_;
  std::vector<std::array<SlotState, kSlots>> slots_;  // slots by unit
  std::vector<ParameterShard> shards_;
  // f32 [number of scales]: scales of weights gathered in FP8, unless they are delayed; then delayed scales of every
  // weight, then every input, then every gradient of linears with a delayed recipe
  View amax_, scales_, inverse_scales_;
  View history_;  // f32 [number of delayed scales, length]
  std::int64_t scale_count_ = 0;
  const quant::Recipe* delayed_ = nullptr;  // the delayed recipe, if a linear has it
  std::int64_t first_delayed_ = 0, first_input_ = 0, first_gradient_ = 0;
  std::vector<ScaleState> scale_states_;
  std::vector<char> has_history_;  // flags by number of the scale: it was loaded, or calibration is done
  // Flags by number of the scale: an input or gradient of an expert, to which no row may come in a step; and those of
  // them whose history has no amax yet.
  std::vector<char> may_be_idle_, unseen_;
  View newest_;  // f32 [inputs and gradients, 1]: their newest amaxes, if experts have any
  bool calibrating_ = false, recording_ = true;
  std::vector<Gathered> gathered_;
  std::vector<Reducing> reducing_;
  std::vector<comm::Request> replica_sums_;  // under way
  View replica_sent_, replica_terms_;        // bf16, if gradients travel so: of the largest slot
  View squares_;                             // f64 [parameters]: sums of squares of their gradients
  std::vector<CopySum> copy_sums_;           // if ranks divide linears
  View tied_terms_;                          // f32: the gradient of a tied embedding of the other stage that has it
  int micro_ = 0, micro_count_ = 1;
  GradientTrace* trace_ = nullptr;
};

}  // namespace fp8::shard
