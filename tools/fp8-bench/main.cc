// fp8-bench: FP8 against bf16 on this machine. See fp8-bench(1).
#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/folders.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/model/presets.h"
#include "fp8/plan/machine.h"
#include "fp8/probe/bench.h"
#include "fp8/probe/casts.h"
#include "fp8/probe/gemms.h"
#include "fp8/probe/rates.h"
#include "fp8/probe/report.h"
#include "fp8/train/mpi_session.h"
#include "report.h"

namespace {

using namespace fp8;

constexpr std::int64_t kTokensOnGpu = 8192, kTokensOnCpu = 512;

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const quant::Recipe& r : quant::recipes()) names.emplace_back(r.name);
  return names;
}

// What the tool does instead of comparing.
std::vector<cli::Flag> other_modes() {
  return {
      {.name = "machine",
       .help = "instead of comparing, measure the rates of this machine for fp8-plan(1), in about a minute, and write "
               "them to --output [fp8/machine.json in the folder of the user's configuration]"},
      {.name = "gemms",
       .kind = cli::FlagKind::path,
       .metavar = "IN.safetensors",
       .help = "instead of measuring, compute the GEMMs of the FP8 codes in a file and write the sums to --output"},
      {.name = "casts",
       .kind = cli::FlagKind::path,
       .metavar = "IN.safetensors",
       .help = "instead of measuring, cast the matrices in a file to NVFP4 and write codes and scales to --output"},
      {.name = "accumulate",
       .kind = cli::FlagKind::choice,
       .metavar = "NAME",
       .default_text = "hopper",
       .help = "with --gemms: tensor cores whose accumulation is emulated, of an H100 (hopper) or an RTX 4060 (ada)",
       .choices = {"hopper", "ada"}}};
}

cli::Command command() {
  cli::Command c;
  c.name = "fp8-bench";
  c.about = "measure FP8 against bf16 on this machine";
  c.example = "fp8-bench --model llama3-8b --tokens 8192 --steps 0";
  c.flags = {
      {.name = "model",
       .kind = cli::FlagKind::text,
       .metavar = "PRESET|CONFIG.json",
       .default_text = "llama-124m",
       .help = "model to measure: a preset or a configuration file"},
      {.name = "tokens",
       .kind = cli::FlagKind::integer,
       .metavar = "N",
       .help = "rows of activations, and tokens of a step [8192 on a GPU, 512 on the CPU]",
       .min = 1,
       .max = 1 << 24},
      {.name = "recipe",
       .kind = cli::FlagKind::choice,
       .metavar = "NAME",
       .default_text = std::string(quant::recipes().front().name),
       .help = "scaling of FP8 operands, see fp8-recipes(7)",
       .choices = recipe_names()},
      {.name = "steps",
       .kind = cli::FlagKind::integer,
       .metavar = "N",
       .default_text = "4",
       .help = "optimizer steps to time in each precision; 0: none",
       .min = 0,
       .max = 10000},
      {.name = "seconds",
       .kind = cli::FlagKind::real,
       .metavar = "S",
       .default_text = "0.5",
       .help = "approximate seconds to spend on each linear and pass",
       .min = 0.001,
       .max = 3600},
      {.name = "device",
       .kind = cli::FlagKind::choice,
       .metavar = "NAME",
       .default_text = "auto",
       .help = "device to measure; auto: a GPU if there is one, else the CPU",
       .choices = {"auto", "cpu", "cuda"}},
      cli::output_flag("file to write the report to as JSON, besides standard output; with --gemms or --casts the "
                       "results as safetensors"),
      cli::json_flag(),
      cli::force_flag(),
  };
  const std::vector<cli::Flag> modes = other_modes();
  c.flags.insert(std::ranges::find(c.flags, "output", &cli::Flag::name), modes.begin(), modes.end());
  return c;
}

device::DeviceType place_of(const std::string& name) {
  if (name == "cpu") return device::DeviceType::host;
  const std::string why = device::why_no_cuda();
  if (name == "cuda" && !why.empty()) throw Error("--device cuda: " + why);
  return why.empty() ? device::DeviceType::cuda : device::DeviceType::host;
}

