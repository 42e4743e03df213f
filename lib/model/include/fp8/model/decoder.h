/// Forward and backward pass of a decoder-only transformer over micro-batches: embedding, layers, final norm, LM head
/// with the loss in blocks of rows. Decoder computes whole passes, and MicroBatch their parts. The whole
/// logits and T x T matrices are never stored. The same code runs on host and device. Source of the computation:
/// transformers modeling_{llama,mistral,qwen2,qwen3}.py.
///   B sequences, T tokens each, M = B T rows, C hidden, V vocabulary
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fp8/gemm/gemm.h"
#include "fp8/hf/config.h"
#include "fp8/model/cache.h"
#include "fp8/model/execution.h"
#include "fp8/model/routing.h"
#include "fp8/model/split.h"
#include "fp8/model/weights.h"
#include "fp8/ops/attention.h"

namespace fp8::model {

/// One micro-batch.
struct Batch {
  View tokens;             ///< i32 [B, T]
  View targets;            ///< i32 [B, T]; kIgnoredTarget: masked
  std::int64_t sequences;  ///< B
  std::int64_t length;     ///< T
  /// Documents that do not attend to each other, if there are several in a sequence. Rotary positions count from the
  /// beginning of the sequence: only their differences matter.
  ops::Documents documents{};
  View lengths{};  ///< i32 [B]: tokens of each sequence before its padding, which is not routed to experts; empty: T
  RoutingObserver* routing = nullptr;  ///< observer of the routers, which may add losses in training, or null
  /// M.
  std::int64_t rows() const { return sequences * length; }
};

/// The transformer. Holds no weights and no state: calls with the same arguments and the same number of threads give
/// the same bits.
class Decoder {
 public:
  /// A decoder of a rank that has all of the model. Copies both arguments.
  Decoder(const hf::ModelConfig& config, const Execution& execution)
      : Decoder(config, whole_sizes(config), execution) {}
  /// A decoder of a rank with the sizes of local_sizes().
  Decoder(const hf::ModelConfig& config, const DividedSizes& sizes, const Execution& execution)
      : config_(config), sizes_(sizes), execution_(execution) {}

  /// Losses f32 [M] of every target, in nats, 0 where ignored.
  void forward(const Context& ctx, gemm::Engine& engine, ParameterAccess& weights, const Batch& batch,
               const View& losses) const;

  /// Computes forward(), and stores the input of each layer in `inputs` [L + 1, M, C], those of the head last, in the
  /// activations' type, which the caller allocates. Ranks that divide linears gather the rows of all.
  void forward_and_store_inputs(const Context& ctx, gemm::Engine& engine, ParameterAccess& weights, const Batch& batch,
                                const View& inputs, const View& losses) const;

  /// The part of forward() from layer `first` (from 0; L: only the head) on, with that layer's input [M, C], of those
  /// that forward_and_store_inputs() stored, or the rows of some sequences of it.
  void forward_from(const Context& ctx, gemm::Engine& engine, ParameterAccess& weights, const Batch& batch, int first,
                    const View& input, const View& losses) const;

  /// Appends tokens i32 [T] to the text in `cache`, and computes logits f32 [n, V] of its last n tokens, n <= T; empty:
  /// none. It runs on the host. With gemm::HostSums::fixed, and unless a scale is that of several tokens together (FP8
  /// with scales of tensors), the logits of a token have the same bits however the text was divided into calls. Throws
  /// Error if the cache is too small.
  void extend(const Context& ctx, gemm::Engine& engine, ParameterAccess& weights, const View& tokens,
              KeyValueCache& cache, const View& logits) const;

  /// The model.
  const hf::ModelConfig& config() const { return config_; }
  /// Its sizes on this rank.
  const DividedSizes& sizes() const { return sizes_; }
  /// Number of layers, L.
  int layers() const { return static_cast<int>(config_.num_hidden_layers); }
  /// Number of units, layers + 2.
  int units() const { return layers() + 2; }
  /// How it computes.
  const Execution& execution() const { return execution_; }

