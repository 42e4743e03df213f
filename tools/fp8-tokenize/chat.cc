// Conversations on the command line: checks, options, and where rows, examples and counts are written.
#include "chat.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/data/chat_text.h"
#include "fp8/data/tokenize.h"

namespace fp8::tokenize {
namespace {

constexpr const char* kName = "fp8-tokenize";
constexpr std::size_t kPiece = std::size_t{1} << 16U;  // bytes written at a time

// The flag of conversations that was given first in their table; empty if none was.
std::string chat_flag(const cli::Arguments& a) {
  for (const char* flag : {"mask", "cutoff", "too-long", "pack", "eval-share", "skip-bad", "show", "any-template"})
    if (a.has(flag)) return flag;
  return "";
}

// The values of --columns.
std::vector<chat::Columns> columns_of(const cli::Arguments& a) {
  std::vector<chat::Columns> all;
  for (const std::string& one : a.list("columns")) all.emplace_back(one);
  return all;
}

// Whether an input holds conversations.
bool any_conversations(const cli::Arguments& a) {
  if (a.has("encode") || a.has("decode")) return false;
  const std::vector<chat::Columns> all = columns_of(a);
  if (std::ranges::any_of(all, [](const chat::Columns& c) { return c.format().has_value(); })) return true;
  const chat::Columns columns = all.empty() ? chat::Columns() : all.front();
  const std::optional<data::Source> from = data::parse_source(a.text("from"));
  return std::ranges::any_of(a.positionals("files"), [&](const std::string& path) {
    return from && data::holds_conversations(path, *from, columns, columns.get("text", "text"));
  });
}

void check(const cli::Arguments& a, const data::DeclaredTokenizer* tokenizer) {
  if (a.positionals("files").empty()) throw Error("FILE: needed");
  if (a.has("template") && a.text("template") == chat::kNoTemplate)
    throw Error("--template: conversations cannot be rendered with none; name a template, or leave it out for texts");
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
  if (tokenizer == nullptr || tokenizer->file.empty())
    throw Error("--tokenizer: needed for --template: a tokenizer.json, the folder that holds one, or a checkpoint");
  if (a.has("output") || a.flag("dry-run")) return;
  if (!a.flag("json") && !a.has("show")) throw Error("--output: needed, or --json to print ids, or --show");
  if (a.flag("json") && a.has("show")) throw Error("--show: needs --output, not only --json");
  if (a.has("eval-share")) throw Error("--eval-share: needs --output");
}

data::ChatOptions options_of(const cli::Arguments& a, const data::DeclaredTokenizer& tokenizer) {
  data::ChatOptions o;
  o.inputs = a.positionals("files");
  for (const chat::Format format : {chat::Format::alpaca, chat::Format::sharegpt, chat::Format::messages}) {
    if (a.text("from") == name_of(format)) o.format = format;
  }
  if (a.text("from") == "jsonl") o.layout = json::Layout::lines;
  if (a.text("from") == "json") o.layout = json::Layout::array;
  o.columns = columns_of(a);
  const auto given = a.has("template") ? std::optional(a.text("template")) : std::nullopt;
  chat::Choice choice = chat::choose_template(given, tokenizer.own_template, a.flag("any-template"));
  o.form = std::move(choice.form.value());
  o.special = tokenizer.special;
  o.mask = chat::parse_mask(a.text("mask")).value_or(chat::Mask::assistant);
  if (a.has("cutoff")) o.cutoff = a.integer("cutoff");
  if (a.text("too-long") == "drop") o.too_long = data::TooLong::drop;
  if (a.text("too-long") == "error") o.too_long = data::TooLong::error;
  if (a.has("pack")) o.pack = a.integer("pack");
  o.skip_bad = a.real("skip-bad");
  if (a.has("max-samples")) o.max_records = a.integer("max-samples");
  if (a.has("eval-share")) o.eval_share = a.real("eval-share");
  o.waiting = cli::waiting_note(kName, a.flag("quiet"));
  if (!a.flag("quiet")) {
    o.note = [](const std::string& text) { cli::print_note(kName, text); };
    o.guessed = [](const std::string& text) { cli::print_note(kName, text + " (--from and --columns change this)"); };
    if (!choice.note.empty()) o.note(choice.note);
  }
  return o;
}

// Prints {"ids",...} for each row, or only the examples of --show.
data::ChatSummaries print_rows(const data::ChatOptions& options, bool json) {
  cli::Output out;
  std::string lines;
  data::ChatSummaries summaries = data::read_conversations(options, [&](const chat::Row& row, bool) {
    if (!json) return;
    data::append_row(lines, row, options.pack.has_value());
    if (lines.size() < kPiece) return;
    out.text(lines);
    lines.clear();
  });
  if (!lines.empty()) out.text(lines);
  return summaries;
}

void write_files(const cli::Arguments& a, const data::ChatOptions& options, const data::DeclaredTokenizer& declared) {
  data::ChatFiles files{.output = a.text("output"),
                        .vocab_size = a.has("vocab-size") ? a.integer("vocab-size") : declared.vocab_size,
                        .tokenizer = declared.id,
                        .also_read = {a.text("tokenizer"), options.form.path},
                        .force = a.flag("force"),
                        .dry_run = a.flag("dry-run")};
  if (options.eval_share > 0) files.eval_output = data::eval_path(files.output);
  const auto [train, eval] = data::tokenize_conversations(options, files);
  const bool packed = options.pack.has_value();
  if (train.targets == 0)
    cli::print_note(kName, files.output + ": no token counts as a target, so nothing can be trained on it");
  cli::Output out;
  if (a.flag("json")) {
    json::Value value = data::tokens_record(files.output, train, files.vocab_size);
    if (!files.eval_output.empty()) {
      value.as_object().set("eval", data::tokens_record(files.eval_output, eval, files.vocab_size));
    }
    if (files.dry_run) value.as_object().set("dry_run", true);
    return out.json(value);
  }
  const std::string verb = files.dry_run ? ": would hold " : ": ";
  out.line(terminal_safe(files.output) + verb + data::counts_text(train, packed));
  if (!files.eval_output.empty()) out.line(terminal_safe(files.eval_output) + verb + data::counts_text(eval, packed));
}

}  // namespace

bool reads_chat(const cli::Arguments& a, const data::DeclaredTokenizer* declared) {
  if (a.has("template")) return true;
  const std::string from = a.text("from"), flag = chat_flag(a);
  const bool named = from == "alpaca" || from == "sharegpt" || from == "messages";
  const chat::Carried* const own = declared != nullptr && declared->own_template ? &*declared->own_template : nullptr;
  if (own == nullptr && !flag.empty()) throw Error("--" + flag + ": needs --template");
  if (own == nullptr && named) throw Error("--template: needed for --from " + from + ", as --template chatml");
  if (own == nullptr || (flag.empty() && !named && !any_conversations(a))) return false;
  if (own->equivalent) return true;
  throw Error(own->where + ": Jinja that is not known (digest " + own->digest + "), so conversations need a template",
              {{"template", "with a name or a file, see fp8-template(5)"}});
}

int run_chat(const cli::Arguments& arguments, const data::DeclaredTokenizer* given) {
  check(arguments, given);
  cli::Progress progress(arguments.flag("quiet"));
  const data::DeclaredTokenizer& declared = *given;
  data::ChatOptions options = options_of(arguments, declared);
  const token::Tokenizer tokenizer = declared.open();
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
    if (left > 0) out.text((json ? data::example_line : data::example_text)(document, origin, tokenizer));
    return --left > 0 || !only_show;
  };
  if (files) {
    write_files(arguments, options, declared);
  } else {
    const data::ChatSummaries summaries = print_rows(options, json);
    if (options.note && !only_show) options.note(data::counts_text(summaries.train, options.pack.has_value()));
  }
  progress.done();
  return static_cast<int>(Exit::done);
}

}  // namespace fp8::tokenize
