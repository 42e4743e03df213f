// run.sh.
#include <algorithm>
#include <array>

#include "finish.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/hf/tokenizer.h"

namespace fp8::foreign {
namespace {

// A word of a shell.
std::string quoted(const std::string& word) {
  if (is_plain_word(word)) return word;
  std::string all = "'";
  for (const char c : word) c == '\'' ? all += "'\\''" : all += c;
  return all + "'";
}

std::string line_of(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + quoted(word);
  return line;
}

// A command that is left out if its output is there, so that the script can be run again.
std::string unless_there(const std::string& output, const std::vector<std::string>& words) {
  return "test -e " + quoted(output) + " || " + line_of(words) + "\n";
}

std::string tokenize_line(const Import& import, const std::vector<DataSource>& sources, const std::string& output,
                          bool train) {
  std::vector<std::string> words = {"fp8-tokenize"};
  for (const DataSource& source : sources)
    for (const std::string& file : source.files) words.push_back(absolute_path(file));
  const std::vector<std::string> flags = tokenize_flags(import, sources, train);
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), {"-o", output});
  return unless_there(output, words);
}

void add_chat_flags(const DataPlan& plan, bool train, std::vector<std::string>& words) {
  const auto add = [&](const char* flag, const std::string& value) { words.insert(words.end(), {flag, value}); };
  if (plan.chat_template) {
    add("--template", *plan.chat_template);
    words.emplace_back("--any-template");
  }
  add("--mask", plan.mask);
  if (plan.packed)
    add("--pack", std::to_string(plan.length));
  else
    add("--cutoff", std::to_string(plan.length));
  add("--too-long", plan.too_long);
  if (plan.skips_bad) add("--skip-bad", "1");
  if (train && plan.eval_share > 0) add("--eval-share", format_double(plan.eval_share));
}

// Whether the records of all sources have the same form.
bool alike(const std::vector<DataSource>& sources) {
  return std::ranges::all_of(sources, [&](const DataSource& s) {
    return s.format == sources.front().format && s.columns == sources.front().columns;
  });
}

}  // namespace

bool read_together(const std::vector<DataSource>& sources) {
  constexpr std::array<std::string_view, 3> kConversations = {"alpaca", "sharegpt", "messages"};
  return alike(sources) || std::ranges::all_of(sources, [&](const DataSource& s) {
           return std::ranges::find(kConversations, s.format) != kConversations.end();
         });
}

std::string columns_of(const DataSource& source) {
  std::string all;
  for (const std::string& column : source.columns) all += (all.empty() ? "" : ",") + column;
  return all;
}

std::vector<std::string> columns_of(const std::vector<DataSource>& sources) {
  if (alike(sources)) return {columns_of(sources.front())};
  std::vector<std::string> of_files;
  for (const DataSource& s : sources)
    of_files.insert(of_files.end(), s.files.size(),
                    "format=" + s.format + (s.columns.empty() ? "" : ",") + columns_of(s));
  return of_files;
}

std::vector<std::string> tokenize_flags(const Import& import, const std::vector<DataSource>& sources, bool train) {
  const DataSource& first = sources.front();
  std::vector<std::string> words = {"--from", first.format};
  for (const std::string& columns : columns_of(sources))
    if (!columns.empty()) words.insert(words.end(), {"--columns", columns});
  if (!import.tokenizer.empty()) words.insert(words.end(), {"--tokenizer", import.tokenizer});
  if (first.most_records) words.insert(words.end(), {"--max-samples", std::to_string(*first.most_records)});
  if (import.eos) words.insert(words.end(), {"--no-special", "--eos", std::to_string(*import.eos)});
  for (const char* ids : {"u16", "u32", "llmc", "megatron"})
    if (const auto size = vocabulary_of(import); first.format == ids && size)
      words.insert(words.end(), {"--vocab-size", std::to_string(*size)});
  if (import.data.conversations) add_chat_flags(import.data, train, words);
  return words;
}

std::string script_text(const Import& import) {
  for (const std::vector<std::string>* reasons : {&import.missing, &import.unready})
    if (!reasons->empty()) throw Error("run.sh: " + reasons->front());
  std::string text = "#!/bin/sh\n# Trains as " + terminal_safe(import.documents.front().path) +
                     " describes, with fp8-step and the configuration run.json.\nset -e\ncd \"$(dirname \"$0\")\"\n";
  if (import.config)
    text += unless_there("model.h5", {"fp8-init", "config.json", "-o", "model.h5", "--seed",
                                      std::to_string(import.flags.get_int_or("seed", 0, "run.json"))});
  else
    text += unless_there("model.h5", {"fp8-convert", import.model, "-o", "model.h5"});
  text += tokenize_line(import, import.data.train, "data.h5", true);
  if (!import.data.eval.empty()) text += tokenize_line(import, import.data.eval, "eval.h5", false);
  text += line_of({"mpirun", "-n", std::to_string(ranks_of(import)), "fp8-step", "model.h5", "--config", "run.json"}) +
          "\n";
  const bool adapters = import.flags.contains("lora-rank") || import.flags.contains("lora");
  if (adapters)
    text += unless_there("adapter", {"fp8-export", "run", "--format", "peft", "-o", "adapter"});
  else
    text += unless_there("model", {"fp8-export", "run", "-o", "model"});
  return text;
}

}  // namespace fp8::foreign
