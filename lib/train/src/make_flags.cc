// One function for each kind of flag.
#include "make_flags.h"

namespace fp8::train {

using cli::Flag;
using cli::FlagKind;

Flag text(std::string name, std::string metavar, std::string help, std::string group) {
  return {.name = std::move(name),
          .kind = FlagKind::text,
          .metavar = std::move(metavar),
          .help = std::move(help),
          .group = std::move(group)};
}

Flag path(std::string name, std::string metavar, std::string help, std::string group) {
  Flag f = text(std::move(name), std::move(metavar), std::move(help), std::move(group));
  f.kind = FlagKind::path;
  return f;
}

Flag whole(std::string name, std::string fallback, double min, std::string help, std::string group) {
  return {.name = std::move(name),
          .kind = FlagKind::integer,
          .metavar = "N",
          .default_text = std::move(fallback),
          .help = std::move(help),
          .group = std::move(group),
          .min = min,
          .max = 1e15};
}

Flag real(std::string name, std::string fallback, double min, double max, std::string help, std::string group) {
  return {.name = std::move(name),
          .kind = FlagKind::real,
          .metavar = "X",
          .default_text = std::move(fallback),
          .help = std::move(help),
          .group = std::move(group),
          .min = min,
          .max = max};
}

Flag toggle(std::string name, std::string fallback, std::string help, std::string group) {
  return {
      .name = std::move(name), .default_text = std::move(fallback), .help = std::move(help), .group = std::move(group)};
}

Flag choice(std::string name, std::string fallback, std::vector<std::string> choices, std::string help,
            std::string group) {
  return {.name = std::move(name),
          .kind = FlagKind::choice,
          .metavar = "NAME",
          .default_text = std::move(fallback),
          .help = std::move(help),
          .choices = std::move(choices),
          .group = std::move(group)};
}

}  // namespace fp8::train
