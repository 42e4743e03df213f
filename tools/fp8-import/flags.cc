// The table of flags.
#include "flags.h"

#include <sstream>

namespace fp8::import_tool {

using cli::FlagKind;

cli::Command command() {
  cli::Command c;
  c.name = "fp8-import";
  c.about = "turn a configuration of another trainer into one of fp8-step, and say what differs";
  c.example = "fp8-import sft.yaml --dataset-dir data --model Qwen2.5-0.5B -o run";
  c.positionals = {{.name = "files",
                    .metavar = "FILE",
                    .help = "configuration: YAML, TOML or JSON; others after the first are files that it names",
                    .repeated = true}};
  std::vector<std::string> names;
  for (const foreign::Trainer& t : foreign::trainers()) names.emplace_back(t.name);
  c.flags = {
      {.name = "from",
       .kind = FlagKind::choice,
       .metavar = "NAME",
       .help = "trainer that the file is for [by its keys]",
       .choices = names},
      {.name = "dataset-dir",
       .kind = FlagKind::path,
       .metavar = "DIR",
       .help = "folder of the data, with dataset_info.json for LLaMA-Factory [that of the file]"},
      {.name = "model",
       .kind = FlagKind::path,
       .metavar = "FOLDER",
       .help = "Hugging Face folder of the model, in place of the name in the file"},
      {.name = "ranks",
       .kind = FlagKind::integer,
       .metavar = "N",
       .help = "number of GPUs that the configuration was run on, which multiplies the batch [that of the files, or 1]",
       .min = 1,
       .max = 1 << 20},
      {.name = "output",
       .letter = 'o',
       .kind = FlagKind::path,
       .metavar = "DIR",
       .help = "folder for run.json and run.sh"},
      {.name = "allow",
       .kind = FlagKind::list,
       .metavar = "KEY,...",
       .help = "keys without counterpart that are left out; all: every one",
       .suggestions = {"all"}},
      cli::json_flag(),
      cli::force_flag(),
  };
  return c;
}

foreign::Options options_of(const cli::Arguments& a) {
  foreign::Options o;
  o.files = a.positionals("files");
  if (a.has("from")) o.from = a.text("from");
  if (a.has("dataset-dir")) o.dataset_dir = a.text("dataset-dir");
  if (a.has("model")) o.model = a.text("model");
  if (a.has("ranks")) o.ranks = a.integer("ranks");
  for (const std::string& list : a.list("allow")) {
    std::istringstream parts(list);
    for (std::string part; std::getline(parts, part, ',');)
      if (!part.empty()) o.allow.push_back(part);
  }
  return o;
}

}  // namespace fp8::import_tool
