// fp8-export: a checkpoint as a Hugging Face folder. See fp8-export(1).
#include <algorithm>
#include <map>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/convert/export.h"
#include "fp8/h5/types.h"
#include "fp8/json/json.h"

namespace {

using namespace fp8;

cli::Command command() {
  cli::Command c;
  c.name = "fp8-export";
  c.about = "write a checkpoint as a Hugging Face folder in BF16, FP8 or FP4, or its LoRA adapters";
  c.example = "fp8-export run -o llama3-tuned --format fp8";
  c.positionals = {cli::checkpoint_argument("source", "CHECKPOINT|-", "checkpoint to export")};
  c.writes = true;
  c.flags = {
      cli::output_flag("folder to write"),
      {.name = "format",
       .kind = cli::FlagKind::choice,
       .metavar = "FORMAT",
       .default_text = "bf16",
       .help = "linears in BF16, as E4M3 codes in blocks of 128x128 (fp8) or per row (compressed-tensors), or as FP4 "
               "codes (nvfp4); or LoRA adapters alone (peft)",
       .choices = {"bf16", "fp8", "compressed-tensors", "nvfp4", "peft"}},
      {.name = "template",
       .kind = cli::FlagKind::text,
       .metavar = "NAME|FILE",
       .help = "chat template of the training data, whose end token ends a text in generation_config.json; none: no "
               "template [the model's own]"},
      {.name = "any-template", .help = "accept another template than the model's own"},
      {.name = "any-server", .help = "write also what servers or transformers refuse to load, with a warning"},
      cli::json_flag(),
      cli::dry_run_flag(),
      cli::force_flag(),
  };
  return c;
}

convert::ExportOptions options_of(const cli::Arguments& arguments) {
  convert::ExportOptions options;
  const std::string format = arguments.text("format");
  if (format == "fp8") options.format = convert::ExportFormat::fp8;
  if (format == "compressed-tensors") options.format = convert::ExportFormat::compressed_tensors;
  if (format == "nvfp4") options.format = convert::ExportFormat::nvfp4;
  if (format == "peft") options.format = convert::ExportFormat::peft;
  if (arguments.has("template")) options.form = arguments.text("template");
  options.any_template = arguments.flag("any-template");
  options.force = arguments.flag("force");
  options.strict = !arguments.flag("any-server");
  options.dry_run = arguments.flag("dry-run");
  return options;
}

void print_table(cli::Output& out, const std::string& output, const convert::ExportReport& report, bool dry_run) {
  std::map<std::pair<std::string, std::string>, std::size_t> counts;
  for (const convert::ExportedTensor& t : report.tensors) ++counts[{std::string(dtype::name_of(t.dtype)), t.origin}];
  std::vector<std::vector<std::string>> rows = {{"tensors", "format", "origin"}};
  for (const auto& [kind, count] : counts) rows.push_back({std::to_string(count), kind.first, kind.second});
  out.text(cli::table(rows));
  const auto weights = std::count_if(report.files.begin(), report.files.end(),
                                     [](const std::string& f) { return f.ends_with(".safetensors"); });
  out.line(terminal_safe(output) + ": " + human_bytes(report.bytes) + " of weights in " + counted(weights, "file") +
           " from " + terminal_safe(report.source) + (dry_run ? " would be written" : ""));
}

json::Value record_of(const std::string& output, const cli::Arguments& arguments, const convert::ExportReport& report) {
  json::Array tensors;
  for (const convert::ExportedTensor& t : report.tensors) {
    tensors.push_back(json::object({{"name", t.name},
                                    {"shape", json::Array(t.shape.begin(), t.shape.end())},
                                    {"dtype", dtype::name_of(t.dtype)},
                                    {"file", t.file},
                                    {"origin", t.origin}}));
  }
  return json::object({{"type", "export"},
                       {"source", report.source},
                       {"path", output},
                       {"format", arguments.text("format")},
                       {"bytes", report.bytes},
                       {"files", json::Array(report.files.begin(), report.files.end())},
                       {"warnings", json::Array(report.warnings.begin(), report.warnings.end())},
                       {"notes", json::Array(report.notes.begin(), report.notes.end())},
                       {"tensors", std::move(tensors)}});
}

int export_checkpoint(const cli::Arguments& arguments) {
  const std::string output = arguments.text("output");
  convert::ExportOptions options = options_of(arguments);
  const std::string source = model::resolve_checkpoint_argument(arguments.positional("source"));
  cli::Progress progress(arguments.flag("quiet"));
  options.progress = [&](const std::string& tensor, std::size_t i, std::size_t n) {
    progress.update(std::to_string(i) + "/" + std::to_string(n) + " " + tensor);
  };
  const convert::ExportReport report = convert::export_folder(source, output, options);
  progress.done();
  cli::Output out;
  if (arguments.flag("json")) {
    out.json(record_of(output, arguments, report));
  } else {
    print_table(out, output, report, options.dry_run);
  }
  for (const std::string& warning : report.warnings) cli::print_note("fp8-export", warning);
  if (!arguments.flag("quiet"))
    for (const std::string& note : report.notes) cli::print_note("fp8-export", note);
  return static_cast<int>(Exit::done);
}

}  // namespace

int main(int argc, char** argv) { return cli::run(argc, argv, command(), export_checkpoint, {h5::library_version()}); }
