// fp8-log: summarizes, compares, plots and exports the logs of runs. See fp8-log(1).
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/log/export.h"
#include "fp8/log/overview.h"
#include "fp8/log/picture.h"
#include "live.h"
#include "report.h"
#include "tensors.h"

namespace {

using namespace fp8;

constexpr int kPlotRows = 20;
constexpr std::size_t kPlotColumns = 120;  // of a heatmap

// Fields of step records and, with eval_loss, what else can be plotted; completions offer them.
std::vector<std::string> metrics() {
  return {"loss",           "eval_loss",       "grad_norm",       "lr",
          "step_s",         "tokens_per_s",    "data_wait_s",     "model_tflops",
          "fp8_flop_share", "saturated_share", "underflow_share", "memory_peak_bytes"};
}

cli::Command command() {
  cli::Command c;
  c.name = "fp8-log";
  c.about = "summarize, compare, plot and export the logs of runs";
  c.example = "fp8-log --compare run-bf16 run-fp8 --gate 0.02";
  c.positionals = {{.name = "runs",
                    .metavar = "RUN",
                    .help = "folder or log of a run; - or none: standard input",
                    .required = false,
                    .repeated = true}};
  c.flags = {
      {.name = "compare",
       .help = "compare B with A at the same number of tokens; a side may be several runs, A1,A2,... B1,B2,..., paired "
               "by seed"},
      {.name = "gate",
       .kind = cli::FlagKind::real,
       .metavar = "NATS",
       .help = "with --compare: exit with status 1 unless the loss gap is within +-NATS, or 2 if settings differ",
       .min = 0},
      {.name = "allow",
       .kind = cli::FlagKind::text,
       .metavar = "NAME,...",
       .help = "with --gate: settings that may differ, such as lr,steps; all allows every setting"},
      {.name = "baseline",
       .kind = cli::FlagKind::path,
       .metavar = "RUN",
       .help = "run with whose loss those of the others are compared, in a table with one row per run"},
      {.name = "sort",
       .kind = cli::FlagKind::text,
       .metavar = "NAME",
       .help = "sort the table by loss, gap, tokens_per_s, a setting that differs, ...; -NAME: in decreasing order"},
      {.name = "plot",
       .kind = cli::FlagKind::text,
       .metavar = "METRIC",
       .help = "plot a field of the step records",
       .suggestions = metrics()},
      {.name = "export",
       .kind = cli::FlagKind::choice,
       .metavar = "FORMAT",
       .help = "convert the logs to another format",
       .choices = {"csv", "tensorboard", "prometheus", "trace"}},
      {.name = "tensors",
       .help = "show the worst FP8 operands and products in tensors.jsonl of a run; also with --export csv or --plot"},
      {.name = "follow", .help = "show the progress of a run until it ends"},
      {.name = "interval",
       .kind = cli::FlagKind::real,
       .metavar = "SECONDS",
       .help = "with --follow: seconds between updates [1 on a terminal, else 10]",
       .min = 0.01,
       .max = 86400},
      cli::output_flag("file of a plot (.svg or .png) or of an export"),
      cli::json_flag(),
      cli::force_flag(),
  };
  return c;
}

// Rejects flags that exclude each other.
void check_flags(const cli::Arguments& arguments) {
  const bool compare = arguments.flag("compare"), plot = arguments.has("plot"), exports = arguments.has("export");
  const auto refuse = [](const std::string& flag, const std::string& reason) {
    throw Error("--" + flag + ": " + reason);
  };
  if (exports && (compare || plot)) refuse("export", std::string("not together with --") + (plot ? "plot" : "compare"));
  for (const char* other : {"compare", "plot", "export", "json"}) {
    if (arguments.flag("follow") && arguments.has(other)) refuse("follow", std::string("not together with --") + other);
  }
  if (arguments.has("interval") && !arguments.flag("follow")) refuse("interval", "only with --follow");
  if (arguments.has("gate") && !compare) refuse("gate", "only with --compare");
  for (const char* flag : {"baseline", "sort"}) {
    if (arguments.has(flag) && (compare || plot || exports || arguments.flag("follow"))) {
      refuse(flag, "not together with --compare, --plot, --export or --follow");
    }
  }
  if (arguments.flag("tensors")) {
    for (const char* other : {"compare", "follow", "baseline", "sort"})
      if (arguments.has(other)) refuse("tensors", std::string("not together with --") + other);
    if (exports && arguments.text("export") != "csv") refuse("tensors", "exports only csv");
    if (plot && !arguments.has("output")) refuse("tensors", "a plot needs --output FILE, .svg or .png");
  }
  if (arguments.has("allow") && !compare) refuse("allow", "only with --compare");
  if (arguments.has("output") && !plot && !exports) refuse("output", "only with --plot or --export");
  if (arguments.flag("json") && (plot || exports)) refuse("json", "not together with --plot or --export");
}

std::vector<std::string> paths_of(const cli::Arguments& arguments) {
  std::vector<std::string> paths = arguments.positionals("runs");
  if (paths.empty()) {
    if (::isatty(STDIN_FILENO) == 1) throw Error("RUN: needed (a run's folder, its log, or - for standard input)");
    paths.emplace_back("-");
  }
  if (std::count(paths.begin(), paths.end(), "-") > 1) throw Error("-: standard input can be read only once");
  return paths;
}

// The fields of a log to keep.
log::Wanted wanted(const cli::Arguments& arguments, bool all, std::vector<std::string> metrics) {
  return {.all = all, .metrics = std::move(metrics), .waiting = cli::waiting_note("fp8-log", arguments.flag("quiet"))};
}

// The files of runs that are read. A plot or an export may replace other files in their folders.
std::vector<std::string> files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code ignored;
    const bool folder = std::filesystem::is_directory(path, ignored);
    for (const char* file : {"/log.jsonl", "/tensors.jsonl"}) files.push_back(folder ? path + file : path);
  }
  return files;
}

