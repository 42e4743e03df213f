// A run beside its plan: the records of both, and the operations of a profile by term.
#include "fp8/log/plan.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "fp8/json/records.h"
#include "or_null.h"
#include "statistics.h"

namespace fp8::log {
namespace {

constexpr json::Limits kTraceLimits{.max_depth = 8, .max_bytes = std::size_t{1} << 30U};

// Terms of a plan by the categories of a profile. What ranks wait for each other counts as communication in a profile.
struct TermOfProfile {
  std::string_view name;                   // of the figure
  std::array<std::string_view, 2> terms;   // of the plan, added; the second may be empty
  std::array<std::string_view, 2> events;  // categories of the profile, added
};
constexpr std::array<TermOfProfile, 9> kTerms{
    {{"gemm_forward", {"gemm_forward"}, {"matmul forward"}},
     {"gemm_dgrad", {"gemm_dgrad"}, {"matmul dgrad"}},
     {"gemm_wgrad", {"gemm_wgrad"}, {"matmul wgrad"}},
     {"gemm_other", {"gemm_other"}, {"matmul other"}},
     {"attention", {"attention"}, {"attention"}},
     {"casts", {"casts"}, {"casts"}},
     {"kernels", {"kernels"}, {"element-wise", "cross-entropy"}},
     {"communication and bubble", {"communication", "bubble"}, {"communication"}},
     {"update", {"update"}, {"optimizer"}}}};

std::string text_of(const std::string& precision, const std::string& recipe) {
  return recipe.empty() ? precision : precision + " " + recipe;
}

// The plan of this precision and recipe, of several the last.
json::Object plan_of(const std::string& path, const std::string& precision, const std::string& recipe) {
  json::LineReader lines(path);
  std::optional<json::Object> found;
  std::string others;
  for (std::optional<json::Value> line = lines.next(); line; line = lines.next()) {
    if (!line->is_object() || line->as_object().get_string_or("type", "", path) != "plan")
      throw Error(path + ": not a plan of fp8-plan --json");
    const json::Object& plan = line->as_object();
    const std::string has = plan.get_string("precision", path), of = plan.get_string_or("recipe", "", path);
    if (has == precision && of == recipe)
      found = plan;
    else
      others += (others.empty() ? "" : ", ") + text_of(has, of);
  }
  if (!found && others.empty()) throw Error(path + ": has no plan");
  if (!found) throw Error(path + ": has no plan of " + text_of(precision, recipe) + ", but of " + others);
  return *std::move(found);
}

// The newest run and end records of a log, whose step records read_run() has checked; null without one.
struct Records {
  json::Value run, end;
};
Records records_of(const std::string& path) {
  Records records;
  json::RecordReader reader(path, json::Layout::lines);
  for (std::optional<json::Record> r = reader.next(); r; r = reader.next()) {
    const bool run = r->text.find("\"type\":\"run\"") != std::string::npos;
    if (!run && r->text.find("\"type\":\"end\"") == std::string::npos) continue;
    (run ? records.run : records.end) = json::parse(*r, path);
    if (run) records.end = {};
  }
  return records;
}

// Seconds of a step by category on rank 0, from the newest profile in a folder.
std::map<std::string, double, std::less<>> seconds_of_profile(const std::string& path) {
  std::map<std::string, double, std::less<>> seconds;
  const json::Value trace = json::parse_file(path, kTraceLimits);
  if (!trace.is_object()) throw Error(path + ": not a profile");
  double steps = 0;
  for (const json::Value& event : trace.as_object().get_array("traceEvents", path)) {
    if (!event.is_object()) throw Error(path + ": not a profile");
    const json::Object& e = event.as_object();
    if (e.get_string_or("ph", "", path) != "X" || e.get_int_or("pid", 0, path) != 0) continue;
    const std::string& category = e.get_string("cat", path);
    steps += category == "step" ? 1 : 0;
    seconds[category] += 1e-6 * e.get_double("dur", path);
  }
  if (steps == 0) throw Error(path + ": has no step of rank 0");
  for (auto& [category, sum] : seconds) sum /= steps;
  return seconds;
}

std::string newest_profile(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path newest;
  fs::file_time_type time;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    if (!name.starts_with("profile-") || !name.ends_with(".json")) continue;
    const fs::file_time_type own = fs::last_write_time(i->path(), error);
    if (newest.empty() || own > time) newest = i->path(), time = own;
  }
  return newest.string();
}

// The median of a field without the first step of each start, which allocates and plans.
std::optional<double> steady_median(const Run& run, std::string_view metric) {
  const std::span<const double> values = run.find(metric);
  std::vector<double> steady;
  for (std::size_t i = 1; i < values.size(); ++i)
    if (std::ranges::find(run.restarts, run.steps[i]) == run.restarts.end()) steady.push_back(values[i]);
  return quantile(steady, 0.5);
}

PlannedFigure figure_of(std::string name, PlanUnit unit, const json::Value& planned, const std::string& path) {
  PlannedFigure f{std::move(name), unit};
  if (planned.is_number()) {
    f.low = f.high = planned.as_double();
    return f;
  }
  if (!planned.is_array() || planned.as_array().size() != 2 || !planned.as_array()[0].is_number() ||
      !planned.as_array()[1].is_number())
    throw Error(path + ": " + f.name + ": not an interval");
  f.low = planned.as_array()[0].as_double(), f.high = planned.as_array()[1].as_double();
  return f;
}

void add_times(const Run& run, const json::Object& plan, const std::string& path, PlanComparison& c) {
  for (const auto& [name, unit] : {std::pair("step_s", PlanUnit::seconds), {"tokens_per_s", PlanUnit::tokens_per_s}}) {
    const json::Value* planned = plan.find(name);
    if (planned == nullptr || planned->is_null()) continue;
    c.figures.push_back(figure_of(name, unit, *planned, path));
    c.figures.back().measured = steady_median(run, name);
  }
}

void add_terms(const json::Object& plan, const std::string& path, PlanComparison& c) {
  if (!plan.contains("terms_s")) return;
  const json::Object& terms = plan.get_object("terms_s", path);
  const auto measured =
      c.profile.empty() ? std::map<std::string, double, std::less<>>() : seconds_of_profile(c.profile);
  for (const TermOfProfile& t : kTerms) {
    PlannedFigure sum{"terms_s." + std::string(t.name), PlanUnit::seconds};
    for (const std::string_view term : t.terms) {
      if (term.empty() || !terms.contains(term)) continue;
      const PlannedFigure one = figure_of(sum.name, sum.unit, terms.at(term), path);
      sum.low += one.low, sum.high += one.high;
    }
    double seconds = 0;
    for (const std::string_view event : t.events)
      if (const auto found = measured.find(event); found != measured.end()) seconds += found->second;
    if (!measured.empty()) sum.measured = seconds;
    if (sum.high > 0 || seconds > 0) c.figures.push_back(std::move(sum));
  }
}

void add_memory(const Run& run, const json::Object& plan, const json::Value& end, const std::string& path,
                PlanComparison& c) {
  const json::Value* const used = end.is_object() ? end.as_object().find("memory_used") : nullptr;
  for (const auto& [category, bytes] : plan.get_object("memory_bytes", path)) {
    PlannedFigure f = figure_of("memory_bytes." + category, PlanUnit::bytes, bytes, path);
    if (category == "total") {
      f.measured = greatest(run.find("memory_peak_bytes"));
    } else if (used != nullptr && used->is_object()) {
      const json::Value* const own = used->as_object().find(category);
      if (own != nullptr && own->is_number()) f.measured = own->as_double();
    }
    c.figures.push_back(std::move(f));
  }
}

// Settings that decide time and memory, by their names in both records.
void add_differences(const json::Object& plan, const json::Value& run, const std::string& path, PlanComparison& c) {
  if (!run.is_object()) return;
  const auto differs = [&](const std::string& name, const json::Value* planned, const json::Value* own) {
    if (planned == nullptr || own == nullptr || own->is_null() || *planned == *own) return;
    c.differences.push_back(name + ": " + json::dump(*planned) + " in the plan, " + json::dump(*own) + " in the run");
  };
  differs("mesh", plan.find("mesh"), run.as_object().find("mesh"));
  if (!run.as_object().contains("config")) return;
  const json::Object& config = run.as_object().get_object("config", path);
  for (const auto& [name, flag] : {std::pair("batch_size", "batch-size"),
                                   {"seq_length", "seq-length"},
                                   {"grad_accumulation", "grad-accumulation"}})
    differs(flag, plan.find(name), config.find(flag));
}

const char* unit_text(PlanUnit unit) {
  return unit == PlanUnit::seconds ? "s" : unit == PlanUnit::bytes ? "bytes" : "tokens/s";
}

}  // namespace

