/// Shared helpers of this crate's tests: the flag table of a small tool.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "fp8/cli/arguments.h"
#include "fp8/cli/command.h"
#include "fp8_test.h"

namespace fp8::cli {

using test::error_of;

/// A command with a flag of each kind.
inline Command sample() {
  Command c{.name = "fp8-sample", .about = "tries flags", .example = "fp8-sample in.h5 -o out.h5"};
  c.flags = {
      output_flag("where the result goes"),
      force_flag(),
      {.name = "steps", .kind = FlagKind::integer, .metavar = "N", .default_text = "100", .help = "how many", .min = 1},
      {.name = "lr",
       .kind = FlagKind::real,
       .metavar = "RATE",
       .default_text = "3e-4",
       .help = "how fast",
       .group = "Optimizer",
       .min = 0,
       .max = 1},
      {.name = "margin", .kind = FlagKind::integer, .metavar = "N", .help = "any integer"},
      {.name = "recipe",
       .kind = FlagKind::choice,
       .metavar = "NAME",
       .default_text = "tensorwise",
       .help = "how to scale",
       .choices = {"tensorwise", "rowwise"}},
      {.name = "filter", .kind = FlagKind::list, .metavar = "GLOB", .help = "what to leave out"},
      {.name = "betas", .kind = FlagKind::text, .metavar = "A,B", .default_text = "0.9,0.95", .help = "two numbers"},
      {.name = "emulate", .help = "without the hardware"},
      {.name = "all-gather", .default_text = "on", .help = "gather codes"},
  };
  c.positionals = {{.name = "model", .metavar = "MODEL", .help = "a checkpoint"},
                   {.name = "more", .metavar = "FILE", .help = "others", .required = false, .repeated = true}};
  return with_common(c);
}

/// Arguments of sample() from words.
inline Arguments read(std::vector<std::string> words, const Command& command = sample()) {
  return parse(command, words);
}

/// The error message of parsing words, MODEL included.
inline std::string refusal(std::vector<std::string> words) {
  words.insert(words.begin(), "m");
  return error_of([&] { read(words); });
}

}  // namespace fp8::cli
