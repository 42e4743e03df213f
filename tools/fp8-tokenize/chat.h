// Conversations on the command line.
#pragma once

#include "fp8/cli/arguments.h"
#include "fp8/data/tokenize.h"

namespace fp8::tokenize {

// Whether the inputs are conversations, for which the model of the tokenizer, if one is given, may have a template:
// --template, another flag of conversations, or the first record of an input says so. Throws Error if they are, and no
// template is given or known.
bool reads_chat(const cli::Arguments& arguments, const data::DeclaredTokenizer* tokenizer);

// Reads conversations and writes token files, or JSON Lines to standard output. Returns the exit status. The tokenizer
// may be null.
int run_chat(const cli::Arguments& arguments, const data::DeclaredTokenizer* tokenizer);

}  // namespace fp8::tokenize
