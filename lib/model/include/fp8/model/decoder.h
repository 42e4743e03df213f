/// Forward and backward pass of a decoder-only transformer over one micro-batch: embedding, layers, final norm, LM head
/// with the loss in blocks of rows. Neither the whole logits nor a T x T matrix is ever stored. The same code runs on
/// host and device. Source of the computation: transformers modeling_{llama,mistral,qwen2,qwen3}.py.
///   B sequences, T tokens each, M = B T rows, C hidden, V vocabulary
#pragma once

#include <cstdint>

#include "fp8/gemm/gemm.h"
#include "fp8/hf/config.h"
#include "fp8/model/cache.h"
#include "fp8/model/operation.h"
#include "fp8/model/weights.h"
#include "fp8/ops/attention.h"

namespace fp8::model {

/// Activations that backward recomputes instead of reading saved ones. selective: outputs of norms and of SwiGLU; full:
/// everything inside a layer.
enum class Recompute : std::uint8_t { none, selective, full };

/// Bytes of a block of logits on the host, and the least on a GPU.
inline constexpr std::int64_t kLeastLogits = std::int64_t{64} << 20;
/// Bytes of a block of logits on a GPU with enough memory.
inline constexpr std::int64_t kMostLogits = std::int64_t{1} << 30;

/// One micro-batch.
struct Batch {
  View tokens;             ///< i32 [B, T]
  View targets;            ///< i32 [B, T]; kIgnoredTarget: masked
  std::int64_t sequences;  ///< B
  std::int64_t length;     ///< T
  /// Documents that do not attend to each other, if there are several in a sequence. Rotary positions count from the
  /// beginning of the sequence: only their differences matter.
  ops::Documents documents{};
  /// M.
  std::int64_t rows() const { return sequences * length; }
};

/// Options of the decoder.
struct DecoderOptions {
  dtype::DType activation = dtype::DType::bf16;  ///< f32 or bf16
  Recompute recompute = Recompute::none;         ///< trades time for memory; same numbers
  OperationObserver* observer = nullptr;         ///< of every operation, which it does not change; null: nobody
  std::int64_t logit_bytes = kLeastLogits;       ///< memory for a block of logits, see head_block_rows()
  ops::AttentionOptions attention{};             ///< on a GPU
};

/// The transformer. Holds no weights and no state: calls with the same arguments and the same number of threads give
/// the same bits.
class Decoder {
 public:
  /// Copies both arguments.
  Decoder(const hf::ModelConfig& config, const DecoderOptions& options);

  /// Losses f32 [M] of every target, in nats, 0 where ignored.
  void forward(const Context& ctx, gemm::Engine& engine, WeightSource& weights, const Batch& batch,
               const View& losses) const;

  /// As forward(), and stores the input of each layer in `inputs` [L + 1, M, C], those of the head last, in the
  /// activations' type, which the caller allocates.
  void forward_and_keep(const Context& ctx, gemm::Engine& engine, WeightSource& weights, const Batch& batch,
                        const View& inputs, const View& losses) const;

  /// The part of forward() from layer `first` (from 0; L: only the head) on, with the inputs that forward_and_keep()
  /// stored.
  void forward_from(const Context& ctx, gemm::Engine& engine, WeightSource& weights, const Batch& batch, int first,
                    const View& inputs, const View& losses) const;

  /// As forward(), and computes the gradients of gradient_scale * sum(losses), passed to `weights` unit by unit from
  /// the last to the first.
  void forward_backward(const Context& ctx, gemm::Engine& engine, WeightSource& weights, const Batch& batch,
                        float gradient_scale, const View& losses) const;

  /// Logits [n, V] of the rows [first, first + n), in the activations' type or f32; the caller allocates them.
  void logits(const Context& ctx, gemm::Engine& engine, WeightSource& weights, const Batch& batch, std::int64_t first,
              const View& out) const;

  /// Appends tokens i32 [T] to the text in `cache`, and computes logits f32 [n, V] of its last n tokens, n <= T; empty:
  /// none. On the host. With gemm::HostSums::fixed, and unless a scale is that of several tokens together (FP8 with
  /// scales of tensors), the logits of a token have the same bits however the text was divided into calls. Throws
  /// Error if the cache is too small.
  void extend(const Context& ctx, gemm::Engine& engine, WeightSource& weights, const View& tokens, KeyValueCache& cache,
              const View& logits) const;

  /// The model.
  const hf::ModelConfig& config() const { return config_; }
  /// Number of units, layers + 2.
  int units() const { return static_cast<int>(config_.num_hidden_layers) + 2; }
  /// Options of the constructor.
  const DecoderOptions& options() const { return options_; }

 private:
  hf::ModelConfig config_;
  DecoderOptions options_;
};

/// Rows of logits [rows, vocabulary] that are stored at a time: all, if they take at most `logit_bytes`, else a
/// multiple of 256 (of 16 if 256 rows take more) in blocks of about equal size. Each block reads the head's weight and
/// reads and writes its gradient. Takes more than `logit_bytes` only if 16 rows do.
std::int64_t head_block_rows(std::int64_t rows, std::int64_t vocabulary, dtype::DType activation,
                             std::int64_t logit_bytes);

/// FP8 GEMMs (and FLOPs) that a micro-batch of `rows` tokens must execute, computed from the precisions in the table
/// alone, by a decoder with these options.
gemm::Count planned_fp8(const hf::ModelConfig& config, const std::vector<Parameter>& table, const quant::Recipe& recipe,
                        std::int64_t rows, const DecoderOptions& options, bool backward);

}  // namespace fp8::model
