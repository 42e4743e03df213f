// fp8-convert: a Hugging Face folder or a checkpoint to an FP8-eligible checkpoint. See fp8-convert(1).
#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/convert/convert.h"
#include "fp8/h5/types.h"
#include "fp8/model/checkpoint.h"

namespace {

using namespace fp8;

cli::Command command() {
  std::vector<std::string> recipes;
  for (const quant::Recipe& r : quant::recipes()) recipes.emplace_back(r.name);
  cli::Command c;
  c.name = "fp8-convert";
  c.about = "convert a Hugging Face folder or a checkpoint to an FP8-eligible checkpoint";
  c.example = "fp8-convert llama3/ -o model.h5";
  c.positionals = {
      cli::checkpoint_argument("source", "HF_FOLDER|CHECKPOINT|-", "Hugging Face folder or checkpoint to convert")};
  c.writes = true;
  c.flags = {
      cli::output_flag("checkpoint to write"),
      {.name = "dtype",
       .kind = cli::FlagKind::choice,
       .metavar = "TYPE",
       .default_text = "keep",
       .help = "format of the weights; keep: as in the source",
       .choices = {"keep", "f32", "bf16"}},
      {.name = "filter",
       .kind = cli::FlagKind::list,
       .metavar = "GLOB",
       .help = "keep linears whose name matches in bf16"},
      {.name = "auto-filter", .help = "keep linears in bf16 that are too small to be faster in FP8"},
      {.name = "recipe",
       .kind = cli::FlagKind::choice,
       .metavar = "NAME",
       .default_text = recipes.front(),
       .help = "recipe whose minimum sizes --auto-filter applies",
       .choices = recipes},
      {.name = "fp8-lm-head", .help = "make the LM head FP8-eligible too"},
      {.name = "pad",
       .help = "pad the intermediate size with zeros to a multiple of 16, and with --fp8-lm-head the vocabulary"},
      {.name = "dequantize", .help = "multiply the FP8 codes of a folder by their scales, and write BF16 or --dtype"},
      {.name = "merge-lora", .help = "add the adapters of a LoRA checkpoint to its weights, and write a plain model"},
      {.name = "merge", .help = "accept a sharded checkpoint; keep the optimizer state of a training checkpoint"},
      {.name = "weights-only", .help = "write the weights alone, also of a sharded training checkpoint"},
      cli::json_flag(),
      cli::dry_run_flag(),
      cli::force_flag(),
  };
  return c;
}

convert::ConvertOptions options_of(const cli::Arguments& arguments) {
  convert::ConvertOptions options;
  const std::string type = arguments.text("dtype");
  if (type != "keep") options.dtype = type == "bf16" ? dtype::DType::bf16 : dtype::DType::f32;
  if (arguments.has("recipe") && !arguments.flag("auto-filter")) {
    throw Error("--recipe: only with --auto-filter, whose minimum sizes it selects");
  }
  if (arguments.has("filter") || arguments.has("auto-filter") || arguments.has("fp8-lm-head")) {
    options.precisions = model::PrecisionRules{.recipe = &quant::find_recipe(arguments.text("recipe")),
                                               .filters = arguments.list("filter"),
                                               .auto_filter = arguments.flag("auto-filter"),
                                               .lm_head = arguments.flag("fp8-lm-head")};
  }
  options.pad = arguments.flag("pad");
  options.dequantize = arguments.flag("dequantize");
  options.merge_lora = arguments.flag("merge-lora");
  options.weights_only = arguments.flag("weights-only");
  options.merge = arguments.flag("merge");
  options.force = arguments.flag("force");
  options.dry_run = arguments.flag("dry-run");
  return options;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return std::to_string(shape[0]) + "x" + std::to_string(shape[1]);
}

void print_table(cli::Output& out, const std::vector<model::LinearRow>& linears) {
  const auto any = [&](const auto& has) { return std::any_of(linears.begin(), linears.end(), has); };
  const bool padded = any([](const model::LinearRow& l) { return !l.padded_from.empty(); });
  const bool scaled = any([](const model::LinearRow& l) { return !l.scaling.empty(); });
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& name, const std::string& shape, const std::string& from,
                       const std::string& scales, const std::vector<std::string>& rest) {
    std::vector<std::string>& row = rows.emplace_back(std::vector{name, shape});
    if (padded) row.push_back(from);
    if (scaled) row.push_back(scales);
    row.insert(row.end(), rest.begin(), rest.end());
  };
  add("linear", "shape", "padded from", "scales", {"precision", "aligned", "reason"});
  for (const model::LinearRow& l : linears)
    add(l.name, shape_text(l.shape), l.padded_from.empty() ? "" : shape_text(l.padded_from), l.scaling,
        {l.fp8 ? "fp8" : "bf16", l.aligned ? "yes" : "no", terminal_safe(l.reason)});
  out.text(cli::table(rows));
}

