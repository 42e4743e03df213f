// Inputs of all formats, read once in pieces, into one token file.
#include "fp8/data/tokenize.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <utility>

#include "document_encoder.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/ordered.h"
#include "fp8/base/text.h"
#include "fp8/json/records.h"
#include "ids.h"
#include "input.h"
#include "sink.h"
#include "text_check.h"

namespace fp8::data {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kRecordBatch = std::size_t{1} << 20U;  // bytes of JSON that a thread parses at a time

constexpr std::array<std::pair<std::string_view, Source>, 8> kSources = {{{"auto", Source::automatic},
                                                                          {"text", Source::text},
                                                                          {"jsonl", Source::jsonl},
                                                                          {"json", Source::json},
                                                                          {"u16", Source::u16},
                                                                          {"u32", Source::u32},
                                                                          {"llmc", Source::llmc},
                                                                          {"megatron", Source::megatron}}};

bool holds_ids(Source s) { return s == Source::u16 || s == Source::u32 || s == Source::llmc || s == Source::megatron; }

// Passes text to the sink: as bytes, or encoded with a tokenizer.
class TextSink {
 public:
  // `tokenizer` may be nullptr: bytes.
  TextSink(const token::Tokenizer* tokenizer, bool special, Sink& sink) : sink_(sink) {
    if (tokenizer == nullptr) return;
    encoder_.emplace(
        *tokenizer, special,
        Documents{[&sink](std::span<const std::uint32_t> ids) { sink.append(ids); }, [&sink] { sink.end_document(); }});
  }
  void append(std::string_view text, const std::string& where) {
    encoder_ ? encoder_->append(text, where) : sink_.append_bytes(std::as_bytes(std::span(text)));
  }
  void end_document() { encoder_ ? encoder_->end_document() : sink_.end_document(); }
  const File::Waiting& waiting() const { return sink_.waiting(); }
  void finish() {
    if (encoder_) encoder_->finish();
  }

 private:
  Sink& sink_;
  std::optional<DocumentEncoder> encoder_;
};

// Reads a text; with `judge`, throws if the first bytes are not text, and leaves out a byte order mark before them.
void read_text(const std::string& path, bool judge, TextSink& sink) {
  Input input(path, sink.waiting());
  std::vector<char> piece(kPiece);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(piece));
  while (const std::size_t n = input.fill(bytes)) {
    if (judge) check_text(input.name(), bytes.first(std::min(n, kHeadBytes)));
    const std::string_view text(piece.data(), n);
    sink.append(judge ? without_byte_order_mark(text) : text, input.name());
    judge = false;
  }
  sink.end_document();
}

// Records of an input, and what they become: texts and their names in messages.
struct RecordBatch {
  std::string name;
  std::vector<json::Record> records;
};
struct Text {
  std::string text;
  std::string where;
};

std::vector<Text> parse_texts(const RecordBatch& batch, const std::string& column) {
  std::vector<Text> texts;
  for (const json::Record& record : batch.records) {
    std::string where = batch.name + ": line " + std::to_string(record.line);
    const json::Value value = json::parse(record, batch.name);
    if (!value.is_object()) throw Error(where + ": not an object with \"" + column + "\"");
    try {
      chat::check_only_text(value.as_object());
    } catch (const Error& e) {
      throw Error(where + ": " + e.what());
    }
    for (const char* key : {"messages", "conversations", "instruction"})
      if (!value.as_object().contains(column) && value.as_object().contains(key))
        throw Error(where + ": \"" + column + "\" is missing",
                    {{"template", "for conversations, which have \"" + std::string(key) + "\""}});
    texts.push_back({value.as_object().get_string(column, where), std::move(where)});
  }
  return texts;
}

void read_json(const std::string& path, json::Layout layout, const TokenizeOptions& options, TextSink& sink) {
  json::RecordReader reader(path, layout, sink.waiting());
  refuse_known_formats(reader.name(), std::as_bytes(std::span(reader.head())), {kAnyBytes});
  if (options.max_records) reader.end_after(*options.max_records);
  OrderedTasks<RecordBatch, std::vector<Text>> batches(
      [&](const RecordBatch& batch) { return parse_texts(batch, options.text_column); },
      [&](const std::vector<Text>& texts) {
        for (const Text& text : texts) {
          sink.append(text.text, text.where);
          sink.end_document();
        }
      });
  json::read_batches(
      reader, kRecordBatch,
      [&](std::vector<json::Record> records) {
        batches.add({reader.name(), std::move(records)});
        return true;
      },
      [&] { batches.finish(); });
  batches.finish();
}

// The first bytes of a regular file; empty for other inputs, which can be read only once.
std::vector<std::byte> head_of(const std::string& path) {
  std::error_code ignored;
  if (path == "-" || !fs::is_regular_file(path, ignored)) return {};
  std::vector<std::byte> head(kHeadBytes);
  head.resize(Input(path, {}).fill(head));
  return head;
}

// Throws if the first line of JSON, which is not an array, is no whole record.
void check_first_line(const std::string& path, std::string_view head) {
  head = without_byte_order_mark(head);
  const std::size_t newline = head.find('\n');
  if (newline != std::string_view::npos && head.starts_with('{'))
    (void)json::parse_line(head.substr(0, newline), path, 1);
}

