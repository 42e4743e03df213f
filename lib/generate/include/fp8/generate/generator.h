/// Generation of text: the prompt in pieces, then token by token, over a key/value cache. One process, on the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/generate/prompt.h"
#include "fp8/generate/resident.h"
#include "fp8/generate/sampler.h"
#include "fp8/model/decoder.h"

namespace fp8::generate {

/// Why a text ended.
enum class End : std::uint8_t {
  end_token,   ///< the model gave a token that ends a text
  stop,        ///< a stop text
  max_tokens,  ///< the number of tokens was reached
  context,     ///< the model's context is full
};

/// "end_token", "stop", "max_tokens", "context".
std::string_view name_of(End end);

/// A request to generate text.
struct Request {
  std::int64_t max_tokens = 256;           ///< most new tokens, at least 1
  std::vector<std::int64_t> end_tokens{};  ///< ids that end a text
  std::vector<std::string> stops{};        ///< texts that end a text, which they are not part of; they need a codec
  bool log_probabilities = false;          ///< compute the log-probability of each token
  std::uint64_t prompt = 0;                ///< number of the prompt, which keys its random numbers
};

/// A new token.
struct NewToken {
  std::uint32_t id = 0;                    ///< its id
  std::optional<float> log_probability{};  ///< of its probability at temperature 1, nats, from logits in the type
                                           ///< in which the model computes; if wanted
  std::string text{};                      ///< text that is complete with it; may be empty
};

/// A generated text.
struct Generated {
  Ids ids{};                  ///< new tokens, with the one that ended the text
  std::string text{};         ///< their text, without the stop text
  End end = End::max_tokens;  ///< why it ended
  double prompt_seconds = 0;  ///< time for the prompt
  double token_seconds = 0;   ///< time for the new tokens after the first
};

/// How a model computes.
struct Precision {
  dtype::DType compute = dtype::DType::bf16;  ///< format of activations and of weights outside FP8
  const quant::Recipe* recipe = nullptr;      ///< recipe of FP8 linears, or null if there are none
};

/// Most tokens of a prompt and its continuation: the model's context, or its sliding window if that is shorter.
std::int64_t context_of(const hf::ModelConfig& config);

/// Throws Error with the reason alone if a prompt is empty, leaves no room in the context, or has ids outside of the
/// vocabulary.
void check_prompt(const Ids& prompt, const hf::ModelConfig& config);

/// A model in memory. Results are the same bits for any number of threads.
class Generator {
 public:
  /// Reads the weights. Throws Error if a recipe is given and no linear is FP8 (Exit::fp8_missing), or memory is
  /// insufficient.
  Generator(const convert::OpenModel& model, const Precision& precision);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  /// Bytes of weights that a token's pass reads.
  double bytes_read() const;
  /// Generates from a prompt and passes each token to `each`. `codec` may be null: then tokens have no text. Throws as
  /// check_prompt(), and Error if logits are not finite.
  Generated run(const Ids& prompt, const Request& request, const Codec* codec, Sampler& sampler,
                const std::function<void(const NewToken&)>& each);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp8::generate
