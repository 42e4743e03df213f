// One decoder layer: forward, and backward from the saved activations. Private to the decoder.
#pragma once

#include <memory>
#include <vector>

#include "divided.h"
#include "fp8/linear/groups.h"
#include "fp8/linear/produced.h"
#include "fp8/model/cache.h"
#include "fp8/model/decoder.h"

namespace fp8::model {

// The activations and gradients of a layer whose amax is stored, for casts with one scale for a whole tensor. The
// kernels before a linear record the amax of their result; the amax of attention is computed by its linear in forward,
// and used again in backward.
enum class LayerAmax : std::uint8_t { n1, n2, h, attention, d_out, d_mid, d_gate, d_up, count };

// State that the layers of one micro-batch share.
struct LayerEnvironment {
  const hf::ModelConfig& config;
  const DividedSizes& sizes;  // what this rank computes
  DividedRows rows;           // M = B T
  const Execution& execution;
  gemm::Engine& engine;
  std::int64_t sequences, length;     // B, T
  ops::Documents documents;           // empty: attention crosses their bounds
  View cos, sin;                      // f32 [T, D/2]
  const LayerCache* cache = nullptr;  // null: the batch is whole texts; else it continues one text, and this layer's
                                      // keys and values of its tokens are here
  std::int64_t first = 0;             // position of the first token, with a cache
  OperationObserver* observer = nullptr;  // null: operations are not observed
  int unit = 0;                           // the unit that is computed
  View amaxes{};                          // f32 [L LayerAmax::count], zero at first
  View lengths{};                         // tokens of each sequence before its padding; empty: T
  ExpertExchange* exchange = nullptr;     // null: this rank has all experts
  ParameterAccess* weights = nullptr;
  RoutingObserver* routing = nullptr;  // null: routes are not observed
  RoutingGradients balance{};          // of the losses that balance experts
  bool d_out_known = false;            // whether amaxes have the amax of the gradient of this unit's output
  // Memory in which forward leaves the inputs of linears for backward; null: none, since backward does not follow or
  // computes them again.
  device::PooledMemory* kept = nullptr;
  bool observed = false;  // whether GEMMs of linears are observed, for which the values of their inputs are kept