 private:
  hf::ModelConfig config_;
  DividedSizes sizes_;
  Execution execution_;
};

/// Whether backward follows the forward pass of a micro-batch.
enum class PassKind : std::uint8_t {
  training,   ///< forward saves the activations that backward needs
  inference,  ///< layers overwrite the hidden state, and there is no backward
};

/// One micro-batch on its way through the parts of a decoder: embedding, layers, head; then backward through head,
/// layers, embedding. Each part is a call of its own, so that several micro-batches can be in flight: the parts of
/// one may run between the parts of another in any order, and backward in any order of micro-batches. Decoder's passes
/// call the same parts. The hidden state, its gradient and the saved activations are in the pool of the context's
/// arena; each layer's are freed by its backward, everything else with the object. With several micro-batches in
/// flight, ParameterAccess::gradient_buffers() decides which of them writes the gradients of a unit and which add to
/// them. Deterministic as Decoder.
class MicroBatch {
 public:
  /// Allocates the hidden state. Copies `ctx` and the views of `batch`; their memory, the arena, `decoder`, `engine`
  /// and `weights` outlive the object. Throws Error if the arena is full.
  MicroBatch(const Decoder& decoder, const Context& ctx, gemm::Engine& engine, ParameterAccess& weights,
             const Batch& batch, PassKind kind);
  MicroBatch(MicroBatch&&) noexcept;
  ~MicroBatch();

  /// The hidden state [M, C] in the activations' type: the input of the next part of forward. A micro-batch that does
  /// not begin with the embedding gets its input here.
  View hidden();
  /// The gradient [M, C] of the input of the part whose backward ran last, which the backward of the next part reads
  /// and overwrites. Empty in inference.
  View gradient() const;

  /// Looks up the embeddings of the tokens.
  void forward_embedding();
  /// Computes the layers [first, last), numbered from 0.
  void forward_layers(int first, int last);
  /// Computes the losses f32 [M] of every target, in nats, 0 where ignored.
  void forward_head(const View& losses);
  /// Computes the logits f32 [n, V] of the rows [first, first + n) in place of the losses, and overwrites the hidden
  /// state.
  void forward_logits(std::int64_t first, const View& logits);

  /// Computes the same losses and the gradients of gradient_scale * sum(losses). Logits are not saved but computed
  /// here, so that the head needs no forward_head() before.
  void backward_head(float gradient_scale, const View& losses);
  /// Computes the gradients of the layers [first, last), from last - 1 to first, and frees their saved activations.
  /// Throws Error if the forward of a layer has not run, or its backward has.
  void backward_layers(int first, int last);
  /// Computes the gradient of the embedding.
  void backward_embedding();

 private:
  friend class Decoder;
  struct State;
  explicit MicroBatch(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Rows of logits [rows, vocabulary] that are stored at a time: all, if they take at most `logit_bytes`, else a
/// multiple of 256 (of 16 if 256 rows take more) in blocks of about equal size. Each block reads the head's weight and
/// reads and writes its gradient. Takes more than `logit_bytes` only if 16 rows do.
std::int64_t head_block_rows(std::int64_t rows, std::int64_t vocabulary, dtype::DType activation,
                             std::int64_t logit_bytes);

/// FP8 GEMMs (and FLOPs) that a micro-batch of `rows` tokens must execute, computed from the precisions in the table
/// alone, by a decoder with these settings, without those of experts. `of_model` is the recipe of matmuls that have
/// none of their own.
gemm::Count planned_fp8(const hf::ModelConfig& config, const std::vector<Parameter>& table,
                        const quant::Recipe& of_model, std::int64_t rows, const Execution& execution, bool backward);

/// The FP8 GEMMs of experts of layer `layer`, from 0. Expert first_expert + i has the rows [first[i], first[i + 1]); an
/// expert without rows has none.
gemm::Count planned_experts_fp8(const std::vector<Parameter>& table, const quant::Recipe& of_model, int layer,
                                std::int64_t first_expert, std::span<const std::int64_t> first,
                                const Execution& execution, bool backward);

}  // namespace fp8::model
