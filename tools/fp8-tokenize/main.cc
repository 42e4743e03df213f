// fp8-tokenize: converts text, conversations and token ids to a token file. See fp8-tokenize(1).
#include "chat.h"
#include "flags.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/chat/conversation.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/data/tokenize.h"
#include "fp8/h5/types.h"
#include "fp8/token/lines.h"
#include "fp8/token/tokenizer.h"

namespace {

using namespace fp8;

// Sets the tokenizer and the vocabulary size.
void set_tokenizer(const cli::Arguments& arguments, const data::DeclaredTokenizer& declared,
                   data::TokenizeOptions& options) {
  options.tokenizer = declared.id;
  if (!declared.file.empty()) {
    options.encode_with = &declared;
    options.also_read.push_back(arguments.text("tokenizer"));
  }
  if (!options.vocab_size) options.vocab_size = declared.vocab_size;
}

json::Value record(const std::string& path, const data::TokenInfo& info, bool dry_run) {
  json::Value value = json::object({{"type", "tokens"},
                                    {"path", path},
                                    {"tokens", info.tokens},
                                    {"documents", info.documents},
                                    {"vocab_size", info.vocab_size}});
  if (dry_run) value.as_object().set("dry_run", true);
  return value;
}

// The report as one line of text.
std::string sentence(const std::string& path, const data::TokenInfo& info, bool dry_run) {
  return terminal_safe(path) + (dry_run ? ": would hold " : ": ") + counted(info.tokens, "token") + " in " +
         counted(info.documents, "document") + ", vocabulary " + std::to_string(info.vocab_size);
}

// --encode and --decode: records from the inputs to standard output.
int run_lines(const cli::Arguments& arguments, const data::DeclaredTokenizer* declared) {
  const bool encode = arguments.flag("encode");
  if (encode && arguments.flag("decode")) throw Error("--encode: not with --decode");
  if (declared == nullptr || declared->file.empty())
    throw Error("--tokenizer: needed: a tokenizer.json, the folder that holds one, or a checkpoint");
  if (arguments.has("output")) throw Error("--output: not with --encode and --decode, which write to standard output");
  if (arguments.has("max-samples")) throw Error("--max-samples: not with --encode and --decode");
  std::vector<std::string> inputs = arguments.positionals("files");
  if (inputs.empty()) inputs = {"-"};
  const token::Tokenizer tokenizer = declared->open();
  cli::Output out;
  const auto write = [&](std::string_view text) { out.text(text); };
  if (encode) {
    token::encode_lines(tokenizer, inputs, arguments.flag("special"), write);
  } else {
    token::decode_lines(tokenizer, inputs, arguments.flag("skip-special"), write);
  }
  return static_cast<int>(Exit::done);
}

int run_tokenize(const cli::Arguments& arguments) {
  const bool lines = arguments.flag("encode") || arguments.flag("decode");
  std::optional<data::DeclaredTokenizer> declared;
  if (arguments.has("tokenizer"))
    declared = (lines ? data::read_tokenizer : data::declared_tokenizer)(arguments.text("tokenizer"));
  if (declared && !declared->note.empty() && !arguments.flag("quiet")) cli::print_note("fp8-tokenize", declared->note);
  const data::DeclaredTokenizer* const tokenizer = declared ? &*declared : nullptr;
  if (tokenize::reads_chat(arguments, tokenizer)) return tokenize::run_chat(arguments, tokenizer);
  if (lines) return run_lines(arguments, tokenizer);
  cli::Progress progress(arguments.flag("quiet"));
  data::TokenizeOptions options;
  options.inputs = arguments.positionals("files");
  if (options.inputs.empty()) throw Error("FILE: needed");
  options.special = arguments.flag("special");
  options.output = arguments.text("output");
  options.from = data::parse_source(arguments.text("from")).value_or(data::Source::automatic);
  const std::vector<std::string> columns = arguments.list("columns");
  if (columns.size() > 1) throw Error("--columns: given more than once, which is for conversations alone");
  if (!columns.empty()) options.text_column = chat::Columns(columns[0]).get("text", "text");
  if (arguments.has("vocab-size")) options.vocab_size = arguments.integer("vocab-size");
  if (declared) set_tokenizer(arguments, *declared, options);
  if (arguments.has("max-samples")) options.max_records = arguments.integer("max-samples");
  if (arguments.has("eos")) options.eos = arguments.integer("eos");
  options.force = arguments.flag("force");
  options.dry_run = arguments.flag("dry-run");
  options.progress = [&](std::int64_t tokens) {
    progress.update(human_count(static_cast<std::uint64_t>(tokens)) + " tokens");
  };
  options.waiting = cli::waiting_note("fp8-tokenize", arguments.flag("quiet"));
  const data::TokenInfo info = data::tokenize(options);
  progress.done();
  cli::Output out;
  if (arguments.flag("json")) {
    out.json(record(options.output, info, options.dry_run));
  } else {
    out.line(sentence(options.output, info, options.dry_run));
  }
  return static_cast<int>(Exit::done);
}

}  // namespace

int main(int argc, char** argv) {
  return cli::run(argc, argv, tokenize::command(), run_tokenize, {h5::library_version()});
}