// Throws Error if --output would replace a file of a run that is read.
void check_elsewhere(const cli::Arguments& arguments, const std::vector<std::string>& paths) {
  std::error_code ignored;  // a folder is not replaced
  if (arguments.has("output") && !std::filesystem::is_directory(arguments.text("output"), ignored))
    check_not_input(arguments.text("output"), files_of(paths));
}

// Reads several runs, which share the memory limit and get different names.
std::vector<log::Run> read_all(const cli::Arguments& arguments, const std::vector<std::string>& paths,
                               const log::Wanted& kept) {
  check_elsewhere(arguments, paths);
  const std::vector<std::string> names = log::run_names(paths);
  std::vector<log::Run> runs;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    runs.push_back(log::read_run(paths[i], kept));
    runs.back().name = names[i];
  }
  return runs;
}

// Two runs or fewer are shown side by side, more as one row each.
int summarize(const cli::Arguments& arguments) {
  constexpr std::size_t kMostSideBySide = 2;
  const std::vector<std::string> paths = paths_of(arguments), names = log::run_names(paths);
  const log::Wanted kept = wanted(arguments, false, log::summary_metrics());
  std::optional<log::Run> baseline;
  if (arguments.has("baseline")) baseline = log::read_run(arguments.text("baseline"), kept);
  log::OverviewBuilder builder;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    builder.add(log::read_run(paths[i], kept), names[i], baseline ? &*baseline : nullptr);
  }
  log::Overview all = builder.finish();
  if (arguments.has("sort")) log::sort_rows(all, arguments.text("sort"));
  cli::Output out;
  if (arguments.flag("json")) {
    for (const log::OverviewRow& row : all.rows) out.json(log::record(all, row));
  } else if (paths.size() > kMostSideBySide || baseline || arguments.has("sort")) {
    out.text(report::overview(all, cli::Style::for_stdout()));
  } else {
    std::vector<log::Summary> summaries;
    for (const log::OverviewRow& row : all.rows) summaries.push_back(row.summary);
    out.text(report::summaries(summaries, cli::Style::for_stdout(), cli::terminal_columns()));
  }
  return static_cast<int>(Exit::done);
}

// The parts of a list with commas.
std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = list.find(',', begin);
    parts.push_back(list.substr(begin, end - begin));
  }
  return parts;
}

// Two sides of a comparison.
struct Sides {
  std::vector<log::Run> runs;  // those of side A first
  std::size_t of_a = 0;

  std::span<const log::Run> a() const { return std::span(runs).first(of_a); }
  std::span<const log::Run> b() const { return std::span(runs).subspan(of_a); }
};

// Reads the runs of both sides. A side is a list with commas, or the path of one run that contains commas.
Sides read_sides(const cli::Arguments& arguments, std::vector<std::string> metrics) {
  const std::vector<std::string> given = arguments.positionals("runs");
  if (given.size() != 2) {
    throw Error("--compare: needs two runs, or two lists of runs with commas, found " + std::to_string(given.size()));
  }
  std::vector<std::string> paths;
  Sides sides;
  for (const std::string& side : given) {
    const std::vector<std::string> parts =
        std::filesystem::exists(side) ? std::vector<std::string>{side} : parts_of(side);
    if (std::count(parts.begin(), parts.end(), "") > 0) throw Error("--compare: \"" + side + "\": an empty name");
    paths.insert(paths.end(), parts.begin(), parts.end());
    if (sides.of_a == 0) sides.of_a = paths.size();
  }
  if (std::count(paths.begin(), paths.end(), "-") > 1) throw Error("-: standard input can be read only once");
  sides.runs = read_all(arguments, paths, wanted(arguments, false, std::move(metrics)));
  return sides;
}

