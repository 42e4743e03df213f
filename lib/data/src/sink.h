// Destination of the tokens of all inputs. Private to the crate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "fp8/base/file.h"
#include "fp8/data/tokenize.h"
#include "fp8/data/tokens.h"

namespace fp8::data {

// Checks tokens, splits ids at the end of a document, counts, and writes unless it is a dry run.
class Sink {
 public:
  Sink(const TokenizeOptions& options, std::int64_t vocab_size, std::optional<std::string> tokenizer);

  // Begins an input, of token ids if `ids` is set, else of text.
  void begin(const std::string& name, bool ids);
  // Appends to the current document. Throws Error if an id is not below the vocabulary size.
  void append(std::span<const std::uint32_t> tokens);
  void append_bytes(std::span<const std::byte> bytes);
  void end_document();
  const File::Waiting& waiting() const { return options_.waiting; }
  // Throws Error if there are no tokens.
  TokenInfo finish();

 private:
  void check(std::span<const std::uint32_t> tokens) const;
  void put(std::span<const std::uint32_t> tokens);
  void finish_document();

  const TokenizeOptions& options_;
  std::optional<TokenWriter> writer_;
  TokenInfo info_;
  std::string name_;           // name of the current input
  std::int64_t position_ = 0;  // position in the current input
  std::int64_t document_begin_ = 0;
  std::int64_t reported_ = 0;
  bool split_ = false;
  bool append_eos_ = false;
};

}  // namespace fp8::data