  // Whether the layer that is computed has experts.
  bool sparse() const { return config.is_sparse(unit - 1); }
  float attention_scale() const;
  // The amaxes of `which` and following, `count` in all, of a layer.
  View amax(int of_unit, LayerAmax which, int count = 1) const {
    const auto begin = (of_unit - 1) * static_cast<int>(LayerAmax::count) + static_cast<int>(which);
    return amaxes.rows(begin, begin + count);
  }
  // Passes a result [M, N] of forward or backward to the observer, if there is one.
  void forward_done(const Context& ctx, std::string_view operation, const View& result) const {
    if (observer != nullptr) observer->observe(ctx, {false, unit, operation}, result);
  }
  void backward_done(const Context& ctx, std::string_view operation, const View& result) const {
    if (observer != nullptr) observer->observe(ctx, {true, unit, operation}, result);
  }
};

// Fills f32 [positions, D/2] tables with the angles of positions from 0.
void fill_rope_tables(const Context& ctx, const hf::ModelConfig& config, const View& cos, const View& sin);

struct ExpertPass;  // dispatch.h

// Activations of the experts of a layer, k rows of which belong to one token: N = k M rows at most, in the order of
// ops::Routes.
struct SavedExperts {
  ops::Routes routes{};
  std::shared_ptr<std::vector<std::int64_t>> first{};  // E + 1: first row of each expert, and one past the last of all
  // Inputs of the experts of this rank [R, C] and of their down [R, X], as their wgrad reads them.
  linear::GroupInput rows{}, h{};
  View gate_up{};  // [R, 2X]
  View out{};      // outputs of experts for the tokens of this rank [N, C]
  // The passes in which the experts of this rank compute the rows of all ranks that share experts, and memory for their
  // indices; empty if this rank has all experts, which compute its own rows in one pass, with R = N. If there are
  // several, values of rows and of h, and gate_up, hold those of one, no codes are kept, and backward computes them
  // again.
  std::shared_ptr<std::vector<ExpertPass>> passes{};
  View indices{};
};

// Activations of a layer that forward saves for backward, in memory from the arena's pool. M rows; those between
// linears (norms, mid, experts) are rows of this rank.
struct SavedActivations {
  View rstd1;        // first norm: f32 [M]
  linear::Input n1;  // input of q, k and v [M, C], as its wgrad reads it
  View q_rstd, k_rstd,
      qk_raw;           // q and k norm: f32 [M, H], [M, G], [M, (H + G) D] before the norm; empty without q/k norms
  View qkv;             // [M, (H + 2G) D] after q/k norms and rope
  View attention, lse;  // [M, H D], f32 [B, H, T]
  View mid, rstd2;      // residual after attention [M, C]; second norm: f32 [M]
  linear::Input n2;     // input of gate and up, as its wgrad reads it, or of experts and router [M, C]
  View gate_up;         // [M, 2F]; empty in a layer with experts
  linear::Input h;      // input of down [M, F], as its wgrad reads it; empty in a layer with experts
  SavedExperts experts;
};

// Layers that differ in what they save.
struct LayerKinds {
  bool dense = false, sparse = false;  // with one MLP, with experts
};
// The kinds of the layers [first, last), from 0.
LayerKinds kinds_of(const hf::ModelConfig& config, int first, int last);

// Allocates the saved activations of a layer of any of the kinds, except n1, n2, h and the inputs of experts.
SavedActivations allocate_saved(const Context& ctx, const LayerEnvironment& env, device::PooledMemory& memory,
                                LayerKinds kinds);

// Allocates the values of these, without computing them.
void allocate_norms_and_h(const Context& ctx, const LayerEnvironment& env, device::PooledMemory& memory,
                          LayerKinds kinds, SavedActivations& saved);

// The input of a layer, or of the head. The last addition of the layer before may be left to the first norm of this
// one, which reads the sum anyway.
struct LayerInput {
  View x;                // [M, C]; with a delta it has yet to receive base + delta
  View base{}, delta{};  // [M, C]; empty: x is complete
};

// Where the input of a linear is while forward computes: its values, and memory for codes if backward reads only those.
struct LinearInput {
  View values{};
  device::PooledMemory* codes = nullptr;
};

// Memory for values that backward reads.
View allocate_values(const Context& ctx, const LayerEnvironment& env, std::int64_t rows, std::int64_t columns);

// Memory for the input of a linear: kept if backward reads the values, else of the arena. `keeps_codes` says of the
// input, of which it reads shape and type, whether codes can take its place.
template <class KeepsCodes>
LinearInput allocate_input(const Context& ctx, const LayerEnvironment& env, std::int64_t rows, std::int64_t columns,
                           KeepsCodes&& keeps_codes) {
  const dtype::DType type = env.execution.activation;
  if (env.kept == nullptr || env.observed ||
      !keeps_codes(tensor::make_view(nullptr, type, ctx.device, {rows, columns})))
    return {allocate_values(ctx, env, rows, columns), nullptr};
  return {tensor::allocate(ctx, type, {rows, columns}, "scratch"), env.kept};
}

// Completes the input of the successor of layer `unit`.
void complete_input(const Context& ctx, const LayerEnvironment& env, int unit, const LayerInput& in);

// Completes `in` and computes a layer but its last addition: the output is saved.mid + delta. delta may be in.delta,
// and in.base saved.mid. With `skip_output` all activations are saved, but what computes the output alone is
// skipped. Leaves n1, n2, h and the inputs of experts in env.kept, for each the codes for wgrad if backward reads no
// more, else the values.
void layer_forward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const LayerInput& in,
                   SavedActivations& saved, const View& delta, bool skip_output);

// Whether an observer of GEMMs has those of a layer now.
bool is_observed(const UnitWeights& w);

// Whether the pass over a layer calibrates delayed scales, without FP8.
bool is_calibrated(const UnitWeights& w);

// Whether the operation that computes the input [rows, columns] of a linear writes codes in place of it: nothing reads
// the values, and the scale is known, follows from `amax` (empty: unknown) or is of blocks.
bool writes_input(const Context& ctx, const LayerEnvironment& env, const linear::Weight& weight, std::int64_t rows,
                  std::int64_t columns, const View& amax);

// The result y of a linear whose input [rows, columns] `write` writes as codes. Returns what backward reads.
template <class Write>
linear::Input forward_written(const Context& ctx, const LayerEnvironment& env, const linear::Weight& weight,
                              std::int64_t rows, std::int64_t columns, const View& amax, const View& y, Write&& write) {
  const linear::ProducedInput x = linear::begin_input(ctx, weight, rows, columns, amax, env.kept);
  write(x.codes);
  linear::forward(ctx, env.engine, weight, x.input, y);
  return {.values = {}, .columns = x.input.columns};
}

// Whether the operation that computes the gradient of a linear's output writes codes in place of it, likewise. `amaxes`
// are those of the linear's parts.
bool writes_gradients(const Context& ctx, const LayerEnvironment& env, const linear::Weight& weight,
                      const linear::Gradients& to, const View& amaxes);

// Where the gradients of a linear and of its adapters go.
linear::Gradients gradients_to(const View& dx, const UnitGradients& g, Slot weight, const View& bias);

// Recomputes n1, n2, h and the inputs of experts from x and the saved activations.
void recompute_norms_and_h(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const View& x,
                           const SavedActivations& saved);

// dres [M, C] holds the gradient of the layer's output and receives that of its input. Returns whether it has recorded
// the amax of the latter as LayerAmax::d_out of the layer before.
bool layer_backward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const UnitGradients& g,
                    const View& x, const SavedActivations& saved, const View& dres);

}  // namespace fp8::model
