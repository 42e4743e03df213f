// fp8-quantize: converts the weights of a checkpoint to FP8 or FP4 codes and scales, or back. See fp8-quantize(1).
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/convert/quantize.h"
#include "fp8/h5/types.h"

namespace {

using namespace fp8;
using TableRows = std::vector<std::vector<std::string>>;

cli::Command command() {
  cli::Command c;
  c.name = "fp8-quantize";
  c.about = "convert the weights of a checkpoint to FP8 or FP4 codes and scales, or back";
  c.example = "fp8-quantize model.h5 -o q.h5 --scaling row";
  c.positionals = {cli::checkpoint_argument("source", "CHECKPOINT|-", "checkpoint to convert")};
  c.writes = true;
  c.flags = {
      cli::output_flag("checkpoint to write"),
      {.name = "scaling",
       .kind = cli::FlagKind::choice,
       .metavar = "HOW",
       .help = "one scale per weight (tensor), row, 128x128 (block), 1x32 (mx), or FP4 (nvfp4); required without "
               "--dequantize",
       .choices = {"tensor", "row", "block", "mx", "nvfp4"}},
      {.name = "format",
       .kind = cli::FlagKind::choice,
       .metavar = "TYPE",
       .default_text = "e4m3",
       .help = "format of FP8 codes",
       .choices = {"e4m3", "e5m2"}},
      {.name = "power-of-2-scales", .help = "round scales to powers of two"},
      {.name = "filter",
       .kind = cli::FlagKind::list,
       .metavar = "GLOB",
       .help = "do not quantize weights whose name matches"},
      {.name = "dequantize", .help = "convert a quantized checkpoint back to one that can be trained"},
      {.name = "dtype",
       .kind = cli::FlagKind::choice,
       .metavar = "TYPE",
       .default_text = "f32",
       .help = "format of the weights that --dequantize writes",
       .choices = {"f32", "bf16"}},
      cli::json_flag(),
      cli::dry_run_flag(),
      cli::force_flag(),
  };
  return c;
}

// Throws Error when one of `flags`, which only the other direction accepts, was given.
void refuse(const cli::Arguments& arguments, const std::vector<std::string>& flags, const std::string& why) {
  for (const std::string& flag : flags) {
    if (arguments.has(flag)) throw Error("--" + flag + ": " + why);
  }
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return std::to_string(shape[0]) + "x" + std::to_string(shape[1]);
}

json::Array shape_array(const std::vector<std::int64_t>& shape) { return {shape.begin(), shape.end()}; }

// "14 of 21 weights quantized, 489 KiB before, 166 KiB now"
std::string sentence(std::size_t done, std::int64_t all, const std::string& what, std::uint64_t before,
                     std::uint64_t now) {
  return std::to_string(done) + " of " + std::to_string(all) + " weights " + what + ", " + human_bytes(before) +
         " before, " + human_bytes(now) + " now";
}

void print_table(cli::Output& out, const convert::QuantizeReport& report, const convert::QuantizeOptions& options) {
  const bool many = options.scaling != quant::Granularity::tensor;
  TableRows rows = {{"weight", "shape", "SQNR dB", "saturated", "underflow", many ? "least scale" : "scale"}};
  if (many) rows.front().emplace_back("greatest scale");
  for (const convert::QuantizedTensor& t : report.tensors) {
    rows.push_back({t.name, shape_text(t.shape), t.sqnr_db ? format_short(*t.sqnr_db, 4) : "exact",
                    format_short(t.saturated_share, 3), format_short(t.underflow_share, 3),
                    format_short(static_cast<double>(t.scale_min), 4)});
    if (many) rows.back().push_back(format_short(static_cast<double>(t.scale_max), 4));
  }
  out.text(cli::table(rows));
  out.line(sentence(report.tensors.size(), report.weights, options.dry_run ? "would be quantized" : "quantized",
                    report.bytes_before, report.bytes));
}

json::Value record_of(const std::string& source, const std::string& output, const cli::Arguments& arguments,
                      const convert::QuantizeReport& report) {
  json::Array tensors;
  for (const convert::QuantizedTensor& t : report.tensors) {
    tensors.push_back(json::object({{"name", t.name},
                                    {"shape", shape_array(t.shape)},
                                    {"sqnr_db", t.sqnr_db ? json::Value(*t.sqnr_db) : json::Value()},
                                    {"infinite", t.infinite},
                                    {"saturated_share", t.saturated_share},
                                    {"underflow_share", t.underflow_share},
                                    {"scale_min", t.scale_min},
                                    {"scale_max", t.scale_max}}));
  }
  return json::object({{"type", "quantize"},
                       {"source", source},
                       {"path", output},
                       {"scaling", arguments.text("scaling")},
                       {"format", arguments.text("scaling") == "nvfp4" ? "e2m1" : arguments.text("format")},
                       {"power_of_2_scales", arguments.flag("power-of-2-scales")},
                       {"weights", report.weights},
                       {"bytes_before", report.bytes_before},
                       {"bytes", report.bytes},
                       {"tensors", std::move(tensors)}});
}

void print_table(cli::Output& out, const convert::DequantizeReport& report, const convert::DequantizeOptions& options) {
  TableRows rows = {{"weight", "shape", "codes", "scales"}};
  for (const convert::DequantizedTensor& t : report.tensors) {
    rows.push_back({t.name, shape_text(t.shape), std::string(dtype::name_of(t.format)), std::to_string(t.scales)});
  }
  out.text(cli::table(rows));
  out.line(sentence(report.tensors.size(), report.weights, options.dry_run ? "would be dequantized" : "dequantized",
                    report.bytes_before, report.bytes));
}

json::Value record_of(const std::string& source, const std::string& output, const cli::Arguments& arguments,
                      const convert::DequantizeReport& report) {
  json::Array tensors;
  for (const convert::DequantizedTensor& t : report.tensors) {
    tensors.push_back(json::object({{"name", t.name},
                                    {"shape", shape_array(t.shape)},
                                    {"format", dtype::name_of(t.format)},
                                    {"scales", t.scales}}));
  }
  return json::object({{"type", "dequantize"},
                       {"source", source},
                       {"path", output},
                       {"dtype", arguments.text("dtype")},
                       {"weights", report.weights},
                       {"bytes_before", report.bytes_before},
                       {"bytes", report.bytes},
                       {"tensors", std::move(tensors)}});
}

// Sentences about values that the codes cannot express.
std::vector<std::string> warnings_of(const convert::QuantizeReport& report) {
  std::vector<std::string> warnings;
  for (const convert::QuantizedTensor& t : report.tensors)
    if (t.infinite)
      warnings.push_back(t.name + ": a code times its scale is infinite: it has values near the largest float");
  return warnings;
}

std::vector<std::string> warnings_of(const convert::DequantizeReport&) { return {}; }

// The part of both directions that is the same: common options, the conversion, the report.
template <class Options, class Work>
int run(const cli::Arguments& arguments, const model::Origin& origin, Options options, const Work& work) {
  const std::string output = arguments.text("output");
  const std::string source = model::resolve_checkpoint_argument(arguments.positional("source"));
  cli::Progress progress(arguments.flag("quiet"));
  options.force = arguments.flag("force");
  options.dry_run = arguments.flag("dry-run");
  options.origin = origin;
  options.progress = [&](const std::string& tensor, std::size_t i, std::size_t n) {
    progress.update(std::to_string(i) + "/" + std::to_string(n) + " " + tensor);
  };
  const auto report = work(source, output, options);
  progress.done();
  cli::Output out;
  if (arguments.flag("json")) {
    out.json(record_of(source, output, arguments, report));
    if (!options.dry_run) out.json(model::checkpoint_record(output));
  } else {
    print_table(out, report, options);
  }
  for (const std::string& note : report.notes) cli::print_note("fp8-quantize", note);
  for (const std::string& warning : warnings_of(report)) cli::print_note("fp8-quantize", warning);
  return static_cast<int>(Exit::done);
}

quant::Granularity scaling_of(const std::string& name) {
  if (name == "row") return quant::Granularity::row;
  if (name == "block") return quant::Granularity::block128x128;
  if (name == "nvfp4") return quant::Granularity::block16x16;
  return name == "mx" ? quant::Granularity::block1x32 : quant::Granularity::tensor;
}

int quantize(const cli::Arguments& arguments, const model::Origin& origin) {
  refuse(arguments, {"dtype"}, "only with --dequantize");
  convert::QuantizeOptions options;
  options.scaling = scaling_of(arguments.text("scaling"));
  options.format = arguments.text("format") == "e5m2" ? dtype::DType::e5m2 : dtype::DType::e4m3;
  if (options.scaling == quant::Granularity::block16x16) {
    refuse(arguments, {"format"}, "codes are E2M1 under --scaling nvfp4");
    refuse(arguments, {"power-of-2-scales"}, "scales of blocks are E4M3 under --scaling nvfp4");
    options.format = dtype::DType::e2m1;
  }
  options.power_of_2 = arguments.flag("power-of-2-scales");
  options.filters = arguments.list("filter");
  return run(arguments, origin, options, convert::quantize);
}

int dequantize(const cli::Arguments& arguments, const model::Origin& origin) {
  refuse(arguments, {"scaling", "format", "power-of-2-scales", "filter"},
         "not together with --dequantize, which reads format and scales from the checkpoint");
  convert::DequantizeOptions options;
  options.dtype = arguments.text("dtype") == "bf16" ? dtype::DType::bf16 : dtype::DType::f32;
  return run(arguments, origin, options, convert::dequantize);
}

}  // namespace

int main(int argc, char** argv) {
  return cli::run(argc, argv, command(),
                  [&](const cli::Arguments& arguments) {
                    const model::Origin origin = model::origin_of("fp8-quantize", cli::version(), argc, argv);
                    return arguments.flag("dequantize") ? dequantize(arguments, origin) : quantize(arguments, origin);
                  },
                  {h5::library_version()});
}
