/// What one rank has of the parameters of a model: the slots of each unit, the form in which each is held and gathered,
/// the rows of each rank, and the numbers of the scales. All of it follows from the table of parameters, the options
/// and the place of the rank in the mesh. A layout has no memory, does not communicate and does not change.
#pragma once

#include <array>
#include <cstdint>
#include <ranges>
#include <utility>
#include <vector>

#include "fp8/comm/mesh.h"
#include "fp8/dtype/e2m1.h"
#include "fp8/model/parameters.h"
#include "fp8/model/stages.h"
#include "fp8/shard/options.h"
#include "fp8/shard/shard.h"

namespace fp8::shard {

/// The form in which the weight of a slot is held and gathered. FP8 operands come from it when a pass begins.
enum class WeightForm : std::uint8_t {
  absent,       ///< the unit has no such slot
  compute,      ///< in the compute format; its FP8 parts are cast for each pass, with scales of that cast
  delayed,      ///< in the compute format; its FP8 parts are cast for each pass, with delayed scales
  pass_codes,   ///< held in the compute format, gathered as codes of a pass: each rank casts its rows for each gather
  block_codes,  ///< the same with codes for every pass, and a scale for each block of 128 x 128
  gathered_codes,  ///< codes, cast from the masters after each update, with a scale for each part
  delayed_codes,   ///< the same with delayed scales
  single_copy,     ///< the same with a scale for each row, for both passes
  stored_codes,    ///< frozen codes and factors, as the checkpoint stores them
};

/// Parts of a slot that have the same input: all of it, or those of one expert.
struct SlotLinear {
  int expert = -1;                ///< number of the expert; -1: none
  std::int64_t begin = 0;         ///< first row of the slot
  std::int64_t end = 0;           ///< one past the last
  std::size_t first_part = 0;     ///< first of its parts in the slot
  std::size_t last_part = 0;      ///< one past the last
  std::int64_t input_scale = -1;  ///< number of the delayed scale of the input; -1: none
};

/// The parameters of one slot of one unit.
struct SlotLayout {
  WeightForm form = WeightForm::absent;  ///< slots of other stages have a form too, for the scales
  bool of_experts = false;        ///< whether Mesh::expert_shards() share its parameters; otherwise Mesh::shards() do
  int ranks = 1;                  ///< number of these ranks
  bool trainable = false;         ///< whether its parameters are
  bool adapters = false;          ///< whether it has the A of adapters
  bool vector = false;            ///< whether its parameters have one dimension
  bool muon = false;              ///< whether Muon updates its parameters
  linear::LinearPrecision fp8;    ///< precision of its FP8 parts; without recipe if none is FP8
  DType stored = DType::f32;      ///< format of the shards of frozen parameters
  model::Extent extent;           ///< extent of the whole matrix, of experts: of those of this rank
  std::int64_t first_row = 0;     ///< Parameter::slot_row of its first row
  std::int64_t own_rows = 0;      ///< rows of the shards of all its parameters
  std::vector<int> parameters{};  ///< numbers in the table, in row order, of those that this rank has
  std::vector<linear::Part> parts{};       ///< parts of the linears, of all experts; for adapters, the parts of the
                                           ///< linear that they belong to
  std::vector<SlotLinear> linears{};       ///< in row order, of all experts; none in slots that are not of linears
  std::int64_t first_scale = -1;           ///< number of the first scale of its parts, in row order; -1: none
  std::int64_t first_gradient_scale = -1;  ///< number of the first delayed scale of the gradients of its parts
  std::int64_t first_dgrad_scale = -1;     ///< place of the first scale of dgrad, with WeightForm::pass_codes

