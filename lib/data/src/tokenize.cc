// Inputs of all formats, read once in pieces, into one token file.
#include "fp8/data/tokenize.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <utility>

#include "document_encoder.h"
#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/input.h"
#include "fp8/json/json.h"
#include "text_check.h"

static_assert(std::endian::native == std::endian::little, "ids are little-endian in every file");

namespace fp8::data {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kPiece = std::size_t{1} << 18;  // bytes read at a time; a multiple of every id's size
constexpr std::int64_t kProgressEvery = std::int64_t{1} << 22;

constexpr std::size_t kLlmcHeader = 256 * sizeof(std::int32_t);
constexpr std::int32_t kLlmcMagic16 = 20240520;
constexpr std::int32_t kLlmcMagic32 = 20240801;

constexpr std::array<std::pair<std::string_view, Source>, 6> kSources = {{{"auto", Source::automatic},
                                                                          {"text", Source::text},
                                                                          {"jsonl", Source::jsonl},
                                                                          {"u16", Source::u16},
                                                                          {"u32", Source::u32},
                                                                          {"llmc", Source::llmc}}};

bool holds_ids(Source s) { return s == Source::u16 || s == Source::u32 || s == Source::llmc; }

std::string shown(const std::string& input) { return input == "-" ? "standard input" : input; }

// A file or standard input, read front to back.
class Input {
 public:
  Input(const std::string& path, const File::Waiting& waiting) : name_(shown(path)) {
    if (path != "-") file_ = File::open_read(path, waiting);
  }
  const std::string& name() const { return name_; }
  const File& file() const { return file_; }

  // Fills `bytes` unless the input ends; returns the number read.
  std::size_t fill(std::span<std::byte> bytes) {
    std::size_t got = 0;
    while (got < bytes.size()) {
      const std::size_t n = read_some(file_.is_open() ? file_.fd() : STDIN_FILENO, name_, bytes.subspan(got));
      if (n == 0) break;
      got += n;
    }
    return got;
  }

 private:
  std::string name_;
  File file_;
};

// Destination of the tokens: checks them, splits ids at the end of a document, counts, and writes unless it is a dry
// run.
class Sink {
 public:
  Sink(const TokenizeOptions& options, std::int64_t vocab_size, std::optional<std::string> tokenizer)
      : options_(options) {
    info_.vocab_size = vocab_size;
    info_.tokenizer = std::move(tokenizer);
    info_.eos = options.eos;
    if (options.dry_run) {
      check_output(options.output, options.force);
    } else {
      writer_.emplace(options.output, vocab_size, options.eos, false, options.force, info_.tokenizer);
    }
  }

  void begin(const std::string& name, bool ids) {
    name_ = name;
    split_ = ids && info_.eos.has_value();
    append_eos_ = !ids && info_.eos.has_value();
    position_ = 0;
  }
  void append(std::span<const std::uint32_t> tokens) {
    check(tokens);
    position_ += static_cast<std::int64_t>(tokens.size());
    while (split_ && !tokens.empty()) {
      const auto end = std::find(tokens.begin(), tokens.end(), static_cast<std::uint32_t>(*info_.eos));
      if (end == tokens.end()) break;
      const auto length = static_cast<std::size_t>(end - tokens.begin()) + 1;
      put(tokens.first(length));
      finish_document();
      tokens = tokens.subspan(length);
    }
    put(tokens);
  }
  void append_bytes(std::span<const std::byte> bytes) {
    std::array<std::uint32_t, 4096> wide;
    while (!bytes.empty()) {
      const std::size_t n = std::min(bytes.size(), wide.size());
      for (std::size_t i = 0; i < n; ++i) wide[i] = std::to_integer<std::uint32_t>(bytes[i]);
      append(std::span(wide).first(n));
      bytes = bytes.subspan(n);
    }
  }
  void end_document() {
    if (append_eos_ && info_.tokens != document_begin_) {
      const auto eos = static_cast<std::uint32_t>(*info_.eos);
      put({&eos, 1});
    }
    finish_document();
  }
  const File::Waiting& waiting() const { return options_.waiting; }
  TokenInfo finish() {
    if (info_.tokens == 0) {
      throw Error(options_.inputs.size() == 1 ? shown(options_.inputs.front()) + ": holds no tokens"
                                              : "the inputs hold no tokens");
    }
    return writer_ ? writer_->finish() : info_;
  }

