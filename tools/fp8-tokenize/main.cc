// fp8-tokenize: converts text, JSON Lines and token ids to a token file. See fp8-tokenize(1).
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/data/tokenize.h"
#include "fp8/h5/types.h"
#include "fp8/hf/tokenizer.h"
#include "fp8/token/lines.h"
#include "fp8/token/tokenizer.h"

namespace {

using namespace fp8;

cli::Command command() {
  cli::Command c;
  c.name = "fp8-tokenize";
  c.about = "make a token file from text, JSON Lines or token ids";
  c.example = "fp8-tokenize book.txt -o data.h5";
  c.positionals = {{.name = "files",
                    .metavar = "FILE",
                    .help = "inputs, read in order; - (or none with --encode and --decode): standard input",
                    .required = false,
                    .repeated = true}};
  c.flags = {
      cli::output_flag("token file to write"),
      {.name = "from",
       .kind = cli::FlagKind::choice,
       .metavar = "KIND",
       .default_text = "auto",
       .help = "format of the inputs; auto: by content and extension",
       .choices = {"auto", "text", "jsonl", "u16", "u32", "llmc"}},
      {.name = "tokenizer",
       .kind = cli::FlagKind::path,
       .metavar = "bytes|FILE",
       .help = "tokenizer of text and of ids: bytes, or a tokenizer.json or its folder [text: bytes]"},
      {.name = "encode", .help = "read JSON Lines with text, write JSON Lines with ids to standard output"},
      {.name = "decode", .help = "read JSON Lines with ids, write JSON Lines with text to standard output"},
      {.name = "special", .default_text = "on", .help = "add the tokens that the tokenizer puts around a text"},
      {.name = "skip-special", .help = "leave special tokens out of decoded text"},
      {.name = "vocab-size",
       .kind = cli::FlagKind::integer,
       .metavar = "N",
       .help = "size of the vocabulary [text: 256; ids: that of --tokenizer, else needed]",
       .min = 1,
       .max = static_cast<double>(data::kMaxVocabSize)},
      {.name = "eos",
       .kind = cli::FlagKind::integer,
       .metavar = "N",
       .help = "id that ends a document: appended to each document of text, marks document ends in ids",
       .min = 0,
       .max = static_cast<double>(data::kMaxVocabSize - 1)},
      cli::json_flag(),
      cli::dry_run_flag(),
      cli::force_flag(),
  };
  return c;
}

// Sets the tokenizer and the vocabulary size from --tokenizer.
void declare_tokenizer(const std::string& name, data::TokenizeOptions& options) {
  options.tokenizer = "bytes";
  std::int64_t vocab_size = 256;
  if (name != "bytes") {
    const std::string file = token::tokenizer_file(name);
    const hf::TokenizerIdentity identity =
        hf::parse_tokenizer_identity(read_text_file(file, hf::kMaxTokenizerBytes), file);
    options.encode_with = file;
    options.tokenizer = identity.digest;
    vocab_size = identity.vocab_size;
  }
  if (!options.vocab_size) options.vocab_size = vocab_size;
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
  return terminal_safe(path) + (dry_run ? ": would hold " : ": ") + std::to_string(info.tokens) +
         (info.tokens == 1 ? " token" : " tokens") + " in " + std::to_string(info.documents) +
         (info.documents == 1 ? " document" : " documents") + ", vocabulary " + std::to_string(info.vocab_size);
}

// --encode and --decode: records from the inputs to standard output.
int run_lines(const cli::Arguments& arguments) {
  const bool encode = arguments.flag("encode");
  if (encode && arguments.flag("decode")) throw Error("--encode: not with --decode");
  if (!arguments.has("tokenizer") || arguments.text("tokenizer") == "bytes") {
    throw Error("--tokenizer: needed: a tokenizer.json or the folder that holds one");
  }
  if (arguments.has("output")) throw Error("--output: not with --encode and --decode, which write to standard output");
  std::vector<std::string> inputs = arguments.positionals("files");
  if (inputs.empty()) inputs = {"-"};
  const token::Tokenizer tokenizer(arguments.text("tokenizer"));
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
  if (arguments.flag("encode") || arguments.flag("decode")) return run_lines(arguments);
  cli::Progress progress(arguments.flag("quiet"));
  data::TokenizeOptions options;
  options.inputs = arguments.positionals("files");
  if (options.inputs.empty()) throw Error("FILE: needed");
  options.special = arguments.flag("special");
  options.output = arguments.text("output");
  options.from = data::parse_source(arguments.text("from")).value_or(data::Source::automatic);
  if (arguments.has("vocab-size")) options.vocab_size = arguments.integer("vocab-size");
  if (arguments.has("tokenizer")) declare_tokenizer(arguments.text("tokenizer"), options);
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

int main(int argc, char** argv) { return cli::run(argc, argv, command(), run_tokenize, {h5::library_version()}); }