  /// Whether this rank has any of its parameters.
  bool present() const { return form != WeightForm::absent && !parameters.empty(); }
  /// Whether it is held as codes.
  bool codes() const { return form >= WeightForm::gathered_codes; }
  /// Whether it is gathered as codes, which may be those of a pass.
  bool gathers_codes() const { return codes() || form == WeightForm::pass_codes || form == WeightForm::block_codes; }
  /// Whether the scales of its rows are gathered with its codes.
  bool gathers_row_scales() const { return form == WeightForm::single_copy || form == WeightForm::pass_codes; }
  /// Whether each rank casts its rows of all its parameters together for a gather: those of experts, which all have
  /// equally many.
  bool casts_together() const {
    return of_experts && (form == WeightForm::pass_codes || form == WeightForm::block_codes);
  }
  /// Scales of dgrad of each part, with WeightForm::pass_codes.
  std::int64_t dgrad_scales() const { return linear::scale_count(*fp8.recipe, linear::Pass::backward, 0, extent.cols); }
  /// Number in `parts` of the first part that this rank has.
  std::size_t first_held_part() const;
  /// Number in `parts` of the part that has this row of the slot.
  std::size_t part_at(std::int64_t row) const;
  /// Whether its scales are delayed.
  bool delayed() const { return form == WeightForm::delayed || form == WeightForm::delayed_codes; }
  /// Whether its parts have scales that are kept from step to step.
  bool scaled() const { return delayed() || form == WeightForm::gathered_codes; }
  /// Whether its shards are packed FP4 codes.
  bool packed() const { return form == WeightForm::stored_codes && dtype::is_fp4(stored); }
  /// Columns of its shards: those of the matrix, or bytes of packed codes.
  std::int64_t stored_cols() const { return packed() ? extent.cols / dtype::packed(stored) : extent.cols; }
  /// Extent of the square blocks of its factors; 0 if these are of rows or of parts.
  std::int64_t factor_block() const {
    const quant::BlockExtent block = quant::block_extent(fp8.recipe->forward.w.granularity);
    return block.across == block.along ? block.across : 0;
  }
  /// Rows of the factors of a part.
  std::int64_t factor_rows(const linear::Part& p) const {
    if (factor_block() > 0) return linear::block_rows({p}, factor_block());
    return fp8.recipe->single_copy ? p.end - p.begin : 1;
  }
  /// The rows of a parameter in the whole matrix.
  View rows_of(const View& whole, const model::Parameter& p) const {
    return whole.rows(p.slot_row - first_row, p.slot_row - first_row + p.rows());
  }
};

/// The slots of a unit, by model::Slot.
using UnitLayout = std::array<SlotLayout, model::kSlots>;

/// Numbers of the scales: first those of weights gathered in FP8 that are not delayed; then delayed ones of every
/// weight, of every input and of every gradient of linears with a delayed recipe. Equal on all ranks.
struct ScaleNumbers {
  std::int64_t first_delayed = 0;          ///< the first of delayed ones, of weights
  std::int64_t first_input = 0;            ///< the first of inputs
  std::int64_t first_gradient = 0;         ///< the first of gradients
  std::int64_t count = 0;                  ///< number of all
  const quant::Recipe* delayed = nullptr;  ///< the delayed recipe; null: no linear has one
};

/// The scales of dgrad of the weights that this rank gathers as codes of a pass, which lie one after the other: first
/// those whose amaxes cover elements of several ranks of tensor parallelism, then those of other dense linears, then
/// those of experts. A slot begins at a multiple of 16 bytes.
struct DgradScaleNumbers {
  std::int64_t first_whole = 0;   ///< the first whose amaxes are of one rank of tensor parallelism
  std::int64_t first_expert = 0;  ///< the first of experts
  std::int64_t count = 0;         ///< number of all
};

/// The rows and columns of a parameter that a rank has.
struct Block {
  RowRange rows;     ///< rows of the whole parameter
  RowRange columns;  ///< its columns; [0, 1) of a vector
  /// Number of elements.
  std::int64_t size() const { return rows.count() * columns.count(); }
};

/// The layout of one rank.
class Layout {
 public:
  /// The layout of rank `rank` of a mesh. Under tensor parallelism the table is the one of this rank (model/split.h),
  /// and options.fp8.tensor_parallel.ranks reduces amaxes over the ranks that divide a linear.
  Layout(const comm::MeshShape& mesh, int rank, const hf::ModelConfig& config, std::vector<model::Parameter> table,
         const StoreOptions& options);

