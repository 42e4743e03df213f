/// Converts a conversation to token ids and the targets that count: rendering with a template, loss masks, truncation.
/// Source: LLaMA-Factory 0.9.5, data/template.py, data/processor/supervised.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8/chat/conversation.h"
#include "fp8/chat/template.h"
#include "fp8/token/tokenizer.h"

namespace fp8::chat {

/// The tokens that count as targets.
enum class Mask : std::uint8_t {
  assistant,  ///< all answers
  last,       ///< the last answer
  all,        ///< prompts too
};

/// Mask by its name (assistant, last, all); nothing for an unknown one.
std::optional<Mask> parse_mask(std::string_view name);

/// Token ids of a prompt and its answer.
struct Pair {
  std::vector<std::uint32_t> prompt;
  std::vector<std::uint32_t> answer;
  bool prompt_counts = true;  ///< false: no target with Mask::all
  bool answer_counts = true;  ///< false: no target
};

/// A document: token ids, and a mask of the targets.
struct Document {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> mask;  ///< 1 where the token is a target that counts; as many elements as ids
  std::size_t whole = 0;           ///< tokens before truncation
};

/// Spans [begin, end) of nonzero values, none adjacent to another.
std::vector<std::pair<std::size_t, std::size_t>> spans_of(const std::vector<std::uint8_t>& mask);

/// Tokens of a prompt and an answer that are kept, from their beginnings.
struct PairLengths {
  std::size_t prompt = 0;
  std::size_t answer = 0;
};

/// Divides the room for `room` tokens between a prompt and an answer of these lengths. With `room` at least their sum,
/// both are kept.
PairLengths truncate_pair(std::size_t prompt, std::size_t answer, std::size_t room);

/// Joins pairs. If they have more than `cutoff` tokens, pairs are kept from the first on, or with Mask::last from the
/// last back; the pair that does not fit is cut with truncate_pair(), and the others are left out.
Document assemble(const std::vector<Pair>& pairs, Mask mask, std::optional<std::size_t> cutoff);

/// Renders conversations with a template and a tokenizer, which must outlive it. Any number of threads may use it.
class Renderer {
 public:
  /// Uses the special tokens of tokenizer_config.json in the tokenizer's folder. Throws Error if the tokenizer lacks a
  /// token that the template needs.
  Renderer(Template form, const token::Tokenizer& tokenizer);
  /// Uses these special tokens.
  Renderer(Template form, const token::Tokenizer& tokenizer, SpecialTokens special);

  /// The token that fills packed sequences: `pad_token` of tokenizer_config.json, else the end of sequence. Throws
  /// Error if there is neither.
  std::uint32_t padding() const;

  /// Whether a special token is in an answer of the template. Without one, generation does not stop where an answer
  /// ends.
  bool marks_end() const;

  /// Pairs of all turns. `encoder` is one of the tokenizer. Throws Error with the reason alone if the template has no
  /// place for a system prompt, or the text cannot be encoded.
  std::vector<Pair> render(const Conversation& conversation, token::Encoder& encoder) const;

  /// Token ids of a conversation up to where its last answer begins, to which a model adds the answer. Throws as
  /// render().
  std::vector<std::uint32_t> render_prompt(const Conversation& conversation, token::Encoder& encoder) const;

 private:
  std::uint32_t id_of(const std::optional<std::string>& token, const char* name) const;
  void append(const std::vector<Piece>& pieces, const std::string& system, const Turn& turn, token::Encoder& encoder,
              std::vector<std::uint32_t>& ids) const;

  Template form_;
  const token::Tokenizer& tokenizer_;
  SpecialTokens special_;
  std::uint32_t bos_ = 0, eos_ = 0;  // where the template uses them
};

}  // namespace fp8::chat
