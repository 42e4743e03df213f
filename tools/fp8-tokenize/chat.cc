// Conversations: options, JSON Lines for scripts, examples and the summary.
#include "chat.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <span>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/data/chat.h"
#include "fp8/hf/tokenizer.h"

namespace fp8::tokenize {
namespace {

constexpr const char* kName = "fp8-tokenize";
constexpr std::size_t kPiece = std::size_t{1} << 16U;  // bytes written at a time

template <class T>
void append_number(std::string& out, T number) {
  std::array<char, 24> digits{};
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

template <class T>
void append_list(std::string& out, const std::vector<T>& numbers) {
  out += '[';
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i != 0) out += ',';
    append_number(out, numbers[i]);
  }
  out += ']';
}

void append_spans(std::string& out, const std::vector<std::uint8_t>& mask) {
  out += '[';
  for (const auto& [begin, end] : chat::spans_of(mask)) {
    if (out.back() != '[') out += ',';
    append_list(out, std::vector<std::size_t>{begin, end});
  }
  out += ']';
}

// {"ids":[...],"trained":[[b,e],...]}, with packing also lengths and padding.
void append_row(std::string& out, const chat::Row& row, bool packed) {
  out += "{\"ids\":";
  append_list(out, row.ids);
  out += ",\"trained\":";
  append_spans(out, row.mask);
  if (packed) {
    out += ",\"lengths\":";
    append_list(out, row.lengths);
    out += ",\"padding\":";
    append_number(out, row.padding);
  }
  out += "}\n";
}

void check(const cli::Arguments& a) {
  if (a.positionals("files").empty()) throw Error("FILE: needed");
  for (const char* flag : {"encode", "decode", "special", "eos"}) {
    if (a.has(flag)) throw Error("--" + std::string(flag) + ": not with --template");
  }
  for (const std::string kind : {"text", "u16", "u32", "llmc", "megatron"}) {
    if (a.text("from") == kind) throw Error("--from: " + kind + " holds no conversations for --template");
  }
  for (const std::string& file : a.positionals("files")) {
    if (file.ends_with(".txt") && a.text("from") == "auto")
      throw Error(file + ": text, which holds no conversations for --template; give JSON or JSON Lines (or --from)");
  }
  if (!a.has("tokenizer") || a.text("tokenizer") == "bytes") {
    throw Error("--tokenizer: needed for --template: a tokenizer.json or the folder that holds one");
  }
  if (a.has("output") || a.flag("dry-run")) return;
  if (!a.flag("json") && !a.has("show")) throw Error("--output: needed, or --json to print ids, or --show");
  if (a.flag("json") && a.has("show")) throw Error("--show: needs --output, not only --json");
  if (a.has("eval-share")) throw Error("--eval-share: needs --output");
}

// The path of the file for evaluation: `output` with -eval before its extension.
std::string eval_path(const std::string& output) {
  const std::filesystem::path path(output);
  return (path.parent_path() / (path.stem().string() + "-eval" + path.extension().string())).string();
}

data::ChatOptions options_of(const cli::Arguments& a) {
  data::ChatOptions o;
  o.inputs = a.positionals("files");
  for (const chat::Format format : {chat::Format::alpaca, chat::Format::sharegpt, chat::Format::messages}) {
    if (a.text("from") == name_of(format)) o.format = format;
  }
  if (a.text("from") == "jsonl") o.layout = json::Layout::lines;
  if (a.text("from") == "json") o.layout = json::Layout::array;
  if (a.has("columns")) o.columns = chat::Columns(a.text("columns"));
  o.form = a.text("template");
  o.mask = chat::parse_mask(a.text("mask")).value_or(chat::Mask::assistant);
  if (a.has("cutoff")) o.cutoff = a.integer("cutoff");
  if (a.text("too-long") == "drop") o.too_long = data::TooLong::drop;
  if (a.text("too-long") == "error") o.too_long = data::TooLong::error;
  if (a.has("pack")) o.pack = a.integer("pack");
  o.skip_bad = a.real("skip-bad");
  if (a.has("eval-share")) o.eval_share = a.real("eval-share");
  o.waiting = cli::waiting_note(kName, a.flag("quiet"));
  if (!a.flag("quiet")) {
    o.note = [](const std::string& text) { cli::print_note(kName, text); };
    o.guessed = [](const std::string& text) { cli::print_note(kName, text + " (--from and --columns change this)"); };
  }
  return o;
}

// Prints a document: its tokens in spans that count (+) and spans that do not (-), as text and as ids.
void show(const chat::Document& document, const data::Origin& origin, const token::Tokenizer& tokenizer, bool json,
          cli::Output& out) {
  const auto spans = chat::spans_of(document.mask);
  if (json) {
    std::string line = "{\"type\":\"example\",\"line\":";
    append_number(line, origin.line);
    line += ",\"text\":" + json::dump(json::Value(tokenizer.decode(document.ids, false))) + ",\"ids\":";
    append_list(line, document.ids);
    line += ",\"trained\":";
    append_spans(line, document.mask);
    return out.line(line + "}");
  }
  std::size_t targets = 0, at = 0;
  for (const auto& [begin, end] : spans) targets += end - begin;
  out.line(terminal_safe(origin.name) + ": line " + std::to_string(origin.line) + ": " +
           std::to_string(document.ids.size()) + " tokens, " + std::to_string(targets) + " of them targets (+)");
  const auto part = [&](std::size_t end, char sign) {
    if (at == end) return;
    const std::vector<std::uint32_t> ids(document.ids.begin() + static_cast<std::ptrdiff_t>(at),
                                         document.ids.begin() + static_cast<std::ptrdiff_t>(end));
    std::string line = {sign, ' '};
    line += terminal_safe(json::dump(json::Value(tokenizer.decode(ids, false)))) + " ";
    append_list(line, ids);
    out.line(line);
    at = end;
  };
  for (const auto& [begin, end] : spans) {
    part(begin, '-');
    part(end, '+');
  }
  part(document.ids.size(), '-');
}

json::Value dropped_of(const data::ChatSummary& summary) {
  json::Object dropped;
  for (const auto& [reason, count] : summary.dropped) dropped.set(reason, count);
  return dropped;
}

json::Value record(const std::string& path, const data::ChatSummary& s, std::int64_t vocab_size) {
  return json::object({{"type", "tokens"},
                       {"path", path},
                       {"tokens", s.tokens},
                       {"documents", s.documents},
                       {"vocab_size", vocab_size},
                       {"targets", s.targets},
                       {"records", s.records},
                       {"cut", s.cut},
                       {"dropped", dropped_of(s)},
                       {"sequences", s.sequences},
                       {"padding", s.padding}});
}

// The counts as text: `12 documents, 3406 tokens, 812 targets, 1 cut, 2 left out (not valid JSON: 2)`.
std::string counts(const data::ChatSummary& s, bool packed) {
  constexpr std::size_t kReasons = 3;  // that are named, the most frequent ones
  std::int64_t dropped = 0, others = 0;
  std::string reasons;
  std::vector<std::pair<std::int64_t, std::string>> by_count;
  for (const auto& [reason, count] : s.dropped) by_count.emplace_back(-count, reason);
  std::sort(by_count.begin(), by_count.end());
  for (std::size_t i = 0; i < by_count.size(); ++i) {
    const std::int64_t count = -by_count[i].first;
    dropped += count;
    if (i >= kReasons) others += count;
    if (i < kReasons)
      reasons +=
          (reasons.empty() ? " (" : ", ") + terminal_safe(excerpt(by_count[i].second)) + ": " + std::to_string(count);
  }
  if (others > 0) reasons += ", other reasons: " + std::to_string(others);
  std::string text = std::to_string(s.documents) + (s.documents == 1 ? " document, " : " documents, ") +
                     std::to_string(s.tokens) + " tokens, " + std::to_string(s.targets) + " targets, " +
                     std::to_string(s.cut) + " cut, " + std::to_string(dropped) + " left out" +
                     (reasons.empty() ? "" : reasons + ")");
  if (packed) {
    text += "; packed into " + std::to_string(s.sequences) + " sequences with " + std::to_string(s.padding) +
            " tokens of padding";
  }
  return text;
}

// Prints {"ids",...} for each row, or only the examples of --show.
data::ChatSummaries print_rows(const data::ChatOptions& options, bool json) {
  cli::Output out;
  std::string lines;
  data::ChatSummaries summaries = data::read_conversations(options, [&](const chat::Row& row, bool) {
    if (!json) return;
    append_row(lines, row, options.pack.has_value());
    if (lines.size() < kPiece) return;
    out.text(lines);
    lines.clear();
  });
  if (!lines.empty()) out.text(lines);
  return summaries;
}

void write_files(const cli::Arguments& a, const data::ChatOptions& options, const Declared& declared) {
  data::ChatFiles files{.output = a.text("output"),
                        .vocab_size = a.has("vocab-size") ? a.integer("vocab-size") : declared.vocab_size,
                        .tokenizer = declared.id,
                        .force = a.flag("force"),
                        .dry_run = a.flag("dry-run")};
  if (options.eval_share > 0) files.eval_output = eval_path(files.output);
  const auto [train, eval] = data::tokenize_conversations(options, files);
  const bool packed = options.pack.has_value();
  if (train.targets == 0)
    cli::print_note(kName, files.output + ": no token counts as a target, so nothing can be trained on it");
  cli::Output out;
  if (a.flag("json")) {
    json::Value value = record(files.output, train, files.vocab_size);
    if (!files.eval_output.empty()) {
      value.as_object().set("eval", record(files.eval_output, eval, files.vocab_size));
    }
    if (files.dry_run) value.as_object().set("dry_run", true);
    return out.json(value);
  }
  const std::string verb = files.dry_run ? ": would hold " : ": ";
  out.line(terminal_safe(files.output) + verb + counts(train, packed));
  if (!files.eval_output.empty()) out.line(terminal_safe(files.eval_output) + verb + counts(eval, packed));
}

}  // namespace

