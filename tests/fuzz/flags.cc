// A command line with one word per line, or a configuration file if the input begins with '{'. Accepted flags read back
// from the resolved configuration.
#include <vector>

#include "fp8/cli/arguments.h"
#include "fp8/json/json.h"
#include "fuzz.h"

namespace {

using namespace fp8;

cli::Command command() {
  using cli::FlagKind;
  cli::Command c{.name = "fp8-x", .about = "All kinds of flags"};
  c.flags = {{.name = "check", .letter = 'c', .default_text = "on"},
             {.name = "emulate", .default_text = "auto"},
             {.name = "name", .kind = FlagKind::text, .metavar = "TEXT"},
             {.name = "steps", .letter = 's', .kind = FlagKind::integer, .metavar = "N", .min = 1, .max = 1e15},
             {.name = "lr", .kind = FlagKind::real, .metavar = "X", .default_text = "0.001", .min = 0},
             {.name = "recipe", .kind = FlagKind::choice, .default_text = "b", .choices = {"a", "b"}},
             {.name = "out", .letter = 'o', .kind = FlagKind::path, .metavar = "FILE", .in_config = false},
             {.name = "bf16", .kind = FlagKind::list, .metavar = "PATTERN"}};
  c.positionals = {{.name = "input", .metavar = "INPUT"},
                   {.name = "more", .metavar = "MORE", .required = false, .repeated = true}};
  c.takes_command = true;
  return cli::with_common(c);
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

}  // namespace

FP8_FUZZ(flags) {
  static const cli::Command table = command();
  const std::string_view text = fuzz::text_of(data, size);
  return fuzz::judge([&] {
    const bool config = text.starts_with('{');
    cli::Arguments given(table);
    if (config) {
      cli::parse_config(table, json::parse(text, "config"), given);
    } else {
      given = cli::parse(table, words_of(text));
    }
    const json::Value all = cli::resolved(table, given);
    cli::Arguments again(table);
    cli::parse_config(table, all, again);
    fuzz::require(cli::resolved(table, again) == all, "flags read back from their config file");
  });
}