 private:
  void check(std::span<const std::uint32_t> tokens) const {
    const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](auto id) { return id >= info_.vocab_size; });
    if (bad == tokens.end()) return;
    throw Error(name_ + ": token " + std::to_string(position_ + (bad - tokens.begin())) + " is " +
                std::to_string(*bad) + ", not below the vocabulary size " + std::to_string(info_.vocab_size) +
                " (--vocab-size)");
  }
  void put(std::span<const std::uint32_t> tokens) {
    if (writer_) writer_->append(tokens);
    info_.tokens += static_cast<std::int64_t>(tokens.size());
    if (options_.progress && info_.tokens >= reported_ + kProgressEvery) {
      reported_ = info_.tokens;
      options_.progress(info_.tokens);
    }
  }
  void finish_document() {
    if (writer_) writer_->end_document();
    info_.documents += info_.tokens != document_begin_ ? 1 : 0;
    document_begin_ = info_.tokens;
  }

  const TokenizeOptions& options_;
  std::optional<TokenWriter> writer_;
  TokenInfo info_;
  std::string name_;           // of the current input
  std::int64_t position_ = 0;  // in the current input
  std::int64_t document_begin_ = 0;
  std::int64_t reported_ = 0;
  bool split_ = false;
  bool append_eos_ = false;
};

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

// With `judge`, throws if the first bytes are not text; they are passed to the sink as well.
void read_text(const std::string& path, bool judge, TextSink& sink) {
  Input input(path, sink.waiting());
  std::vector<char> piece(kPiece);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(piece));
  while (const std::size_t n = input.fill(bytes)) {
    if (judge) check_text(input.name(), bytes.first(std::min(n, kHeadBytes)));
    judge = false;
    sink.append({piece.data(), n}, input.name());
  }
  sink.end_document();
}

void read_jsonl(const std::string& path, TextSink& sink) {
  json::LineReader lines =
      path == "-" ? json::LineReader(STDIN_FILENO, shown(path)) : json::LineReader(path, sink.waiting());
  while (const std::optional<json::Value> record = lines.next()) {
    const std::string where = shown(path) + ": line " + std::to_string(lines.line());
    if (!record->is_object()) throw Error(where + ": not an object with \"text\"");
    sink.append(record->as_object().get_string("text", where), where);
    sink.end_document();
  }
}

template <class T>
void read_ids(Input& input, Sink& sink) {
  std::vector<T> piece(kPiece / sizeof(T));
  std::vector<std::uint32_t> wide;
  while (const std::size_t bytes = input.fill(std::as_writable_bytes(std::span(piece)))) {
    if (bytes % sizeof(T) != 0) {
      throw Error(input.name() + ": its size is not a multiple of " + std::to_string(sizeof(T)) + " bytes");
    }
    wide.assign(piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(bytes / sizeof(T)));
    sink.append(wide);
  }
  sink.end_document();
}

void read_llmc(const std::string& path, Sink& sink) {
  Input input(path, sink.waiting());
  const std::uint64_t size = input.file().size();
  std::array<std::int32_t, 256> header{};
  if (input.fill(std::as_writable_bytes(std::span(header))) != kLlmcHeader) {
    throw Error(path + ": not an llm.c file: shorter than its header of 1024 bytes");
  }
  const std::int32_t magic = header[0];
  if (magic != kLlmcMagic16 && magic != kLlmcMagic32) {
    throw Error(path + ": not an llm.c file: it begins with " + std::to_string(magic) +
                ", not with 20240520 or 20240801");
  }
  if (header[1] != 1 && header[1] != 7) {
    throw Error(path + ": llm.c version " + std::to_string(header[1]) + " is not known (1 and 7 are)");
  }
  const std::int64_t width = magic == kLlmcMagic16 ? 2 : 4;
  const std::int64_t there = checked_cast<std::int64_t>(size, path) - static_cast<std::int64_t>(kLlmcHeader);
  if (header[2] < 0 || header[2] * width != there) {
    throw Error(path + ": its header states " + std::to_string(header[2]) + " tokens of " + std::to_string(width) +
                " bytes, but " + std::to_string(there) + " bytes follow");
  }
  width == 2 ? read_ids<std::uint16_t>(input, sink) : read_ids<std::uint32_t>(input, sink);
}

bool has_llmc_magic(std::span<const std::byte> head) {
  if (head.size() < kLlmcHeader) return false;
  std::int32_t magic = 0;
  std::memcpy(&magic, head.data(), sizeof magic);
  return magic == kLlmcMagic16 || magic == kLlmcMagic32;
}

