// The flags, those for conversations in a group of their own.
#include "flags.h"

#include "fp8/data/tokens.h"

namespace fp8::tokenize {
namespace {

using cli::FlagKind;

std::vector<cli::Flag> chat_flags() {
  std::vector<cli::Flag> flags = {
      {.name = "template",
       .kind = FlagKind::text,
       .metavar = "NAME|FILE",
       .help = "read conversations, rendered with this template: llama3, qwen, mistral, llama2, chatml, or a file "
               "[that of the model of --tokenizer]"},
      {.name = "any-template", .help = "accept another template than that of the model of --tokenizer"},
      {.name = "mask",
       .kind = FlagKind::choice,
       .metavar = "WHICH",
       .default_text = "assistant",
       .help = "tokens that count as targets: all answers, the last answer of each conversation, or all tokens",
       .choices = {"assistant", "last", "all"}},
      {.name = "cutoff",
       .kind = FlagKind::integer,
       .metavar = "N",
       .help = "most tokens of a conversation [no limit; --pack N: N - 1]",
       .min = 1,
       .max = static_cast<double>(data::kMaxVocabSize)},
      {.name = "too-long",
       .kind = FlagKind::choice,
       .metavar = "ACTION",
       .default_text = "cut",
       .help = "what happens to a conversation of more tokens than --cutoff",
       .choices = {"cut", "drop", "error"}},
      {.name = "pack",
       .kind = FlagKind::integer,
       .metavar = "N",
       .help = "pack conversations into sequences of N tokens",
       .min = 2,
       .max = 1 << 24},
      {.name = "eval-share",
       .kind = FlagKind::real,
       .metavar = "X",
       .help = "share of the records for a second file, named as --output with -eval before its extension [0]",
       .min = 0,
       .max = 0.9},
      {.name = "skip-bad",
       .kind = FlagKind::real,
       .metavar = "SHARE",
       .default_text = "0",
       .help = "largest share of records that may be bad and are left out; 0: the first one is an error",
       .min = 0,
       .max = 1},
      {.name = "show",
       .kind = FlagKind::integer,
       .metavar = "K",
       .help = "print the first K conversations: text, ids, and which tokens count [0]",
       .min = 1,
       .max = 1'000'000},
  };
  for (cli::Flag& flag : flags) flag.group = "Conversations";
  return flags;
}

}  // namespace

cli::Command command() {
  cli::Command c;
  c.name = "fp8-tokenize";
  c.about = "make a token file from text, conversations or token ids";
  c.example = "fp8-tokenize book.txt -o data.h5";
  c.positionals = {{.name = "files",
                    .metavar = "FILE",
                    .help = "inputs, read in order; - (or none with --encode and --decode): standard input",
                    .required = false,
                    .repeated = true}};
  c.writes = true;
  c.flags = {
      cli::output_flag("token file to write"),
      {.name = "from",
       .kind = FlagKind::choice,
       .metavar = "KIND",
       .default_text = "auto",
       .help = "format of the inputs; auto: by content and extension",
       .choices = {"auto", "text", "jsonl", "json", "alpaca", "sharegpt", "messages", "u16", "u32", "llmc",
                   "megatron"}},
      {.name = "columns",
       .kind = FlagKind::list,
       .metavar = "NAME=COLUMN,...",
       .help = "keys of the records that differ from the format's, such as prompt=question,response=reply, of all "
               "inputs, or once for each; NAME=: none"},
      {.name = "max-samples",
       .kind = FlagKind::integer,
       .metavar = "N",
       .help = "most records of JSON that are read of each input, from the first on [all]",
       .min = 1,
       .max = 1e15},
      {.name = "tokenizer",
       .kind = FlagKind::path,
       .metavar = "bytes|FILE",
       .help = "tokenizer of text and of ids: bytes, a tokenizer.json or its folder, or a checkpoint [text: bytes]"},
      {.name = "encode", .help = "read JSON Lines with text, write JSON Lines with ids to standard output"},
      {.name = "decode", .help = "read JSON Lines with ids, write JSON Lines with text to standard output"},
      {.name = "special", .default_text = "on", .help = "add the tokens that the tokenizer puts around a text"},
      {.name = "skip-special", .help = "leave special tokens out of decoded text"},
      {.name = "vocab-size",
       .kind = FlagKind::integer,
       .metavar = "N",
       .help = "size of the vocabulary [text: 256; ids: that of --tokenizer, else needed]",
       .min = 1,
       .max = static_cast<double>(data::kMaxVocabSize)},
      {.name = "eos",
       .kind = FlagKind::integer,
       .metavar = "N",
       .help = "id that ends a document: appended to each document of text, marks document ends in ids",
       .min = 0,
       .max = static_cast<double>(data::kMaxVocabSize - 1)},
      cli::json_flag(),
      cli::dry_run_flag(),
      cli::force_flag(),
  };
  const std::vector<cli::Flag> chat = chat_flags();
  c.flags.insert(c.flags.end(), chat.begin(), chat.end());
  return c;
}

}  // namespace fp8::tokenize