std::vector<std::string> plan_metrics() { return {"step_s", "tokens_per_s", "data_wait_s", "memory_peak_bytes"}; }

PlanComparison compare_with_plan(const Run& run, const std::string& path) {
  if (run.steps.empty()) throw Error(run.path + ": has no steps");
  const Phase phase = run.phases.empty() ? Phase{} : run.phases.back();
  PlanComparison c;
  c.path = run.path, c.precision = phase.precision, c.recipe = phase.precision == "fp8" ? phase.recipe : "";
  const json::Object plan = plan_of(path, c.precision, c.recipe);
  c.machine = plan.get_string_or("machine", "", path);
  const std::string log = log_file(run.path);
  if (log != run.path) c.profile = newest_profile(run.path);
  const Records records = log == "-" ? Records{} : records_of(log);
  add_times(run, plan, path, c);
  add_terms(plan, path, c);
  add_memory(run, plan, records.end, path, c);
  add_differences(plan, records.run, log, c);
  const std::optional<double> waits = mean(run.find("data_wait_s")), steps = mean(run.find("step_s"));
  if (waits && steps && *steps > 0) c.data_wait_share = *waits / *steps;
  return c;
}

json::Value record(const PlanComparison& c) {
  json::Array figures, differences;
  for (const PlannedFigure& f : c.figures)
    figures.push_back(json::object({{"name", f.name},
                                    {"unit", unit_text(f.unit)},
                                    {"planned", json::Array{f.low, f.high}},
                                    {"measured", or_null(f.measured)},
                                    {"inside", or_null(f.inside())}}));
  for (const std::string& d : c.differences) differences.emplace_back(d);
  return json::object({{"type", "plan_comparison"},
                       {"path", c.path},
                       {"precision", c.precision},
                       {"recipe", text_or_null(c.recipe)},
                       {"machine", text_or_null(c.machine)},
                       {"profile", text_or_null(c.profile)},
                       {"data_wait_share", or_null(c.data_wait_share)},
                       {"differences", std::move(differences)},
                       {"figures", std::move(figures)}});
}

}  // namespace fp8::log