// The names in --allow. Throws Error when one is no setting that a gate checks.
std::vector<std::string> allowed(const cli::Arguments& arguments, const log::PairedComparison& comparison) {
  if (!arguments.has("allow")) return {};
  std::vector<std::string> names = parts_of(arguments.text("allow"));
  for (const std::string& name : names) {
    const bool differs = std::any_of(comparison.differences.begin(), comparison.differences.end(),
                                     [&](const log::Difference& d) { return d.name == name; });
    const auto& known = log::kCheckedSettings;
    if (name == "all" || differs || std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string list = "all";
    for (const std::string_view k : known) list += ", " + std::string(k);
    throw Error("--allow: \"" + excerpt(name) + "\" is not one of " + list);
  }
  return names;
}

// Throws Error when the runs differ in a setting that the gate checks and --allow does not name.
void check_settings(const log::PairedComparison& comparison, const cli::Arguments& arguments) {
  const std::vector<log::Difference> refused = log::refused(comparison, allowed(arguments, comparison));
  if (refused.empty() || !arguments.has("gate")) return;
  std::string text, names;
  for (const log::Difference& d : refused) {
    text += (text.empty() ? "" : ", ") + d.name + " (" + d.a + ", " + d.b + ")";
    if (("," + names + ",").find("," + d.name + ",") == std::string::npos) names += (names.empty() ? "" : ",") + d.name;
  }
  throw Error("--gate: the runs differ in " + text + "; --allow " + names + " compares them nevertheless");
}

int compare(const cli::Arguments& arguments) {
  const Sides sides = read_sides(arguments, log::summary_metrics());
  const log::PairedComparison comparison = log::compare(sides.a(), sides.b());
  const std::optional<double> gate =
      arguments.has("gate") ? std::optional<double>(arguments.real("gate")) : std::nullopt;
  check_settings(comparison, arguments);
  cli::Output out;
  if (arguments.flag("json")) {
    out.json(log::record(comparison, gate));
  } else {
    out.text(report::comparison(comparison, gate, cli::Style::for_stdout()));
  }
  return static_cast<int>(gate && log::verdict(comparison, *gate) != log::Verdict::met ? Exit::no : Exit::done);
}

plot::Picture picture_of(const cli::Arguments& arguments, const std::string& metric) {
  if (!arguments.flag("compare"))
    return log::picture(read_all(arguments, paths_of(arguments), wanted(arguments, false, {metric})), metric);
  const Sides sides = read_sides(arguments, {metric});
  const std::optional<double> gate =
      arguments.has("gate") ? std::optional<double>(arguments.real("gate")) : std::nullopt;
  return log::comparison_picture(sides.a(), sides.b(), metric, gate);
}

void draw(const cli::Arguments& arguments) {
  const std::string metric = arguments.text("plot");
  const bool to_file = arguments.has("output");
  const std::string output = to_file ? arguments.text("output") : "";
  const plot::Image image = to_file ? plot::image_of(output) : plot::Image::svg;
  if (to_file) check_output(output, arguments.flag("force"), {});
  const plot::Picture picture = picture_of(arguments, metric);
  if (to_file) {
    AtomicFile file(output, arguments.flag("force"));
    plot::gnuplot_plot(picture, image, file.path());
    file.commit();
  } else {
    cli::Output().text(plot::terminal_plot(picture, cli::terminal_columns(), kPlotRows, cli::Style::for_stdout().on));
  }
}

// Writes `path` atomically; "-" is standard output.
void write_output(const std::string& path, bool force, const std::function<void(const log::Sink&)>& write) {
  if (path == "-") {
    cli::Output out;
    return write([&](std::string_view piece) { out.text(piece); });
  }
  AtomicFile target(path, force);
  File file = File::open_update(target.path());
  write([&](std::string_view piece) { file.write_all(piece); });
  file.close();
  target.commit();
}

// Writes one event file if the file name contains "tfevents", else a folder for TensorBoard's --logdir, with one
// subfolder per run if there are several.
void export_tensorboard(const std::vector<log::Run>& runs, const std::string& output, bool force) {
  namespace fs = std::filesystem;
  std::vector<std::string> paths;
  for (const log::Run& run : runs) paths.push_back(run.path);
  const auto write = [&](const log::Run& run, const fs::path& path) {
    check_output(path.string(), force, files_of(paths));
    write_output(path.string(), force, [&](const log::Sink& sink) { log::write_tensorboard(run, sink); });
  };
  if (output == "-") throw Error("--output: event files cannot be written to standard output; give a folder");
  const bool one_file = fs::path(output).filename().string().find("tfevents") != std::string::npos;
  if (one_file && runs.size() > 1) throw Error(output + ": an event file contains one run; give a folder for several");
  if (one_file) return write(runs.front(), output);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    fs::path folder = output;
    const std::string name = log::run_name(runs[i].path);  // one path component, so that the folder is inside `output`
    const auto same = std::count_if(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(i),
                                    [&](const log::Run& run) { return log::run_name(run.path) == name; });
    if (runs.size() > 1) folder /= name + (same > 0 ? "-" + std::to_string(same + 1) : "");
    std::error_code failed;
    fs::create_directories(folder, failed);
    if (failed) throw Error(folder.string() + ": cannot create the folder: " + failed.message());
    write(runs[i], folder / "events.out.tfevents.0.fp8");
  }
}

