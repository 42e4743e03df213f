/// Writes a token file from text, JSON, raw ids, llm.c files or Megatron datasets. Streams: memory does not grow with
/// the input (one JSON record must fit). Text becomes its bytes (vocabulary 256, nothing inserted) or is encoded with a
/// tokenizer. Sources are untrusted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/chat/carried.h"
#include "fp8/chat/conversation.h"
#include "fp8/data/tokens.h"
#include "fp8/token/tokenizer.h"

namespace fp8::data {

/// Format of an input.
enum class Source : std::uint8_t {
  automatic,  ///< by content (llm.c's and Megatron's magic numbers) and file name (.jsonl, .ndjson, .u16, .u32, .json
              ///< of an array); text otherwise, but other .bin and .json are refused as ambiguous, and so is an input
              ///< whose first 64 KiB are not text
  text,       ///< text; one document per file
  jsonl,      ///< one object with "text" per line; one document per line
  json,       ///< an array of objects with "text"; one document per object
  u16,        ///< little-endian uint16 ids, no header; one document per file
  u32,        ///< little-endian uint32 ids, no header; one document per file
  llmc,       ///< llm.c: 256 int32 of header, then ids; one document per file
  megatron,   ///< an indexed dataset of Megatron-LM, named by its .bin or its .idx; documents are those of the index
};

/// Source by its name on the command line (auto, text, jsonl, json, u16, u32, llmc, megatron); empty for an unknown
/// one.
std::optional<Source> parse_source(std::string_view name);

/// A tokenizer, what its model says about conversations, and what a token file records about it.
struct DeclaredTokenizer {
  std::string file = {};  ///< path of the tokenizer.json, or that of a checkpoint and `: /tokenizer`; empty for bytes
  std::string text = {};  ///< content of the tokenizer.json; empty for bytes
  std::string id = {};    ///< "bytes" or a digest
  std::int64_t vocab_size = 0;                     ///< vocabulary of the tokenizer
  std::string note = {};                           ///< as hf::TokenizerIdentity has it
  chat::SpecialTokens special = {};                ///< those that tokenizer_config.json names
  std::optional<chat::Carried> own_template = {};  ///< chat template of the model, if it carries one

  /// The tokenizer; not for bytes.
  token::Tokenizer open() const { return token::Tokenizer::parse(text, file); }
};

/// The tokenizer `name`: "bytes", a tokenizer.json, the folder of one, or a checkpoint, which may be that of a run
/// (ckpt/find.h). Throws Error if it cannot be read, and for a checkpoint that stores no tokenizer.
DeclaredTokenizer declared_tokenizer(const std::string& name);

/// The same, for encoding and decoding alone: without id and vocabulary size, which are not computed.
DeclaredTokenizer read_tokenizer(const std::string& name);

/// Whether an input holds conversations: its first record of JSON has no text under `text_column`, but the columns of a
/// known format. False for standard input, which can be read only once, for other formats, and for files that cannot be
/// read, which are reported later.
bool holds_conversations(const std::string& path, Source from, const chat::Columns& columns,
                         const std::string& text_column);

/// Options of tokenize().
struct TokenizeOptions {
  std::vector<std::string> inputs = {};          ///< paths; `-` is standard input, for text and jsonl
  std::string output = {};                       ///< path of the token file
  Source from = Source::automatic;               ///< format of all inputs
  std::string text_column = "text";              ///< key of the text in records of JSON
  std::optional<std::int64_t> max_records = {};  ///< most records of each input, which are all JSON then; the first
  std::optional<std::int64_t> vocab_size = {};   ///< required for ids; 256 for text unless larger
  std::optional<std::int64_t> eos = {};  ///< id that ends a document: appended for text and jsonl, recognized in ids
  std::optional<std::string> tokenizer = {};       ///< tokenizer of the ids, see TokenInfo; without `encode_with`, text
                                                   ///< is always "bytes"
  const DeclaredTokenizer* encode_with = nullptr;  ///< tokenizer that text is encoded with; null: text becomes bytes
  std::vector<std::string> also_read = {};  ///< files and folders besides `inputs` that the output must not replace
  bool special = true;                      ///< add the tokenizer's special ids around each document
  bool force = false;                       ///< replace a regular file at `output`
  bool dry_run = false;                     ///< read and check everything, write nothing
  std::function<void(std::int64_t)> progress = {};       ///< called periodically with the token count; may be empty
  std::function<void(const std::string&)> waiting = {};  ///< called for inputs that are pipes, see File::open_read()
};

/// Reads every input once, in order. Throws Error `input: reason`, and leaves no output, for: unreadable input, another
/// format than `from`, an id beyond the vocabulary (with its position), text with another tokenizer than bytes, no
/// tokens at all.
TokenInfo tokenize(const TokenizeOptions& options);

}  // namespace fp8::data