  /// The parameters, with their precisions.
  const std::vector<model::Parameter>& table() const { return table_; }
  /// The parameter with this number.
  const model::Parameter& parameter(int number) const { return table_[static_cast<std::size_t>(number)]; }
  /// The options. If no parameter is on several ranks there is nothing to gather, and `zero` is 1.
  const StoreOptions& options() const { return options_; }
  /// The units: embedding, layers, final norm and head.
  const std::vector<UnitLayout>& units() const { return units_; }
  /// Number of units.
  int unit_count() const { return static_cast<int>(units_.size()); }
  /// The slots of a unit.
  const UnitLayout& unit(int number) const { return units_[static_cast<std::size_t>(number)]; }
  /// All slots, unit after unit.
  auto slots() const { return std::views::join(units_); }
  /// The slot of the parameter with this number.
  const SlotLayout& slot_of(int number) const {
    return unit(parameter(number).unit)[static_cast<std::size_t>(parameter(number).slot)];
  }

  /// The rows of this rank's block of a parameter that it has; none if another stage or rank has the parameter.
  RowRange rows(int number) const;
  /// The number of the scale of a parameter; -1: none.
  std::int64_t scale(int number) const { return scale_of_[static_cast<std::size_t>(number)]; }
  /// The numbers of all scales.
  const ScaleNumbers& scales() const { return scales_; }
  /// The places of the scales of dgrad.
  const DgradScaleNumbers& dgrad_scales() const { return dgrad_scales_; }
  /// Whether any parameter is frozen, which is so for all linears then.
  bool frozen() const { return frozen_; }

  /// The layers of this rank. Parameters of other stages have no rows here, but their delayed scales are on all ranks.
  const model::StageRange& stage() const { return stage_; }
  /// Whether this rank's stage has a unit: one of its own, or the tied embedding beside the last one's.
  bool has_unit(int unit) const { return stage_.has(unit) || (tied_ && unit == 0 && stage_.ends()); }
  /// Whether this stage counts and saves a parameter. The last stage has a copy of a tied embedding that it does not.
  bool owns(const model::Parameter& p) const { return stage_.has(p.unit); }
  /// Whether the first and the last stage have a tied embedding each.
  bool tied_apart() const { return tied_ && stage_.stages > 1; }
  /// The experts of every layer that this rank has; the parameters of others have no rows here.
  RowRange experts() const { return experts_of(at_.expert); }
  /// Whether this rank has an expert; true for -1, which is none.
  bool has_expert(int expert) const { return expert < 0 || (expert >= experts().begin && expert < experts().end); }
  /// Whether this rank is the first of the ranks of tensor parallelism that have the same block of a parameter.
  bool first_of_copies(const model::Parameter& p) const { return at_.tensor % p.copies == 0; }

  /// The block of a parameter that rank `rank` of Mesh::model() has; no rows if another rank has the same.
  Block block_on(const model::Parameter& p, int rank) const;
  /// The block of a parameter that rank `rank` of Mesh::model() has, which others may have too.
  Block held_on(const model::Parameter& p, int rank) const;

 private:
  /// Numbers of a rank in its groups.
  struct Place {
    int stage = 0, shard = 0, tensor = 0, expert = 0, expert_shard = 0;
  };
  Place place_of(int rank_of_model) const;
  int expert_shards() const { return mesh_.dp_shard * mesh_.tp / mesh_.ep; }
  RowRange experts_of(int rank) const { return rows_of(expert_count_, rank, mesh_.ep); }
  void build_slots();
  void build_adapters();
  void number_scales();
  void number_dgrad_scales();
  WeightForm form_of(const SlotLayout& s) const;
  bool gathers_own_casts(const SlotLayout& s) const;
  linear::LinearPrecision precision_of(const model::Parameter& p) const;

  comm::MeshShape mesh_;
  std::vector<model::Parameter> table_;
  StoreOptions options_;
  std::int64_t expert_count_ = 0;  // of a layer
  bool tied_ = false, frozen_ = false;
  model::StageRange stage_;
  Place at_;
  std::vector<UnitLayout> units_;
  std::vector<std::int64_t> scale_of_;  // by parameter
  ScaleNumbers scales_;
  DgradScaleNumbers dgrad_scales_;
};

}  // namespace fp8::shard