int export_logs(const cli::Arguments& arguments) {
  const std::string format = arguments.text("export");
  const std::string output = arguments.has("output") ? arguments.text("output") : "-";
  const bool force = arguments.flag("force");
  const std::vector<log::Run> runs = read_all(arguments, paths_of(arguments), wanted(arguments, true, {}));
  if (format == "tensorboard") {
    export_tensorboard(runs, output, force);
  } else {
    write_output(output, force, [&](const log::Sink& sink) {
      if (format == "csv") {
        log::write_csv(runs, sink);
      } else if (format == "trace") {
        log::write_trace(runs, sink);
      } else {
        sink(log::prometheus(runs));
      }
    });
  }
  return static_cast<int>(Exit::done);
}

// The statistics of one run: tables, records, CSV or a heatmap.
int tensors(const cli::Arguments& arguments) {
  const std::vector<std::string> paths = paths_of(arguments);
  if (paths.size() != 1) throw Error("--tensors: needs one run, found " + std::to_string(paths.size()));
  const bool force = arguments.flag("force");
  const std::string output = arguments.has("output") ? arguments.text("output") : "-";
  const std::size_t metric = arguments.has("plot") ? log::tensor_metric(arguments.text("plot")) : 0;
  const plot::Image image = arguments.has("plot") ? plot::image_of(output) : plot::Image::svg;
  check_elsewhere(arguments, paths);
  if (output != "-") check_output(output, force, {});
  const log::TensorRun run = log::read_tensors(paths[0], cli::waiting_note("fp8-log", arguments.flag("quiet")));
  if (arguments.has("plot")) {
    const plot::Heatmap map = log::heatmap(run, metric, kPlotColumns);
    AtomicFile file(output, force);
    plot::gnuplot_heatmap(map, image, file.path());
    file.commit();
  } else if (arguments.has("export")) {
    write_output(output, force, [&](const log::Sink& sink) { log::write_tensor_csv(run, sink); });
  } else {
    cli::Output out;
    if (!arguments.flag("json")) out.text(report::tensors(run, cli::Style::for_stdout()));
    for (const json::Value& record : arguments.flag("json") ? log::tensor_records(run) : std::vector<json::Value>())
      out.json(record);
  }
  return static_cast<int>(Exit::done);
}

int follow(const cli::Arguments& arguments) {
  const std::vector<std::string> paths = paths_of(arguments);
  if (paths.size() != 1) throw Error("--follow: needs one run, found " + std::to_string(paths.size()));
  const double usual = ::isatty(STDOUT_FILENO) == 1 ? 1 : 10;
  report::follow(paths[0], arguments.has("interval") ? arguments.real("interval") : usual);
  return static_cast<int>(Exit::done);
}

int run_log(const cli::Arguments& arguments) {
  check_flags(arguments);
  if (arguments.flag("tensors")) return tensors(arguments);
  if (arguments.flag("follow")) return follow(arguments);
  if (arguments.has("plot")) {
    const int status = arguments.has("gate") ? compare(arguments) : static_cast<int>(Exit::done);
    draw(arguments);
    return status;
  }
  if (arguments.flag("compare")) return compare(arguments);
  if (arguments.has("export")) return export_logs(arguments);
  return summarize(arguments);
}

}  // namespace

int main(int argc, char** argv) { return cli::run(argc, argv, command(), run_log); }
