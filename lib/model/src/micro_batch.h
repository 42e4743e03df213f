// The state of a micro-batch between the parts of the decoder. Private to the decoder.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "fp8/ops/elementwise.h"
#include "layer.h"

namespace fp8::model {

// A layer whose forward pass is done and whose backward pass is not.
struct SavedLayer {
  explicit SavedLayer(device::Arena& arena) : memory(arena) {}
  device::PooledMemory memory;   // memory of the layer's output and of its saved activations
  View input{};                  // [M, C], in the memory of the layer before
  SavedActivations activations;  // views are empty where backward recomputes them
};

// The final norm and the head over a micro-batch. Views of backward are empty in forward alone.
struct HeadPass {
  View x, norm, rstd;                           // own rows [M, C]; weight of the norm; result f32 [M]
  const linear::Weight& weight;                 // of the head, for the GEMM forward
  const linear::Weight* of_backward = nullptr;  // for backward; null: losses alone
  float gradient_scale = 0;
  View dx{}, dw{};          // results: gradients of the norm of all rows [M, C], and of the head
  bool accumulate = false;  // whether dw is added to
  // Set by State::begin_head().
  View n{};                  // the norm of all ranks' rows [M, C]; empty: a block of rows is normalized as codes
  View x_amax{}, dy_amax{};  // f32 [1]: of a block of the norm, and of the gradient of logits, if their casts need it
};

struct MicroBatch::State {
  State(const Decoder& decoder, const Context& context, gemm::Engine& engine, ParameterAccess& source, const Batch& b,
        PassKind kind);

  // Computes the rotary tables of all positions of the batch.
  void make_rope_tables();
  // Allocates the hidden state, and in training its gradient.
  void allocate_hidden();
  // Allocates [M, C] in the activations' type.
  View rows_by_hidden(device::PooledMemory& from) const;

  // Completes the hidden state and returns it.
  View complete_hidden();
  void forward_layer(int unit, const LayerInput& in, SavedActivations& saved, const View& delta);
  void forward_saving(int layer);
  void forward_overwriting(int first, int last);
  SavedActivations recompute_all(int unit, const View& x, device::PooledMemory& recomputed);
  void prefetch_repeated(int unit) const;
  void prefetch_backward(int unit) const;
  void backward_layer(int layer);

  // Normalizes rows x of the hidden state to n, which may be empty if rmsnorm_codes() follows.
  void final_norm(const View& weight, const View& x, const View& n, const View& rstd, const ops::Amax& amax = {});
  View normalized_rows(const UnitWeights& w, std::int64_t first, std::int64_t count);
  UnitWeights unshard_home(Pass pass) const;
  const linear::Weight& head_weight(const UnitWeights& norm_unit, const UnitWeights& home) const;
  void run_head(HeadPass pass, const View& losses);
  void begin_head(HeadPass& pass, std::int64_t step);
  linear::Input forward_block(const HeadPass& pass, std::int64_t begin, std::int64_t end, const View& logits);
  void backward_block(const HeadPass& pass, const linear::Input& x, std::int64_t begin, std::int64_t end,
                      const View& logits, const View& losses);
  ops::VocabularyPart part_of_vocabulary() const;
  void loss_of(const View& logits, const View& targets, const View& losses, float gradient_scale, bool backward) const;
  // Computes the logits f32 [n, V] of n rows of the hidden state from row `first` on, and overwrites the state. V is
  // the whole vocabulary, also on ranks that have a part of it.
  void logits_of(std::int64_t first, const View& logits);

  Context ctx;
  LayerEnvironment env;
  ParameterAccess& weights;
  Batch batch;
  int head_unit;                       // unit of the final norm, and of the head unless it is tied
  int head_home;                       // unit that holds the head's matrix: 0 when tied
  Slot head_slot;                      // slot of that matrix
  bool saves;                          // whether forward saves activations for backward
  device::PooledMemory memory;         // memory of tables, amaxes, hidden state and gradient
  View gradient{};                     // [M, C]; in forward, scratch for the outputs of blocks; empty in inference
  LayerInput next{};                   // hidden state: input of the next part of forward
  std::map<int, SavedLayer> layers{};  // by number
  bool balanced = false;               // whether env.balance is set
  bool embedded = false, head_done = false;  // whether forward began with the embedding, and backward with the head
  std::span<const LayerCache> caches = {};   // keys and values of all layers, or empty
};

}  // namespace fp8::model