// The first bytes of a regular file; empty for other inputs, which can be read only once.
std::vector<std::byte> head_of(const std::string& path) {
  std::error_code ignored;
  if (path == "-" || !fs::is_regular_file(path, ignored)) return {};
  std::vector<std::byte> head(kHeadBytes);
  head.resize(Input(path, {}).fill(head));
  return head;
}

Source recognize(const std::string& path) {
  const std::vector<std::byte> head = head_of(path);
  if (has_llmc_magic(head)) return Source::llmc;
  const std::string extension = fs::path(path).extension().string();
  const bool jsonl = extension == ".jsonl" || extension == ".ndjson";
  if (jsonl) refuse_known_formats(path, head);
  if (jsonl) return Source::jsonl;
  if (extension == ".u16") return Source::u16;
  if (extension == ".u32") return Source::u32;
  if (extension == ".bin") throw Error(path + ": not an llm.c file; state its format: --from u16, u32 or text");
  if (extension == ".json") throw Error(path + ": state its format: --from jsonl (an object a line) or text");
  check_text(path, head);
  return Source::text;
}

void read_input(const std::string& path, Source source, bool judge, TextSink& text, Sink& sink) {
  sink.begin(shown(path), holds_ids(source));
  if (source == Source::text) read_text(path, judge, text);
  if (source == Source::jsonl) read_jsonl(path, text);
  text.finish();
  if (source == Source::llmc) read_llmc(path, sink);
  if (source == Source::u16 || source == Source::u32) {
    Input input(path, sink.waiting());
    source == Source::u16 ? read_ids<std::uint16_t>(input, sink) : read_ids<std::uint32_t>(input, sink);
  }
}

std::vector<Source> recognize_all(const TokenizeOptions& options) {
  std::vector<Source> sources;
  for (const std::string& path : options.inputs) {
    sources.push_back(options.from == Source::automatic ? recognize(path) : options.from);
    if (path == "-" && holds_ids(sources.back())) throw Error("standard input: only text and JSON Lines can be piped");
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) throw Error(path + ": is a folder");
    if (fs::equivalent(path, options.output, ignored)) throw Error(options.output + ": is also an input");
  }
  if (std::count(options.inputs.begin(), options.inputs.end(), "-") > 1) {
    throw Error("standard input: can be read only once");
  }
  return sources;
}

// The tokenizer recorded for all inputs: for text "bytes" or the given tokenizer; for ids the one stated by the user.
std::optional<std::string> tokenizer_of(const TokenizeOptions& options, const std::vector<Source>& sources) {
  const auto text = std::ranges::find_if(sources, [](Source s) { return !holds_ids(s); });
  if (text != sources.end() && options.encode_with.empty() && options.tokenizer.value_or("bytes") != "bytes") {
    const std::string& input = options.inputs.at(static_cast<std::size_t>(text - sources.begin()));
    throw Error("--tokenizer: names the tokenizer of ids, but " + shown(input) +
                " holds text, which becomes bytes; give ids (--from u16 or u32), or --tokenizer bytes");
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
  const auto ids = std::find_if(sources.begin(), sources.end(), holds_ids);
  if (ids != sources.end() && !options.vocab_size) {
    throw Error("--vocab-size: needed for the ids in " +
                options.inputs.at(static_cast<std::size_t>(ids - sources.begin())));
  }
  std::optional<token::Tokenizer> tokenizer;
  if (!options.encode_with.empty() && !std::ranges::all_of(sources, holds_ids)) tokenizer.emplace(options.encode_with);
  const std::int64_t vocab_size = options.vocab_size.value_or(tokenizer ? tokenizer->vocab_size() : 256);
  token_type(vocab_size);
  if (options.eos && (*options.eos < 0 || *options.eos >= vocab_size)) {
    throw Error("--eos: " + std::to_string(*options.eos) + " is not below the vocabulary size " +
                std::to_string(vocab_size) + " (--vocab-size)");
  }
  Sink sink(options, vocab_size, tokenizer_of(options, sources));
  TextSink text(tokenizer ? &*tokenizer : nullptr, options.special, sink);
  const bool judge = options.from == Source::automatic;
  for (std::size_t i = 0; i < sources.size(); ++i) read_input(options.inputs[i], sources[i], judge, text, sink);
  return sink.finish();
}

}  // namespace fp8::data