json::Value record_of(const std::string& source, const std::string& output, const convert::ConvertReport& report) {
  json::Array linears;
  for (const model::LinearRow& l : report.linears) {
    linears.push_back(json::object({{"name", l.name},
                                    {"shape", json::Array(l.shape.begin(), l.shape.end())},
                                    {"precision", l.fp8 ? "fp8" : "bf16"},
                                    {"reason", l.reason},
                                    {"aligned", l.aligned}}));
    if (!l.scaling.empty()) linears.back().as_object().set("scales", l.scaling);
    if (!l.padded_from.empty())
      linears.back().as_object().set("padded_from", json::Array(l.padded_from.begin(), l.padded_from.end()));
  }
  json::Array requantized;
  for (const convert::Requantized& r : report.requantized)
    requantized.push_back(
        json::object({{"name", r.name},
                      {"distance", r.distance},
                      {"distance_per_change", r.of_change ? json::Value(*r.of_change) : json::Value()}}));
  json::Array sizes;
  for (const convert::PaddedSize& p : report.padded_sizes)
    sizes.push_back(json::object({{"key", p.key}, {"from", p.from}, {"to", p.to}}));
  return json::object({{"type", "convert"},
                       {"source", source},
                       {"path", output},
                       {"kind", report.kind},
                       {"tensors", report.tensors},
                       {"parameters", report.parameters},
                       {"bytes", report.bytes},
                       {"padded", std::move(sizes)},
                       {"requantized", std::move(requantized)},
                       {"linears", std::move(linears)}});
}

// The distances of codes that were made anew: from the merged weights, and compared with what the adapters add. Codes
// in steps larger than that keep none of it, however close they are to the weights.
void print_requantized(const std::vector<convert::Requantized>& all, const std::string& source) {
  if (all.empty()) return;
  const auto farthest =
      std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.distance < b.distance; });
  std::string note = std::to_string(all.size()) +
                     " linears were quantized again; the relative distance from the merged weight is at most " +
                     format_short(farthest->distance, 3) + ", of " + farthest->name;
  std::vector<std::pair<double, std::string>> changes;
  for (const convert::Requantized& r : all)
    if (r.of_change) changes.emplace_back(*r.of_change, r.name);
  std::sort(changes.begin(), changes.end());
  if (changes.empty()) return cli::print_note("fp8-convert", note);
  const double median = (changes[(changes.size() - 1) / 2].first + changes[changes.size() / 2].first) / 2;
  note += "; divided by what the adapter adds, the distance is " + format_short(median, 3) + " in the median and " +
          format_short(changes.back().first, 3) + " at most, of " + changes.back().second;
  cli::print_note("fp8-convert", note);
  constexpr double kMuch = 0.5;
  if (median > kMuch)
    cli::print_note("fp8-convert", "requantization removes most of what the adapters were trained to; to keep it: " +
                                       std::string("fp8-convert ") + source +
                                       " --merge-lora --dequantize --dtype f32 -o merged.h5");
}

int convert_model(const cli::Arguments& arguments, const model::Origin& origin) {
  const std::string output = arguments.text("output");
  convert::ConvertOptions options = options_of(arguments);
  const std::string source = model::resolve_checkpoint_argument(arguments.positional("source"));
  cli::Progress progress(arguments.flag("quiet"));
  options.origin = origin;
  options.progress = [&](const std::string& tensor, std::size_t i, std::size_t n) {
    progress.update(std::to_string(i) + "/" + std::to_string(n) + " " + tensor);
  };
  const convert::ConvertReport report = convert::convert(source, output, options);
  progress.done();
  if (!report.invalid.empty())
    cli::print_note("fp8-convert", report.invalid.front() + ", in " + std::to_string(report.invalid.size()) + " of " +
                                       std::to_string(report.tensors) + " weights; no tool trains or evaluates it");
  if (!arguments.flag("quiet")) print_requantized(report.requantized, source);
  if (!arguments.flag("quiet"))
    for (const std::string& note : report.notes) cli::print_note("fp8-convert", note);
  cli::Output out;
  if (arguments.flag("json")) {
    out.json(record_of(source, output, report));
    if (!options.dry_run) out.json(model::checkpoint_record(output));
  } else {
    print_table(out, report.linears);
  }
  return static_cast<int>(Exit::done);
}

}  // namespace

int main(int argc, char** argv) {
  return cli::run(argc, argv, command(),
                  [&](const cli::Arguments& arguments) {
                    return convert_model(arguments, model::origin_of("fp8-convert", cli::version(), argc, argv));
                  },
                  {h5::library_version()});
}
