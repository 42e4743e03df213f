// Conversations on the command line: --template.
#pragma once

#include <optional>
#include <string>

#include "fp8/cli/arguments.h"

namespace fp8::tokenize {

// A tokenizer, and what a token file says of it.
struct Declared {
  std::string file;             // path of the tokenizer.json; empty for bytes
  std::string id;               // "bytes" or a digest
  std::int64_t vocab_size = 0;  // of the tokenizer
};

// The tokenizer `name`, the value of --tokenizer.
Declared declared_tokenizer(const std::string& name);

// Reads conversations and writes token files, or JSON Lines to standard output. Returns the exit status.
int run_chat(const cli::Arguments& arguments);

}  // namespace fp8::tokenize
