/// Tokenizers of Hugging Face's tokenizer.json: byte-level BPE (GPT-2, Llama 3, Qwen) and BPE with byte fallback (Llama
/// 2, Mistral). Encodes and decodes to the same ids and texts as the library `tokenizers`. Does not train tokenizers,
/// encode pairs of texts, or compute offsets. The file is untrusted: damaged, too large or unsupported parts throw an
/// Error that names them.
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

/// Upper bound of ids, exclusive.
inline constexpr std::int64_t kMaxIds = std::int64_t{1} << 22;

/// `path`/tokenizer.json if `path` is a folder, otherwise `path`. Throws Error `path: reason` for a folder without one
/// and for a SentencePiece model (*.model).
std::string tokenizer_file(const std::string& path);

/// How to make the tokenizer.json that `folder` lacks, "; the Python packages ... make one of ...", if the folder has a
/// tokenizer in another format: a SentencePiece model (tokenizer.model) or a vocab.json. Else empty.
std::string conversion_advice(const std::string& folder);

/// A tokenizer. Immutable; several threads may use it concurrently.
class Tokenizer {
 public:
  /// Reads `path`, a tokenizer.json or a folder that contains one. Throws Error `path: reason`.
  explicit Tokenizer(const std::string& path);
  /// A tokenizer from the text of a tokenizer.json; `name` is its path() and begins messages.
  static Tokenizer parse(std::string_view text, const std::string& name);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// The path of the tokenizer.json.
  const std::string& path() const;
  /// Largest id plus one, added tokens included.
  std::int64_t vocab_size() const;
  /// The id of the added token or vocabulary entry with exactly this content; nullopt if there is none.
  std::optional<std::uint32_t> id_of(std::string_view content) const;
  /// Decodes `ids` to text. With `skip_special`, special tokens are left out. Unknown ids are ignored. Bytes that are
  /// not UTF-8 become U+FFFD. Throws Error if an expression of the decoder exceeds its limits.
  std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const;

  /// The last byte offset in `text` (valid UTF-8) at which it may be divided for Encoder::encode_part: before a space
  /// between two words, or after a newline. nullopt if there is no such offset, or if the tokenizer does not allow it.
  std::optional<std::size_t> division(std::string_view text) const;

 private:
  friend class Encoder;
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

/// Position of a part in its text.
struct Part {
  bool first = true;  ///< whether it begins the text
  bool last = true;   ///< whether it ends the text
};

/// Encodes with a tokenizer, which must outlive the encoder. Keeps buffers and a word cache (4 MiB) between calls. Not
/// thread-safe: use one encoder per thread.
class Encoder {
 public:
  /// Makes an encoder with an empty cache.
  explicit Encoder(const Tokenizer& tokenizer);
  ~Encoder();
  Encoder(Encoder&&) noexcept;
  Encoder& operator=(Encoder&&) noexcept;

  /// Appends the ids of `text` to `ids`, with `special` including those of the post-processor. Added tokens in the text
  /// are always found. Throws Error if `text` is not UTF-8 or an expression of the tokenizer exceeds its limits; `ids`
  /// is then unspecified.
  void encode(std::string_view text, bool special, std::vector<std::uint32_t>& ids);
  /// Encodes the first `length` bytes of `text`, a part of a longer text that was divided at division(). Unless the
  /// part is the last, `text` must also contain the character after it. The ids of all parts together are those of the
  /// whole text. Returns false, with `ids` unchanged, if the part must be encoded together with the next one.
  bool encode_part(std::string_view text, std::size_t length, Part part, bool special, std::vector<std::uint32_t>& ids);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp8::token
