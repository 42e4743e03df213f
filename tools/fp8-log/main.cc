// fp8-log: summarizes, compares, plots and exports the logs of runs. See fp8-log(1).
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/log/export.h"
#include "fp8/log/overview.h"
#include "fp8/log/picture.h"
#include "fp8/log/plan.h"
#include "inputs.h"
#include "live.h"
#include "planned.h"
#include "report.h"
#include "sides.h"
#include "tensors.h"

namespace {

using namespace fp8;
using report::check_elsewhere;
using report::files_of;
using report::paths_of;
using report::read_all;
using report::wanted;

constexpr std::size_t kPlotColumns = 120;  // columns of a heatmap
constexpr std::int64_t kTopTensors = 10;   // rows of a table of tensors

// Fields of step records and, with eval_loss, what else can be plotted; completions offer them.
std::vector<std::string> metrics() {
  return {"loss",
          "eval_loss",
          "grad_norm",
          "lr",
          "step_s",
          "tokens_per_s",
          "data_wait_s",
          "model_tflops",
          "fp8_flop_share",
          "saturated_share",
          "underflow_share",
          "memory_peak_bytes",
          "sent_bytes",
          "aux_loss",
          "z_loss",
          "expert_load_max",
          "expert_idle",
          "expert_passes",
          "update_rms_linear",
          "update_rms_embedding",
          "gaps"};
}

std::vector<cli::Flag> plot_flags() {
  return {{.name = "plot",
           .kind = cli::FlagKind::text,
           .metavar = "METRIC",
           .help = "plot a field of the step records, or eval_loss; with --compare also gaps",
           .suggestions = metrics()},
          {.name = "ylim",
           .kind = cli::FlagKind::text,
           .metavar = "LOW:HIGH",
           .help = "with --plot: limits of the y axis; one of them may be missing, as in 2: or :4"},
          {.name = "log", .help = "with --plot: logarithmic y axis"},
          {.name = "from",
           .kind = cli::FlagKind::integer,
           .metavar = "STEP",
           .help = "with --plot: the first step that is drawn",
           .min = 0},
          {.name = "to",
           .kind = cli::FlagKind::integer,
           .metavar = "STEP",
           .help = "with --plot: the last step that is drawn",
           .min = 0}};
}

std::vector<cli::Flag> compare_flags() {
  return {{.name = "compare",
           .help = "compare every side with the first at the same number of tokens; a side is a run, or several runs "
                   "A1,A2,..., which are paired by seed; or compare the sides of a sweep in its folder"},
          {.name = "by",
           .kind = cli::FlagKind::text,
           .metavar = "NAME",
           .help = "with --compare and the folder of a sweep: the setting whose values are the sides [side]"},
          {.name = "gate",
           .kind = cli::FlagKind::real,
           .metavar = "NATS",
           .help = "with --compare: exit with status 1 unless the loss gap is within +-NATS, or 2 if settings differ",
           .min = 0},
          {.name = "allow",
           .kind = cli::FlagKind::text,
           .metavar = "NAME,...",
           .help = "with --gate: settings that may differ, such as lr,steps; all allows every setting"}};
}

cli::Flag top_flag() {
  return {.name = "top",
          .kind = cli::FlagKind::integer,
          .metavar = "N",
          .help = "with --tensors: rows of each table [10]; 0: all",
          .min = 0};
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
      {.name = "baseline",
       .kind = cli::FlagKind::path,
       .metavar = "RUN",
       .help = "run with whose loss those of the others are compared, in a table with one row per run; of several, "
               "B1,B2,..., the one with the same seed"},
      {.name = "sort",
       .kind = cli::FlagKind::text,
       .metavar = "NAME",
       .help = "sort the table by eval, loss, gap, tokens_per_s, a setting that differs, ...; -NAME: in decreasing "
               "order [eval if there are evaluations]"},
      {.name = "plan",
       .kind = cli::FlagKind::path,
       .metavar = "PLAN.json",
       .help = "show a run beside its plan, the output of fp8-plan --json: each figure, and whether it is inside"},
      {.name = "export",
       .kind = cli::FlagKind::choice,
       .metavar = "FORMAT",
       .help = "convert the logs to another format",
       .choices = {"csv", "tensorboard", "prometheus", "trace"}},
      {.name = "tensors",
       .help =
           "show the worst FP8 operands and products, and loads of experts, in tensors.jsonl of a run, or in records "
           "of fp8-inspect, also routes; also with --export csv, --plot METRIC, exponents, expert_load or differ"},
      top_flag(),
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
  const std::vector<cli::Flag> comparisons = compare_flags(), plots = plot_flags();
  c.flags.insert(c.flags.begin(), comparisons.begin(), comparisons.end());
  const auto exports = std::ranges::find(c.flags, "export", &cli::Flag::name);
  c.flags.insert(exports, plots.begin(), plots.end());
  return c;
}

// Rejects flags that exclude each other.
void check_flags(const cli::Arguments& arguments) {
  const bool compare = arguments.flag("compare"), plot = arguments.has("plot"), exports = arguments.has("export");
  const auto refuse = [](const std::string& flag, const std::string& reason) {
    throw Error("--" + flag + ": " + reason);
  };
  for (const char* other : {"compare", "plot", "export", "tensors", "follow", "baseline", "sort"})
    if (arguments.has("plan") && arguments.has(other)) refuse("plan", std::string("not together with --") + other);
  if (exports && (compare || plot)) refuse("export", std::string("not together with --") + (plot ? "plot" : "compare"));
  for (const char* other : {"compare", "plot", "export", "json"}) {
    if (arguments.flag("follow") && arguments.has(other)) refuse("follow", std::string("not together with --") + other);
  }
  if (arguments.has("interval") && !arguments.flag("follow")) refuse("interval", "only with --follow");
  for (const char* flag : {"gate", "by"})
    if (arguments.has(flag) && !compare) refuse(flag, "only with --compare");
  for (const char* flag : {"baseline", "sort"}) {
    if (arguments.has(flag) && (compare || plot || exports || arguments.flag("follow"))) {
      refuse(flag, "not together with --compare, --plot, --export or --follow");
    }
  }
  if (arguments.flag("tensors")) {
    for (const char* other : {"compare", "follow", "baseline", "sort"})
      if (arguments.has(other)) refuse("tensors", std::string("not together with --") + other);
    if (exports && arguments.text("export") != "csv") refuse("tensors", "exports only csv");
    if (arguments.has("top") && (plot || exports || arguments.flag("json")))
      refuse("top", "not together with --plot, --export or --json");
  } else if (arguments.has("top")) {
    refuse("top", "only with --tensors");
  }
  if (plot && arguments.text("plot") == log::kGaps) {
    if (!compare) refuse("plot", "gaps: only with --compare");
    if (!arguments.has("output")) refuse("plot", "gaps: needs --output FILE, .svg or .png");
  }
  for (const char* flag : {"ylim", "log", "from", "to"}) {
    if (!arguments.has(flag)) continue;
    if (!plot) refuse(flag, "only with --plot");
    if (arguments.flag("tensors") || arguments.text("plot") == log::kGaps)
      refuse(flag, "not for a heatmap, nor for gaps");
  }
  if (arguments.has("from") && arguments.has("to") && arguments.integer("from") > arguments.integer("to"))
    refuse("from", "greater than --to");
  if (arguments.has("allow") && !compare) refuse("allow", "only with --compare");
  if (arguments.has("output") && !plot && !exports) refuse("output", "only with --plot or --export");
  if (arguments.flag("json") && (plot || exports)) refuse("json", "not together with --plot or --export");
}

// Two runs or fewer are shown side by side, more as one row each.
int summarize(const cli::Arguments& arguments) {
  constexpr std::size_t kMostSideBySide = 2;
  const std::vector<std::string> paths = paths_of(arguments), names = log::run_names(paths);
  const log::Wanted kept = wanted(arguments, false, log::summary_metrics());
  std::vector<log::Run> baselines;
  if (arguments.has("baseline"))
    baselines = read_all(arguments, report::runs_of_list("baseline", arguments.text("baseline")), kept);
  log::OverviewBuilder builder;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    builder.add(log::read_run(paths[i], kept), names[i], baselines);
  }
  log::Overview all = builder.finish();
  const bool json = arguments.flag("json");
  if (arguments.has("sort")) {
    log::sort_rows(all, arguments.text("sort"));
  } else if (!json && paths.size() > kMostSideBySide && log::any_evaluated(all)) {
    log::sort_rows(all, "eval");
  }
  cli::Output out;
  if (json) {
    for (const log::OverviewRow& row : all.rows) out.json(log::record(all, row));
  } else if (paths.size() > kMostSideBySide || !baselines.empty() || arguments.has("sort")) {
    out.text(report::overview(all, report::page_of_stdout()));
  } else {
    std::vector<log::Summary> summaries;
    for (const log::OverviewRow& row : all.rows) summaries.push_back(row.summary);
    out.text(report::summaries(summaries, report::page_of_stdout()));
  }
  return static_cast<int>(Exit::done);
}

