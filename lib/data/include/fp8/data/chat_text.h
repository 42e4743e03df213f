/// Conversations as the output of a tool: rows and examples as JSON Lines or text, and counts of what was made.
#pragma once

#include <cstdint>
#include <string>

#include "fp8/data/chat.h"
#include "fp8/json/value.h"

namespace fp8::data {

/// Appends the line {"ids":[...],"trained":[[begin,end],...]}; for a packed sequence also lengths and padding.
void append_row(std::string& out, const chat::Row& row, bool packed);

/// A document as lines of text: its origin and counts, then its tokens in spans that count (+) and spans that do not
/// (-), as text and as ids.
std::string example_text(const chat::Document& document, const Origin& origin, const token::Tokenizer& tokenizer);

/// The example as the JSON line {"type":"example","line","text","ids","trained"}.
std::string example_line(const chat::Document& document, const Origin& origin, const token::Tokenizer& tokenizer);

/// {"type":"tokens"} with the path of a token file and the counts of its conversations.
json::Value tokens_record(const std::string& path, const ChatSummary& s, std::int64_t vocab_size);

/// The counts as text: `12 documents, 3406 tokens, 812 targets, 1 cut, 2 left out (not valid JSON: 2)`.
std::string counts_text(const ChatSummary& s, bool packed);

/// The path of the file for evaluation: `output` with -eval before its extension.
std::string eval_path(const std::string& output);

}  // namespace fp8::data
