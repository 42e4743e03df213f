// Comparison of sides.
#include "sides.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/log/compare.h"
#include "fp8/log/picture.h"
#include "fp8/log/summary.h"
#include "fp8/log/sweep_folder.h"
#include "inputs.h"
#include "report.h"

namespace fp8::report {
namespace {

// The sides of a comparison.
struct Sides {
  std::vector<log::Run> runs;
  std::vector<log::Side> sides;
};

// Reads the runs of the folder of a sweep, without those that have no steps yet.
Sides read_sweep(const cli::Arguments& arguments, const std::string& folder, std::vector<std::string> metrics) {
  const std::string by = arguments.has("by") ? arguments.text("by") : std::string(log::kBySide);
  const log::SweptSides swept = log::sides_of_sweep(folder, by);
  const auto note = [&](const std::string& path, const std::string& why) {
    if (!arguments.flag("quiet")) cli::print_note("fp8-log", path + ": " + why + ", so it is left out");
  };
  for (const std::string& path : swept.left_out) note(path, "has no " + by);
  std::vector<std::string> paths;
  for (const log::SweptSide& side : swept.sides) paths.insert(paths.end(), side.paths.begin(), side.paths.end());
  std::vector<log::Run> runs = read_all(arguments, paths, wanted(arguments, false, std::move(metrics)));
  Sides all;
  std::vector<std::size_t> counts;
  std::size_t next = 0;
  for (const log::SweptSide& side : swept.sides) {
    counts.push_back(0);
    for (const std::string& key : side.keys) {
      log::Run& run = runs[next++];
      run.key = key;
      if (run.steps.empty()) {
        note(run.path, "has no steps");
        continue;
      }
      all.runs.push_back(std::move(run));
      ++counts.back();
    }
  }
  std::size_t first = 0;
  for (std::size_t k = 0; k < counts.size(); first += counts[k++])
    if (counts[k] > 0) all.sides.push_back({swept.sides[k].name, std::span(all.runs).subspan(first, counts[k])});
  if (all.sides.size() < 2) throw Error(folder + ": fewer than two sides have steps to compare");
  return all;
}

// Reads the runs of all sides.
Sides read_sides(const cli::Arguments& arguments, std::vector<std::string> metrics) {
  const std::vector<std::string> given = arguments.positionals("runs");
  if (given.size() == 1 && log::is_sweep_folder(given.front()))
    return read_sweep(arguments, given.front(), std::move(metrics));
  if (arguments.has("by")) throw Error("--by: needs the folder of a sweep");
  if (given.size() < 2) {
    throw Error("--compare: needs two runs or more, two lists of runs with commas, or the folder of a sweep, found " +
                std::to_string(given.size()));
  }
  std::vector<std::string> paths;
  std::vector<std::size_t> counts;
  for (const std::string& side : given) {
    const std::vector<std::string> runs = runs_of_list("compare", side);
    paths.insert(paths.end(), runs.begin(), runs.end());
    counts.push_back(runs.size());
  }
  if (std::count(paths.begin(), paths.end(), "-") > 1) throw Error("-: standard input can be read only once");
  Sides all{read_all(arguments, paths, wanted(arguments, false, std::move(metrics))), {}};
  std::vector<std::vector<std::string>> names;
  std::size_t first = 0;
  for (const std::size_t count : counts) {
    all.sides.push_back({"", std::span(all.runs).subspan(first, count)});
    std::vector<std::string>& of_side = names.emplace_back();
    for (const log::Run& run : all.sides.back().runs) of_side.push_back(run.name);
    first += count;
  }
  const std::vector<std::string> unique = log::side_names(names);
  for (std::size_t k = 0; k < unique.size(); ++k) all.sides[k].name = unique[k];
  return all;
}

// The names in --allow. Throws Error when one is no setting that a gate checks.
std::vector<std::string> allowed(const cli::Arguments& arguments, std::span<const log::PairedComparison> comparisons) {
  if (!arguments.has("allow")) return {};
  std::vector<std::string> names = parts_of(arguments.text("allow"));
  for (const std::string& name : names) {
    const bool differs = std::ranges::any_of(comparisons, [&](const log::PairedComparison& c) {
      return std::ranges::find(c.differences, name, &log::Difference::name) != c.differences.end();
    });
    const auto& known = log::kCheckedSettings;
    if (name == "all" || differs || std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string list = "all";
    for (const std::string_view k : known) list += ", " + std::string(k);
    throw Error("--allow: \"" + excerpt(name) + "\" is not one of " + list);
  }
  return names;
}

// Throws Error when the runs differ in a setting that the gate checks and --allow does not name.
void check_settings(std::span<const log::PairedComparison> comparisons, const cli::Arguments& arguments) {
  std::vector<log::Difference> refused;
  const std::vector<std::string> names_allowed = allowed(arguments, comparisons);
  for (const log::PairedComparison& c : comparisons) {
    for (log::Difference& d : log::refused(c, names_allowed))
      if (std::ranges::find(refused, d) == refused.end()) refused.push_back(std::move(d));
  }
  if (refused.empty() || !arguments.has("gate")) return;
  std::string text, names;
  for (const log::Difference& d : refused) {
    text += (text.empty() ? "" : ", ") + d.name + " (" + d.a + ", " + d.b + ")";
    if (("," + names + ",").find("," + d.name + ",") == std::string::npos) names += (names.empty() ? "" : ",") + d.name;
  }
  throw Error("--gate: the runs differ in " + text + "; --allow " + names + " compares them nevertheless");
}

std::optional<double> gate_of(const cli::Arguments& arguments) {
  return arguments.has("gate") ? std::optional<double>(arguments.real("gate")) : std::nullopt;
}

// The comparisons of all sides with the first.
std::vector<log::PairedComparison> comparisons_of(std::span<const log::Side> sides) {
  std::vector<log::PairedComparison> all;
  for (const log::Side& side : sides.subspan(1)) all.push_back(log::compare(sides.front().runs, side.runs));
  return all;
}

}  // namespace

int compare(const cli::Arguments& arguments) {
  const Sides all = read_sides(arguments, log::summary_metrics());
  const std::vector<log::PairedComparison> comparisons = comparisons_of(all.sides);
  const std::optional<double> gate = gate_of(arguments);
  check_settings(comparisons, arguments);
  cli::Output out;
  if (arguments.flag("json")) {
    for (std::size_t k = 0; k < comparisons.size(); ++k) {
      json::Value record = log::record(comparisons[k], gate);
      record.as_object().set("side_a", all.sides.front().name);
      record.as_object().set("side_b", all.sides[k + 1].name);
      out.json(record);
    }
  } else if (comparisons.size() == 1) {
    out.text(report::comparison(comparisons.front(), all.sides, gate, page_of_stdout()));
  } else {
    out.text(report::comparisons(all.sides, comparisons, gate, page_of_stdout()));
  }
  const bool met = std::ranges::all_of(comparisons, [&](const log::PairedComparison& c) {
    return !gate || log::verdict(c, *gate) == log::Verdict::met;
  });
  return static_cast<int>(met ? Exit::done : Exit::no);
}

void write_image(const cli::Arguments& arguments,
                 const std::function<void(plot::Image image, const std::string& path)>& draw) {
  const std::string output = arguments.text("output");
  AtomicFile file(output, arguments.flag("force"));
  draw(plot::image_of(output), file.path());
  file.commit();
}

void draw_comparison(const cli::Arguments& arguments) {
  const std::string metric = arguments.text("plot");
  const bool gaps = metric == log::kGaps;
  Sides all = read_sides(arguments, gaps ? log::summary_metrics() : std::vector<std::string>{metric});
  if (gaps) {
    const plot::GapChart chart = log::gap_chart(all.sides, comparisons_of(all.sides), gate_of(arguments));
    return write_image(arguments,
                       [&](plot::Image image, const std::string& path) { plot::gnuplot_gaps(chart, image, path); });
  }
  log::check_metric(all.runs, metric);
  cut_runs(arguments, all.runs);
  draw_picture(arguments, log::comparison_picture(all.sides, metric, gate_of(arguments)));
}

namespace {

// --ylim LOW:HIGH. Throws Error unless the limits are numbers and the lower one is below.
plot::Limits y_limits(const cli::Arguments& arguments) {
  if (!arguments.has("ylim")) return {};
  const std::string text = arguments.text("ylim");
  const std::size_t colon = text.find(':');
  const auto number = [&](const std::string& part) {
    const std::optional<double> value = parse_double(part);
    if (!value && !part.empty()) throw Error("--ylim: \"" + excerpt(part) + "\" is no number");
    return value;
  };
  if (colon == std::string::npos) throw Error("--ylim: expected LOW:HIGH, LOW: or :HIGH");
  const plot::Limits limits{number(text.substr(0, colon)), number(text.substr(colon + 1))};
  if (limits.low && limits.high && *limits.low >= *limits.high) throw Error("--ylim: LOW must be less than HIGH");
  const bool positive = limits.low.value_or(1) > 0 && limits.high.value_or(1) > 0;
  if (arguments.flag("log") && !positive) throw Error("--ylim: must be positive with --log");
  return limits;
}

}  // namespace

void draw_picture(const cli::Arguments& arguments, plot::Picture picture) {
  constexpr int kRows = 20;
  picture.limits = y_limits(arguments);
  picture.logarithmic = arguments.flag("log");
  if (arguments.has("output")) {
    write_image(arguments,
                [&](plot::Image image, const std::string& path) { plot::gnuplot_plot(picture, image, path); });
  } else {
    cli::Output().text(plot::terminal_plot(picture, cli::terminal_columns(), kRows, cli::Style::for_stdout().on));
  }
}

}  // namespace fp8::report
