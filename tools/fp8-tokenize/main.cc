// fp8-tokenize: text, JSON Lines and token ids into a token file. See fp8-tokenize(1).
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/data/tokenize.h"
#include "fp8/h5/types.h"

namespace {

using namespace fp8;

cli::Command command() {
  cli::Command c;
  c.name = "fp8-tokenize";
  c.about = "make a token file of text, JSON Lines or token ids";
  c.example = "fp8-tokenize book.txt -o data.h5";
  c.positionals = {
      {.name = "files", .metavar = "FILE", .help = "inputs, in their order; - is standard input", .repeated = true}};
  c.flags = {
      cli::output_flag("the token file to write"),
      {.name = "from",
       .kind = cli::Kind::choice,
       .metavar = "KIND",
       .default_text = "auto",
       .help = "what the inputs hold",
       .choices = {"auto", "text", "jsonl", "u16", "u32", "llmc"}},
      {.name = "tokenizer",
       .kind = cli::Kind::choice,
       .metavar = "NAME",
       .default_text = "bytes",
       .help = "how text becomes tokens",
       .choices = {"bytes"}},
      {.name = "vocab-size",
       .kind = cli::Kind::integer,
       .metavar = "N",
       .help = "size of the vocabulary; needed for ids, 256 for text",
       .min = 1,
       .max = static_cast<double>(data::kMaxVocabSize)},
      {.name = "eos",
       .kind = cli::Kind::integer,
       .metavar = "N",
       .help = "id that ends a document: appended to each of text, looked for in ids",
       .min = 0,
       .max = static_cast<double>(data::kMaxVocabSize - 1)},
      cli::json_flag(),
      cli::dry_run_flag(),
      cli::force_flag(),
  };
  return c;
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

// The line for people.
std::string sentence(const std::string& path, const data::TokenInfo& info, bool dry_run) {
  return terminal_safe(path) + (dry_run ? ": would hold " : ": ") + std::to_string(info.tokens) +
         (info.tokens == 1 ? " token" : " tokens") + " in " + std::to_string(info.documents) +
         (info.documents == 1 ? " document" : " documents") + ", vocabulary " + std::to_string(info.vocab_size);
}

int run_tokenize(const cli::Arguments& arguments) {
  cli::Progress progress(arguments.flag("quiet"));
  data::TokenizeOptions options;
  options.inputs = arguments.positionals("files");
  options.output = arguments.text("output");
  options.from = data::parse_source(arguments.text("from")).value_or(data::Source::automatic);
  if (arguments.has("vocab-size")) options.vocab_size = arguments.integer("vocab-size");
  if (arguments.has("eos")) options.eos = arguments.integer("eos");
  options.force = arguments.flag("force");
  options.dry_run = arguments.flag("dry-run");
  options.progress = [&](std::int64_t tokens) {
    progress.update(human_count(static_cast<std::uint64_t>(tokens)) + " tokens");
  };
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
