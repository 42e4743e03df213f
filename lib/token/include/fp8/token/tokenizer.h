/// Tokenizers of Hugging Face's tokenizer.json: byte-level BPE (GPT-2, Llama 3, Qwen) and BPE with byte fallback (Llama
/// 2, Mistral), token for token as the library `tokenizers` encodes and decodes. No training of tokenizers, no pairs of
/// texts, no offsets. The file is untrusted: what is damaged, too large or not supported is refused by name.
/// Source: Hugging Face tokenizers 0.23; Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with
/// Subword Units", 2016.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp8::token {

/// Ids are below this.
inline constexpr std::int64_t kMaxIds = std::int64_t{1} << 22;

/// The file that `path` means: the tokenizer.json in it where it is a folder, else `path`.
std::string tokenizer_file(const std::string& path);

/// A tokenizer. It does not change after construction; any number of threads may use it.
class Tokenizer {
 public:
  /// Reads `path`, a tokenizer.json or the folder that holds one. Throws Error `path: reason`.
  explicit Tokenizer(const std::string& path);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// The file it was read from.
  const std::string& path() const;
  /// Largest id plus one, added tokens included.
  std::int64_t vocab_size() const;
  /// The id of an added token or of an entry of the vocabulary, by its exact content; nothing for any other text.
  std::optional<std::uint32_t> id_of(std::string_view content) const;
  /// The text of `ids`. With `skip_special`, special tokens are left out. Ids that the tokenizer does not have give
  /// nothing. Bytes that are not UTF-8 become U+FFFD. Throws Error when an expression of the decoder exceeds its
  /// limits.
  std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const;

  /// The last place in `text` (valid UTF-8) where it may be divided for Encoder::encode_part: before a space between
  /// two words, or behind a newline. Nothing where there is none, or where the tokenizer allows none.
  std::optional<std::size_t> division(std::string_view text) const;

 private:
  friend class Encoder;
  struct State;
  std::unique_ptr<const State> state_;
};

/// Which end of a text a part is.
struct Part {
  bool first = true;  ///< begins the text
  bool last = true;   ///< ends the text
};

/// Encodes with a tokenizer, which must outlive it. Keeps buffers and a cache of words (4 MiB) between calls: one for
/// each thread.
class Encoder {
 public:
  /// An encoder with an empty cache.
  explicit Encoder(const Tokenizer& tokenizer);
  ~Encoder();
  Encoder(Encoder&&) noexcept;
  Encoder& operator=(Encoder&&) noexcept;

  /// Appends the ids of `text` to `ids`; with `special`, those of the post-processor too. Added tokens inside the text
  /// are found either way. Throws Error when `text` is not UTF-8, or when it makes an expression of the tokenizer
  /// exceed its limits; `ids` is unspecified then.
  void encode(std::string_view text, bool special, std::vector<std::uint32_t>& ids);
  /// The same for the first `length` bytes of `text`, a part of a longer text that was divided at division(). The
  /// character behind `length` must be there unless the part is the last. The ids of all parts are those of the whole
  /// text. False where that is not so, and the part must be encoded together with the next; `ids` is as before then.
  bool encode_part(std::string_view text, std::size_t length, Part part, bool special, std::vector<std::uint32_t>& ids);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp8::token
