/// Makes a token file of text, JSON Lines, raw ids or llm.c files. Streams: memory does not grow with the input (one
/// JSON record must fit). Tokenizer: bytes, that is vocabulary 256 and nothing inserted. Sources are untrusted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/data/tokens.h"

namespace fp8::data {

/// What an input holds.
enum class Source : std::uint8_t {
  automatic,  ///< told by content (llm.c's magic number) and file name (.jsonl, .ndjson, .u16, .u32); text otherwise,
              ///< but .bin and .json are refused as ambiguous
  text,       ///< bytes; a file is a document
  jsonl,      ///< an object a line with "text"; each is a document
  u16,        ///< little-endian uint16 ids, no header; a file is a document
  u32,        ///< little-endian uint32 ids, no header; a file is a document
  llmc,       ///< llm.c: 256 int32 of header, then ids; a file is a document
};

/// Source by its name on the command line (auto, text, jsonl, u16, u32, llmc); empty for an unknown one.
std::optional<Source> parse_source(std::string_view name);

/// What to make.
struct TokenizeOptions {
  std::vector<std::string> inputs = {};         ///< paths; `-` is standard input, for text and jsonl
  std::string output = {};                      ///< path of the token file
  Source from = Source::automatic;              ///< what all inputs hold
  std::optional<std::int64_t> vocab_size = {};  ///< required for ids; text has 256, and may be given more
  std::optional<std::int64_t> eos = {};  ///< id that ends a document: appended to each of text and jsonl, found in ids
  bool force = false;                    ///< replace a regular file at `output`
  bool dry_run = false;                  ///< read and check everything, write nothing
  std::function<void(std::int64_t)> progress = {};  ///< called now and then with the tokens so far; may be empty
};

/// Reads every input once, in order. Throws Error `input: reason`: unreadable, not what `from` says, an id beyond the
/// vocabulary (with its position), no tokens at all; nothing is left at `output` then.
TokenInfo tokenize(const TokenizeOptions& options);

}  // namespace fp8::data