Source recognize(const std::string& path) {
  const std::vector<std::byte> head = head_of(path);
  if (has_llmc_magic(head)) return Source::llmc;
  const std::string extension = fs::path(path).extension().string();
  const bool jsonl = extension == ".jsonl" || extension == ".ndjson";
  if (jsonl) refuse_known_formats(path, head, {kAnyBytes});
  if (jsonl) return Source::jsonl;
  if (extension == ".u16") return Source::u16;
  if (extension == ".u32") return Source::u32;
  if ((extension == ".bin" || extension == ".idx") && is_megatron(path)) return Source::megatron;
  if (extension == ".bin") throw Error(path + ": not an llm.c file; state its format", {{"from", "u16, u32 or text"}});
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (extension == ".json" && json::begins_array(text, path)) return Source::json;
  if (extension == ".json") check_first_line(path, text);
  if (extension == ".json") throw Error(path + ": state its format", {{"from", "jsonl (an object a line) or text"}});
  check_text(path, head);
  return Source::text;
}

void read_input(const std::string& path, Source source, const TokenizeOptions& options, TextSink& text, Sink& sink) {
  sink.begin(shown(path), holds_ids(source));
  if (source == Source::text) read_text(path, options.from == Source::automatic, text);
  if (source == Source::jsonl) read_json(path, json::Layout::lines, options, text);
  if (source == Source::json) read_json(path, json::Layout::array, options, text);
  text.finish();
  if (source == Source::llmc) read_llmc(path, sink);
  if (source == Source::u16) read_u16(path, sink);
  if (source == Source::u32) read_u32(path, sink);
  if (source == Source::megatron) read_megatron(path, sink);
}

// Throws if the .bin and the .idx of one dataset are both named.
void check_datasets(const TokenizeOptions& options, const std::vector<Source>& sources) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i] != Source::megatron || seen.insert(megatron_prefix(options.inputs[i])).second) continue;
    throw Error(options.inputs[i] + ": its dataset was already named; name either the .bin or the .idx");
  }
}

std::vector<Source> recognize_all(const TokenizeOptions& options) {
  std::vector<Source> sources;
  for (const std::string& path : options.inputs) {
    refuse_description(path);
    sources.push_back(options.from == Source::automatic ? recognize(path) : options.from);
    if (path == "-" && holds_ids(sources.back())) throw Error("standard input: only text and JSON Lines can be piped");
    if (options.max_records && sources.back() != Source::json && sources.back() != Source::jsonl)
      throw Error(shown(path) + ": has no records of JSON to count", {{"max-samples", "not given"}});
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) throw Error(path + ": is a folder");
  }
  if (std::count(options.inputs.begin(), options.inputs.end(), "-") > 1) {
    throw Error("standard input: can be read only once");
  }
  check_datasets(options, sources);
  return sources;
}

// All files and folders that are read.
std::vector<std::string> files_read(const TokenizeOptions& options, const std::vector<Source>& sources) {
  std::vector<std::string> files = options.also_read;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    files.push_back(options.inputs[i]);
    if (sources[i] != Source::megatron) continue;
    for (const char* extension : {".bin", ".idx"}) files.push_back(megatron_prefix(options.inputs[i]) + extension);
  }
  return files;
}

// The tokenizer recorded for all inputs: for text "bytes" or the given tokenizer; for ids the one stated by the user.
std::optional<std::string> tokenizer_of(const TokenizeOptions& options, const std::vector<Source>& sources) {
  const auto text = std::ranges::find_if(sources, [](Source s) { return !holds_ids(s); });
  if (text != sources.end() && options.encode_with == nullptr && options.tokenizer.value_or("bytes") != "bytes") {
    const std::string& input = options.inputs.at(static_cast<std::size_t>(text - sources.begin()));
    throw Error("a tokenizer of ids is named, but " + shown(input) + " holds text, which becomes bytes",
                {{"from", "u16 or u32 for ids"}, {"tokenizer", "bytes"}});
  }
  if (options.tokenizer) return options.tokenizer;
  return std::ranges::any_of(sources, holds_ids) ? std::nullopt : std::optional<std::string>("bytes");
}

}  // namespace

std::optional<Source> parse_source(std::string_view name) {
  for (const auto& [known, source] : kSources) {
    if (known == name) return source;
  }
  return std::nullopt;
}

TokenInfo tokenize(const TokenizeOptions& options) {
  if (options.inputs.empty()) throw Error("no input");
  const std::vector<Source> sources = recognize_all(options);
  check_output(options.output, options.force, files_read(options, sources));
  const auto ids = std::find_if(sources.begin(), sources.end(), holds_ids);
  if (ids != sources.end() && !options.vocab_size) {
    throw Error(options.inputs.at(static_cast<std::size_t>(ids - sources.begin())) + ": ids need a vocabulary size",
                {{"vocab-size", ""}});
  }
  std::optional<token::Tokenizer> tokenizer;
  if (options.encode_with != nullptr && !std::ranges::all_of(sources, holds_ids))
    tokenizer.emplace(options.encode_with->open());
  const std::int64_t vocab_size = options.vocab_size.value_or(tokenizer ? tokenizer->vocab_size() : 256);
  token_type(vocab_size);
  if (options.eos && (*options.eos < 0 || *options.eos >= vocab_size)) {
    throw Error("end-of-document id " + std::to_string(*options.eos) + " is not below the vocabulary size " +
                    std::to_string(vocab_size),
                {{"vocab-size", ""}});
  }
  Sink sink(options, vocab_size, tokenizer_of(options, sources));
  TextSink text(tokenizer ? &*tokenizer : nullptr, options.special, sink);
  for (std::size_t i = 0; i < sources.size(); ++i) read_input(options.inputs[i], sources[i], options, text, sink);
  return sink.finish();
}

}  // namespace fp8::data
