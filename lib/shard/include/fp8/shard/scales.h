/// The FP8 scales that a store keeps from step to step: those of weights that are gathered in FP8, which follow from
/// the weights, and those of a delayed recipe with their histories. Calibration computes delayed scales before the
/// first FP8 cast.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fp8/comm/mesh.h"
#include "fp8/shard/own_rows.h"

namespace fp8::shard {

/// Scale and history of an FP8 tensor of a linear under a delayed recipe; equal on all ranks. The input of fused
/// projections is one tensor, which each of them has under its own name. An expert may have had no rows: then its
/// inputs and gradients have the scale 1 and a history of zeros, and are cast with their own amax.
struct ScaleState {
  std::string name;        ///< name of the linear, and input, weight or grad_output: `LINEAR/input`
  int parameter = 0;       ///< number in the parameter table
  View scale;              ///< f32 [1]
  View history;            ///< f32 [length]
  std::int64_t index = 0;  ///< number among all scales, for Scales::set_history()
};

/// Scales, their reciprocals and the amaxes of a step, by the numbers of ScaleNumbers.
class Scales {
 public:
  /// Allocates them from the context's arena. A delayed scale is 1 and its history 0 until they are loaded or
  /// calibrated. The arguments outlive the scales. Not collective.
  Scales(const Context& ctx, const comm::Mesh& mesh, const Layout& layout, const OwnRows& own);

  /// Scales and histories of a delayed recipe; none under other recipes.
  const std::vector<ScaleState>& states() const { return states_; }
  /// The scale with this number and its history have been loaded.
  void set_history(std::int64_t index);
  /// Whether the scale with this number is one of the run: it was loaded, or calibration is done.
  bool has_scale(std::int64_t index) const { return is_set(has_history_, index); }

  /// Loaded scales are of another format or margin: calibration must come first. Histories are kept.
  void require_calibration() { has_history_.assign(has_history_.size(), 0); }
  /// Whether a tensor has no history, so that calibration must come before the first FP8 cast.
  bool needs_calibration() const;
  /// Until end_calibration() linears compute without FP8, and amaxes of tensors without a history are recorded.
  void begin_calibration() { calibrating_ = true; }
  /// Computes delayed scales from what was recorded. Collective.
  void end_calibration(const Context& ctx);
  /// Whether calibration has begun and not ended.
  bool calibrating() const { return calibrating_; }
  /// Takes all delayed scales as known, as they are in every step but the first: for a plan of time.
  void assume_calibrated();
  /// Whether forward and backward record amaxes for delayed scales; returns the setting of before. Recording does not
  /// change results. True at first.
  bool record_amaxes(bool on) { return std::exchange(recording_, on); }

  /// Delayed scales of a linear's operands in a pass, and where their amaxes are recorded; empty without. `parts`:
  /// the parts of the linear.
  linear::KnownScales known(const SlotLayout& s, const SlotLinear& l, const std::vector<linear::Part>& parts,
                            linear::Pass pass) const;
  /// f32 [parts]: the scales of the weight of a linear that is held as codes with one scale for each part.
  View weights(const SlotLayout& s, const SlotLinear& l) const { return of_linear(scales_, s, l); }
  /// Their reciprocals.
  View inverse_weights(const SlotLayout& s, const SlotLinear& l) const { return of_linear(inverse_scales_, s, l); }

  /// f32 [1]: the amax of a parameter that has a scale, where an update records it as it writes the master.
  View amax(int number) const { return amax_.rows(layout_.scale(number), layout_.scale(number) + 1); }
  /// Measures the own rows of a parameter that has a scale, as they are cast: the masters with FP8 all-gather, else the
  /// compute weights.
  void measure(const Context& ctx, int number);
  /// Measures all weights, and computes delayed scales of frozen ones. Collective.
  void measure_all(const Context& ctx);
  /// Forgets the amaxes of weights whose scales are not delayed.
  void clear_current(const Context& ctx);
  /// Scales of weights that are gathered in FP8 and not delayed, from their amaxes on all ranks. Collective.
  void renew_current(const Context& ctx);
  /// Delayed scales from the recorded amaxes of all ranks, which are then 0. `skip` (may be null): see
  /// quant::update_scales(). Collective.
  void renew_delayed(const Context& ctx, const std::int32_t* skip);

 private:
  void list_states();
  void list_idle(const Context& ctx);
  void forget_idle(const Context& ctx);
  void find_unseen(const Context& ctx);
  quant::KnownScale known(std::int64_t index, bool record) const;
  // The rows of the parts of a linear in a view of all scales.
  static View of_linear(const View& all, const SlotLayout& s, const SlotLinear& l) {
    return all.rows(s.first_scale + static_cast<std::int64_t>(l.first_part),
                    s.first_scale + static_cast<std::int64_t>(l.last_part));
  }
  // The histories of the delayed scales with these numbers.
  View histories(std::int64_t begin, std::int64_t end) const {
    return history_.rows(begin - numbers_.first_delayed, end - numbers_.first_delayed);
  }
  static bool is_set(const std::vector<char>& flags, std::int64_t index) {
    return flags[static_cast<std::size_t>(index)] != 0;
  }

  comm::Mesh mesh_;
  const Layout& layout_;
  const OwnRows& own_;
  const ScaleNumbers& numbers_;
  View amax_, scales_, inverse_scales_;  // f32 [number of scales]
  View history_;                         // f32 [number of delayed scales, length]
  std::vector<ScaleState> states_;
  // Flags by number of the scale: it was loaded, or calibration is done; an input or gradient of an expert, to which no
  // row may come in a step; one of these whose history has no amax yet.
  std::vector<char> has_history_, may_be_idle_, unseen_;
  View newest_;  // f32 [inputs and gradients, 1]: their newest amaxes, if experts have any
  bool calibrating_ = false, recording_ = true;
};

}  // namespace fp8::shard
