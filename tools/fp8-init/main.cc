// fp8-init: creates a checkpoint from a model preset or a config.json. See fp8-init(1).
#include <unistd.h>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/h5/types.h"
#include "fp8/hf/folder.h"
#include "fp8/hf/tokenizer.h"
#include "fp8/model/initialize.h"
#include "fp8/model/parameters.h"
#include "fp8/model/presets.h"
#include "fp8/token/tokenizer.h"

namespace {

using namespace fp8;

constexpr const char* kBytes = "bytes";
constexpr std::int64_t kByteValues = 256;

// Names of the presets for completions; none if they are not installed, which only a use of one reports.
std::vector<std::string> presets() {
  try {
    return model::preset_names();
  } catch (const Error&) {
    return {};
  }
}

cli::Command command() {
  cli::Command c;
  c.name = "fp8-init";
  c.about = "make a new checkpoint from a model preset or a config.json";
  c.example = "fp8-init tiny --seed 1 -o model.h5";
  c.positionals = {{.name = "model",
                    .metavar = "PRESET|CONFIG.json",
                    .help = "name of a preset or path of a configuration file",
                    .suggestions = presets()}};
  c.writes = true;
  c.flags = {
      cli::output_flag("checkpoint to write"),
      {.name = "seed",
       .kind = cli::FlagKind::integer,
       .metavar = "N",
       .default_text = "0",
       .help = "seed of the random weights",
       .min = 0},
      {.name = "dtype",
       .kind = cli::FlagKind::choice,
       .metavar = "TYPE",
       .default_text = "f32",
       .help = "format of the weights",
       .choices = {"f32", "bf16"}},
      {.name = "set",
       .kind = cli::FlagKind::list,
       .metavar = "KEY=VALUE",
       .help = "set a key of the configuration; OUTER.INNER for a key of a nested object"},
      {.name = "tokenizer",
       .kind = cli::FlagKind::path,
       .metavar = "bytes|FILE",
       .help = "tokenizer to store in the checkpoint: bytes, or a tokenizer.json or its folder",
       .suggestions = {kBytes}},
      cli::json_flag(),
      cli::dry_run_flag(),
      cli::force_flag(),
  };
  return c;
}

// The report as one line of text.
std::string sentence(const std::string& path, const model::InitSummary& s, bool dry_run) {
  return terminal_safe(path) + (dry_run ? ": would hold " : ": ") +
         human_count(static_cast<std::uint64_t>(s.parameters)) + " parameters in " + std::to_string(s.tensors) +
         " tensors, " + human_bytes(s.bytes);
}

// Prints the keys that the configuration lacks, since a family's defaults can have billions of parameters, and the
// settings that no tool reads.
void print_notes(const std::string& name, const hf::ModelConfig& config) {
  if (const std::string note = hf::defaults_note(config); !note.empty()) {
    const auto parameters = static_cast<std::uint64_t>(model::parameter_count(model::parameter_table(config)));
    cli::print_note("fp8-init", name + ": " + note + "; the model has " + human_count(parameters) + " parameters");
  }
  for (const std::string& note : hf::training_notes(config)) cli::print_note("fp8-init", name + ": " + note);
}

void set_key(json::Value& config, const std::string& assignment) {
  try {
    model::set_config_key(config, assignment);
  } catch (const Error& e) {
    throw Error("--set " + std::string(e.what()), e.code());
  }
}

// Sets the tokenizer to store. Throws Error if it cannot be read or has ids outside of the model's vocabulary.
void set_tokenizer(const std::string& name, const hf::ModelConfig& config, bool quiet, model::InitOptions& options) {
  std::int64_t ids = kByteValues;
  const std::string file = name == kBytes ? name : token::tokenizer_file(name);
  if (name == kBytes) {
    options.tokenizer_id = kBytes;
  } else {
    options.tokenizer = read_text_file(file, hf::kMaxTokenizerBytes);
    options.huggingface = hf::tokenizer_texts(parent_directory(file));
    options.inputs.push_back(name);
    for (const auto& [text, ignored] : options.huggingface)
      options.inputs.push_back(parent_directory(file) + "/" + text);
    const hf::TokenizerIdentity identity = hf::parse_tokenizer_identity(*options.tokenizer, file);
    if (!identity.note.empty() && !quiet) cli::print_note("fp8-init", name + ": " + identity.note);
    (void)token::Tokenizer::parse(*options.tokenizer, file);  // throws for one that the tools cannot use
    ids = identity.vocab_size;
  }
  if (ids > config.vocab_size)
    throw Error("--tokenizer: " + file + ": has " + std::to_string(ids) + " tokens, the model's vocabulary " +
                    std::to_string(config.vocab_size),
                {{"set", "vocab_size=" + std::to_string(ids)}});
}

int init(const cli::Arguments& arguments, const model::Origin& origin) {
  const std::string name = arguments.positional("model"), output = arguments.text("output");
  json::Value value = model::read_model_config(name);
  for (const std::string& assignment : arguments.list("set")) set_key(value, assignment);
  const hf::ModelConfig config = hf::parse_config(value, name);
  if (!arguments.flag("quiet")) print_notes(name, config);
  cli::Progress progress(arguments.flag("quiet"));
  model::InitOptions options;
  options.seed = static_cast<std::uint64_t>(arguments.integer("seed"));
  options.dtype = arguments.text("dtype") == "bf16" ? dtype::DType::bf16 : dtype::DType::f32;
  options.force = arguments.flag("force");
  options.dry_run = arguments.flag("dry-run");
  options.origin = origin;
  options.inputs.push_back(model::model_config_file(name));
  if (arguments.has("tokenizer")) set_tokenizer(arguments.text("tokenizer"), config, arguments.flag("quiet"), options);
  options.progress = [&](const std::string& tensor, std::size_t i, std::size_t n) {
    progress.update(std::to_string(i) + "/" + std::to_string(n) + " " + tensor);
  };
  const model::InitSummary summary = model::initialize(config, output, options);
  progress.done();
  cli::Output out;
  if (options.dry_run) {
    if (!arguments.flag("json")) out.line(sentence(output, summary, true));
  } else if (arguments.flag("json") || ::isatty(STDOUT_FILENO) == 0) {
    out.json(model::checkpoint_record(output));
  } else {
    out.line(sentence(output, summary, false));
  }
  return static_cast<int>(Exit::done);
}

}  // namespace

int main(int argc, char** argv) {
  return cli::run(argc, argv, command(),
                  [&](const cli::Arguments& arguments) {
                    return init(arguments, model::origin_of("fp8-init", cli::version(), argc, argv));
                  },
                  {h5::library_version()});
}
