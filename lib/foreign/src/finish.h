// What is resolved after a trainer's reader has answered the keys. Private to the crate.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp8/foreign/import.h"

namespace fp8::foreign {

// Whether one call of fp8-tokenize reads all sources: their records have the same form, or are conversations.
bool read_together(const std::vector<DataSource>& sources);

// The value of --columns for a source; empty if its columns have the names of its format.
std::string columns_of(const DataSource& source);
// The values for sources that are read together: one for all, or one for each file, with its format.
std::vector<std::string> columns_of(const std::vector<DataSource>& sources);

// Values of the flags of fp8-tokenize that a source and a plan imply, without FILE and --output.
std::vector<std::string> tokenize_flags(const Import& import, const std::vector<DataSource>& sources, bool train);

// Rows that the training data has: records, packed sequences, or sequences of plain text. Nothing, with the reason in
// `missing` or `unready`, if it cannot be counted.
std::optional<std::int64_t> count_rows(Import& import);

// Sets the folder of the model and the tokenizer, and checks that they can be used.
void find_model(Import& import);

// Size of the vocabulary by config.json; nothing if it is not known.
std::optional<std::int64_t> vocabulary_of(const Import& import);

// Processes of the run.
std::int64_t ranks_of(const Import& import);

// Sets model and tokenizer, batch sizes, steps and warm-up.
void finish(Import& import);

// An absolute path: run.sh changes to its folder.
std::string absolute_path(const std::string& path);

}  // namespace fp8::foreign
