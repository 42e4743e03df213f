/// Makes documents of conversations: reads JSON Lines and JSON arrays, renders them with a chat template, cuts and
/// packs them, on all processors, in the order of the input. Memory is bounded. Sources are untrusted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fp8/chat/conversation.h"
#include "fp8/chat/document.h"
#include "fp8/chat/pack.h"
#include "fp8/data/tokens.h"
#include "fp8/json/records.h"
#include "fp8/token/tokenizer.h"

namespace fp8::data {

/// The treatment of a document of more tokens than fit.
enum class TooLong : std::uint8_t {
  cut,    ///< is cut, see chat::assemble
  drop,   ///< is dropped and counted
  error,  ///< is an error
};

/// Name and place of a document, for messages.
struct Origin {
  std::string name;        ///< name of the input
  std::uint64_t line = 0;  ///< line of the record, from 1
};

/// Options of read_conversations().
struct ChatOptions {
  std::vector<std::string> inputs = {};     ///< paths; `-` is standard input
  std::optional<chat::Format> format = {};  ///< format of inputs whose columns name none; without a value it is guessed
  json::Layout layout = json::Layout::by_content;  ///< layout of all inputs
  std::vector<chat::Columns> columns = {};  ///< names that differ from the format's: none, for all inputs, or for each
  const token::Tokenizer* tokenizer = nullptr;  ///< must be set
  /// Special tokens; without a value those that tokenizer_config.json in the tokenizer's folder names.
  std::optional<chat::SpecialTokens> special = {};
  chat::Template form = {};                           ///< template
  chat::Mask mask = chat::Mask::assistant;            ///< tokens that count
  std::optional<std::int64_t> cutoff = {};            ///< most tokens of a document, at least 1
  TooLong too_long = TooLong::cut;                    ///< treatment of longer documents
  std::optional<std::int64_t> pack = {};              ///< length of packed sequences, at least 2
  double skip_bad = 0;                                ///< largest share of bad records that are left out
  std::optional<std::int64_t> max_records = {};       ///< most records of each input, the first ones
  double eval_share = 0;                              ///< share of the records that are for evaluation
  std::function<void(const std::string&)> note = {};  ///< called with messages for the user; may be empty
  /// Called with a message that names the format and the column that were guessed for an input; may be empty.
  std::function<void(const std::string&)> guessed = {};
  std::function<void(std::int64_t)> progress = {};       ///< called periodically with the token count; may be empty
  std::function<void(const std::string&)> waiting = {};  ///< called for inputs that are pipes, see File::open_read()
  /// Called with each document before it is packed; false ends the reading. Empty: no call.
  std::function<bool(const chat::Document&, const Origin&)> document = {};
};

/// Counts of what was read and made.
struct ChatSummary {
  std::int64_t records = 0;                          ///< records read
  std::int64_t documents = 0;                        ///< conversations that became documents
  std::int64_t sequences = 0;                        ///< rows that were delivered: documents, or packed sequences
  std::int64_t tokens = 0;                           ///< tokens of the rows, padding included
  std::int64_t padding = 0;                          ///< tokens that are padding
  std::int64_t targets = 0;                          ///< targets that count, without first tokens of documents
  std::int64_t cut = 0;                              ///< documents that were cut
  std::int64_t longest = 0;                          ///< most tokens of a conversation, before it is cut or dropped
  Origin longest_at = {};                            ///< the first conversation of so many tokens
  std::int64_t rendered = 0, too_long = 0;           ///< conversations, and those of more tokens than fit
  std::int64_t whole = 0, lost = 0;                  ///< tokens of the former, and those that are cut or dropped
  std::map<std::string, std::int64_t> dropped = {};  ///< records that were left out, by reason
  std::map<std::string, std::int64_t> ignored = {};  ///< records, by Conversation::ignored
};

/// Counts of the records for training and of those for evaluation.
struct ChatSummaries {
  ChatSummary train;  ///< records for training
  ChatSummary eval;   ///< records for evaluation; all 0 without ChatOptions::eval_share
};

/// Receives rows in order: documents, or packed sequences. `eval`: for evaluation.
using RowCallback = std::function<void(const chat::Row&, bool eval)>;

/// Reads all inputs and passes their documents to `rows`. Record i is for evaluation if it is the one that a fixed hash
/// picks among each 1 / eval_share records, so that the choice depends on nothing else. Throws Error
/// `input: line N: reason` for a bad record if skip_bad is 0, and if more than that share of the records were bad;
/// Error if nothing is left, or an input is not JSON.
ChatSummaries read_conversations(const ChatOptions& options, const RowCallback& rows);

/// Token files for rows.
struct ChatFiles {
  std::string output = {};                    ///< path of the token file
  std::string eval_output = {};               ///< path of the token file for evaluation; may be empty
  std::int64_t vocab_size = 0;                ///< upper bound (exclusive) of the ids
  std::optional<std::string> tokenizer = {};  ///< identity of the tokenizer, as in TokenInfo
  std::vector<std::string> also_read = {};    ///< files and folders besides the inputs that no output may replace
  bool force = false;                         ///< replace regular files
  bool dry_run = false;                       ///< check everything, write nothing
};

/// read_conversations() into token files with the masks of its rows. Padding of a packed
/// sequence is a document of its own. Throws as read_conversations(), and leaves no output then.
ChatSummaries tokenize_conversations(const ChatOptions& options, const ChatFiles& files);

}  // namespace fp8::data