void draw(const cli::Arguments& arguments) {
  const std::string metric = arguments.text("plot");
  if (arguments.has("output")) {
    (void)plot::image_of(arguments.text("output"));
    check_output(arguments.text("output"), arguments.flag("force"), {});
  }
  if (arguments.flag("compare")) return report::draw_comparison(arguments);
  std::vector<log::Run> runs = read_all(arguments, paths_of(arguments), wanted(arguments, false, {metric}));
  log::check_metric(runs, metric);
  report::cut_runs(arguments, runs);
  report::draw_picture(arguments, log::picture(runs, metric));
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

// The most rows of a table of tensors.
std::size_t top_of(const cli::Arguments& arguments) {
  const std::int64_t top = arguments.has("top") ? arguments.integer("top") : kTopTensors;
  return top == 0 ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(top);
}

// Draws the statistics of one run: in the terminal unless there is an output.
void draw_tensors(const cli::Arguments& arguments, const log::TensorRun& run) {
  const std::string what = arguments.text("plot");
  const bool exponents = what == log::kExponents, colour = cli::Style::for_stdout().on;
  if (exponents) {
    const plot::ExponentChart chart = log::exponent_chart(run);
    if (!arguments.has("output")) return cli::Output().text(plot::terminal_exponents(chart, cli::terminal_columns()));
    return report::write_image(
        arguments, [&](plot::Image image, const std::string& path) { plot::gnuplot_exponents(chart, image, path); });
  }
  const bool drawn = arguments.has("output");
  const auto columns = drawn ? kPlotColumns : static_cast<std::size_t>(cli::terminal_columns()) / 2;
  const plot::Heatmap map = what == log::kExpertLoad ? log::expert_heatmap(run, columns)
                            : what == log::kDiffer   ? log::route_heatmap(run)
                                                     : log::heatmap(run, log::tensor_metric(what), columns);
  if (!drawn) return cli::Output().text(plot::terminal_heatmap(map, cli::terminal_columns(), colour));
  report::write_image(arguments,
                      [&](plot::Image image, const std::string& path) { plot::gnuplot_heatmap(map, image, path); });
}

// The statistics of one run: tables, records, CSV or a plot.
int show_tensors(const cli::Arguments& arguments) {
  const std::vector<std::string> paths = paths_of(arguments);
  if (paths.size() != 1) throw Error("--tensors: needs one run, found " + std::to_string(paths.size()));
  const bool force = arguments.flag("force");
  const std::string output = arguments.has("output") ? arguments.text("output") : "-";
  const bool plot = arguments.has("plot");
  const auto named = [](const std::string& what) {
    return what == log::kExponents || what == log::kExpertLoad || what == log::kDiffer;
  };
  if (plot && !named(arguments.text("plot"))) (void)log::tensor_metric(arguments.text("plot"));
  if (plot && output != "-") (void)plot::image_of(output);
  check_elsewhere(arguments, paths);
  if (output != "-") check_output(output, force, {});
  const log::TensorRun run = log::read_tensors(paths[0], cli::waiting_note("fp8-log", arguments.flag("quiet")));
  if (plot) {
    draw_tensors(arguments, run);
    const std::string what = arguments.text("plot"), unknown = log::unknown_formats(run);
    if (!unknown.empty() && (what == "sqnr_db" || what == log::kExponents))
      cli::print_note("fp8-log", run.path + ": " + unknown + "; the plot leaves out its casts");
  } else if (arguments.has("export")) {
    write_output(output, force, [&](const log::Sink& sink) { log::write_tensor_csv(run, sink); });
  } else {
    cli::Output out;
    if (!arguments.flag("json")) out.text(report::tensors(run, top_of(arguments), report::page_of_stdout()));
    for (const json::Value& record : arguments.flag("json") ? log::tensor_records(run) : std::vector<json::Value>())
      out.json(record);
  }
  return static_cast<int>(Exit::done);
}

// One run beside its plan.
int show_plan(const cli::Arguments& arguments) {
  const std::vector<std::string> paths = paths_of(arguments);
  if (paths.size() != 1) throw Error("--plan: needs one run, found " + std::to_string(paths.size()));
  const log::Run run = log::read_run(paths[0], wanted(arguments, false, log::plan_metrics()));
  const log::PlanComparison comparison = log::compare_with_plan(run, arguments.text("plan"));
  cli::Output out;
  if (arguments.flag("json"))
    out.json(log::record(comparison));
  else
    out.text(report::planned(comparison, report::page_of_stdout()));
  return static_cast<int>(Exit::done);
}

int follow_run(const cli::Arguments& arguments) {
  const std::vector<std::string> paths = paths_of(arguments);
  if (paths.size() != 1) throw Error("--follow: needs one run, found " + std::to_string(paths.size()));
  const double usual = ::isatty(STDOUT_FILENO) == 1 ? 1 : 10;
  report::follow(paths[0], arguments.has("interval") ? arguments.real("interval") : usual);
  return static_cast<int>(Exit::done);
}

int run_log(const cli::Arguments& arguments) {
  check_flags(arguments);
  if (arguments.has("plan")) return show_plan(arguments);
  if (arguments.flag("tensors")) return show_tensors(arguments);
  if (arguments.flag("follow")) return follow_run(arguments);
  if (arguments.has("plot")) {
    const int status = arguments.has("gate") ? report::compare(arguments) : static_cast<int>(Exit::done);
    draw(arguments);
    return status;
  }
  if (arguments.flag("compare")) return report::compare(arguments);
  if (arguments.has("export")) return export_logs(arguments);
  return summarize(arguments);
}

}  // namespace

int main(int argc, char** argv) { return cli::run(argc, argv, command(), run_log); }