Declared declared_tokenizer(const std::string& name) {
  if (name == "bytes") return {{}, name, 256};
  const std::string file = token::tokenizer_file(name);
  const hf::TokenizerIdentity identity =
      hf::parse_tokenizer_identity(read_text_file(file, hf::kMaxTokenizerBytes), file);
  return {file, identity.digest, identity.vocab_size};
}

int run_chat(const cli::Arguments& arguments) {
  check(arguments);
  cli::Progress progress(arguments.flag("quiet"));
  data::ChatOptions options = options_of(arguments);
  const Declared declared = declared_tokenizer(arguments.text("tokenizer"));
  const token::Tokenizer tokenizer(declared.file);
  options.tokenizer = &tokenizer;
  options.progress = [&](std::int64_t tokens) {
    progress.update(human_count(static_cast<std::uint64_t>(tokens)) + " tokens");
  };
  const bool files = arguments.has("output") || arguments.flag("dry-run");
  const bool json = arguments.flag("json");
  cli::Output out;
  std::int64_t left = arguments.has("show") ? arguments.integer("show") : 0;
  const bool only_show = left > 0 && !files;
  options.document = [&](const chat::Document& document, const data::Origin& origin) {
    if (left > 0) show(document, origin, tokenizer, json, out);
    return --left > 0 || !only_show;
  };
  if (files) {
    write_files(arguments, options, declared);
  } else {
    const data::ChatSummaries summaries = print_rows(options, json);
    if (options.note && !only_show) options.note(counts(summaries.train, options.pack.has_value()));
  }
  progress.done();
  return static_cast<int>(Exit::done);
}

}  // namespace fp8::tokenize