int write_gemms(const cli::Arguments& arguments) {
  if (arguments.has("casts")) throw Error("--gemms: not together with --casts");
  if (!arguments.has_value("output")) throw Error("--gemms: needs -o FILE for the sums");
  const bool hopper = arguments.text("accumulate") == "hopper";
  probe::write_gemms(arguments.text("gemms"), arguments.text("output"), arguments.flag("force"),
                     hopper ? gemm::Accumulation::hopper : gemm::Accumulation::ada);
  return static_cast<int>(Exit::done);
}

int write_casts(const cli::Arguments& arguments) {
  if (!arguments.has_value("output")) throw Error("--casts: needs -o FILE for the codes and scales");
  probe::write_casts(arguments.text("casts"), arguments.text("output"), arguments.flag("force"));
  return static_cast<int>(Exit::done);
}

// The file that is the place of a measured machine, whose folder is made; one that is stored there is replaced.
std::string stored_machine() {
  const std::string path = plan::stored_machine_path();
  if (path.empty()) throw Error("--machine: neither XDG_CONFIG_HOME nor HOME is set; needs -o FILE");
  make_folders(path.substr(0, path.rfind('/')));
  return path;
}

int write_machine(const cli::Arguments& arguments) {
  for (const char* flag : {"model", "tokens", "recipe", "steps", "seconds", "gemms", "casts", "accumulate"})
    if (arguments.has(flag)) throw Error("--machine: not together with --" + std::string(flag));
  const bool given = arguments.has("output");
  const bool force = arguments.flag("force") || !given;
  const std::string path = given ? arguments.text("output") : stored_machine();
  check_output(path, force, {});
  if (!arguments.flag("quiet"))
    cli::print_note("fp8-bench", "measures this machine, which takes a minute, and longer while others compute on it");
  cli::Progress progress(arguments.flag("quiet"));
  probe::RatesOptions options;
  options.device = place_of(arguments.text("device"));
  options.progress = [&](const std::string& what) { progress.update("measuring " + what); };
  const json::Value machine = probe::measure_rates(options);
  progress.done();
  probe::save_report(path, force, machine);
  cli::Output out;
  if (arguments.flag("json"))
    out.json(machine);
  else
    out.text(bench::report(plan::open_machine(path, {})) + "written to " + terminal_safe(path) + "\n");
  return static_cast<int>(Exit::done);
}

int measure(const cli::Arguments& arguments) {
  if (arguments.flag("machine")) return write_machine(arguments);
  if (arguments.has_value("gemms")) return write_gemms(arguments);
  if (arguments.has("accumulate")) throw Error("--accumulate: needs --gemms");
  if (arguments.has_value("casts")) return write_casts(arguments);
  const std::string output = arguments.has("output") ? arguments.text("output") : "";
  if (!output.empty())
    check_output(output, arguments.flag("force"), {model::model_config_file(arguments.text("model"))});
  probe::BenchOptions options;
  options.model_name = arguments.text("model");
  options.model = hf::parse_config(model::read_model_config(options.model_name), options.model_name);
  options.device = place_of(arguments.text("device"));
  const std::int64_t usual = options.device == device::DeviceType::cuda ? kTokensOnGpu : kTokensOnCpu;
  options.tokens = arguments.has_value("tokens") ? arguments.integer("tokens") : usual;
  options.recipe = &quant::find_recipe(arguments.text("recipe"));
  options.steps = arguments.integer("steps");
  options.seconds = arguments.real("seconds");
  cli::Progress progress(arguments.flag("quiet"));
  options.progress = [&](const std::string& what) { progress.update("measuring " + what); };
  const probe::BenchResult result = probe::bench(options);
  progress.done();
  const json::Value record = to_json(options, result);
  cli::Output out;
  if (arguments.flag("json")) {
    out.json(record);
  } else {
    out.text(bench::report(options, result, cli::Style::for_stdout()));
  }
  if (!output.empty()) probe::save_report(output, arguments.flag("force"), record);
  return static_cast<int>(Exit::done);
}

}  // namespace

int main(int argc, char** argv) { return cli::run(argc, argv, command(), measure, fp8::train::library_versions()); }
