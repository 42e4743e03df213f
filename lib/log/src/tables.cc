// CSV and Prometheus text.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "csv.h"
#include "export_piece.h"
#include "fp8/base/text.h"
#include "fp8/log/export.h"

namespace fp8::log {
namespace {

// A name without control characters; the escaping is reversible.
std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name) out += c == '\\' ? "\\\\" : std::string(1, c);
  return terminal_safe(out);
}

}  // namespace

std::string csv_number(double v) {
  constexpr double kExact = 9007199254740992;  // 2^53: below it every integer is a double
  if (!std::isfinite(v)) return "";
  if (v == std::floor(v) && std::abs(v) < kExact) return std::to_string(static_cast<std::int64_t>(v));
  return format_double(v);
}

std::string csv_text(const std::string& name) {
  std::string text = escaped(name);
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

namespace {

// The columns behind the precision.
struct CsvColumns {
  std::vector<std::string> metrics{};
  bool evaluations = false;
  std::vector<std::string> settings{};  // those that differ between runs
};

// Writes the lines of a run, with its evaluations in the lines of their steps.
class CsvOfRun {
 public:
  CsvOfRun(const Run& run, const CsvColumns& all, const Sink& sink) : run_(run), all_(all), sink_(sink) {
    for (const std::string& name : all.metrics) values_.push_back(run.find(name));
  }

  void write() {
    auto evaluation = run_.evaluations.begin();
    for (std::size_t i = 0; i < run_.steps.size(); ++i) {
      for (; evaluation != run_.evaluations.end() && evaluation->first < run_.steps[i]; ++evaluation)
        line(evaluation->first, i, false, evaluation->second.loss);
      double loss = NAN;
      for (; evaluation != run_.evaluations.end() && evaluation->first == run_.steps[i]; ++evaluation)
        loss = evaluation->second.loss;
      line(run_.steps[i], i, true, loss);
    }
    for (; evaluation != run_.evaluations.end(); ++evaluation)
      line(evaluation->first, run_.steps.size(), false, evaluation->second.loss);
    sink_(piece_);
  }

 private:
  // The line of step `i`, or of an evaluation without a step record before step `i`.
  void line(std::int64_t step, std::size_t i, bool has_step, double eval_loss) {
    while (phase_ + 1 < run_.phases.size() && run_.phases[phase_ + 1].first <= i) ++phase_;
    while (setting_ + 1 < run_.settings.size() && run_.settings[setting_ + 1].step <= step) ++setting_;
    const Phase phase = run_.phases.empty() ? Phase{} : run_.phases[phase_];
    piece_ += csv_text(run_.name) + "," + std::to_string(step) + "," +
              (!has_step || run_.tokens[i] < 0 ? "" : std::to_string(run_.tokens[i])) + "," +
              csv_text(phase.precision) + "," + csv_text(phase.recipe);
    for (const std::span<const double> column : values_)
      piece_ += "," + (!has_step || column.empty() ? "" : csv_number(column[i]));
    if (all_.evaluations) piece_ += "," + csv_number(eval_loss);
    for (const std::string& name : all_.settings)
      piece_ += "," + (run_.settings.empty() ? "" : csv_text(setting_field(run_.settings[setting_], name)));
    piece_ += "\n";
    if (piece_.size() < kExportPiece) return;
    sink_(piece_);
    piece_.clear();
  }

  const Run& run_;
  const CsvColumns& all_;
  const Sink& sink_;
  std::vector<std::span<const double>> values_;
  std::string piece_;
  std::size_t phase_ = 0, setting_ = 0;
};

// A metric as Prometheus has it: in base units, with a name of letters, digits and underscores.
struct Exported {
  std::string name;
  double factor = 1;  // from the unit of the log
};

Exported exported(const std::string& metric) {
  struct Unit {
    std::string_view suffix, replacement;
    double factor;
  };
  constexpr std::array<Unit, 5> kUnits = {{{"_per_s", "_per_second", 1},
                                           {"_s", "_seconds", 1},
                                           {"_share", "_ratio", 1},
                                           {"_share_total", "_total_ratio", 1},
                                           {"_tflops", "_flops_per_second", 1e12}}};
  Exported e;
  if (!metric.starts_with("fp8_")) e.name = "fp8_";
  for (const char c : metric) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    e.name += plain ? c : '_';
  }
  if (metric == "time") return {"fp8_time_seconds"};
  for (const Unit& unit : kUnits) {
    if (!e.name.ends_with(unit.suffix)) continue;
    e.name.replace(e.name.size() - unit.suffix.size(), unit.suffix.size(), unit.replacement);
    e.factor = unit.factor;
    break;
  }
  return e;
}

std::string prometheus_label(const std::string& text) {
  std::string out;
  for (const char c : terminal_safe(text)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

// Gauges, each with one line per run that has a value.
class Gauges {
 public:
  explicit Gauges(std::span<const Run> runs) : runs_(runs) {}

  // Adds a gauge. Another one of the same name gets a number.
  template <typename Value>
  void add(std::string name, const std::string& help, Value value) {
    std::string lines;
    const std::string base = name;
    for (int n = 2; names_.contains(name); ++n) name = base + "_" + std::to_string(n);
    for (const Run& run : runs_) {
      const std::string text = csv_number(value(run));
      if (!text.empty()) lines += name + "{run=\"" + prometheus_label(run.name) + "\"} " + text + "\n";
    }
    if (lines.empty()) return;
    names_.insert(name);
    text_ += "# HELP " + name + " " + help + "\n# TYPE " + name + " gauge\n" + lines;
  }

  std::string text() const { return text_ + "# EOF\n"; }

 private:
  std::span<const Run> runs_;
  std::set<std::string> names_;
  std::string text_;
};

}  // namespace

void write_csv(std::span<const Run> runs, const Sink& sink) {
  CsvColumns all{.metrics = metrics_of(runs), .evaluations = false, .settings = {}};
  all.evaluations = std::ranges::any_of(runs, [](const Run& run) { return !run.evaluations.empty(); });
  if (runs.size() > 1) all.settings = differing_settings(runs);
  std::string heading = "run,step,tokens,precision,recipe";
  for (const std::string& name : all.metrics) heading += "," + csv_text(name);
  if (all.evaluations) heading += ",eval_loss";
  for (const std::string& name : all.settings) heading += "," + csv_text("setting:" + name);
  sink(heading + "\n");
  for (const Run& run : runs) CsvOfRun(run, all, sink).write();
}

std::string prometheus(std::span<const Run> runs) {
  Gauges gauges(runs);
  gauges.add("fp8_step", "Updates completed.",
             [](const Run& r) { return r.steps.empty() ? 0 : static_cast<double>(r.steps.back()); });
  gauges.add("fp8_tokens", "Tokens seen.", [](const Run& r) {
    return r.tokens.empty() || r.tokens.back() < 0 ? NAN : static_cast<double>(r.tokens.back());
  });
  gauges.add("fp8_finished", "Whether the log has an end record.", [](const Run& r) { return r.finished ? 1.0 : 0.0; });
  gauges.add("fp8_eval_loss", "Loss of the last evaluation in nats.",
             [](const Run& r) { return r.evaluations.empty() ? NAN : r.evaluations.rbegin()->second.loss; });
  gauges.add("fp8_eval_step", "Step of the last evaluation.", [](const Run& r) {
    return r.evaluations.empty() ? NAN : static_cast<double>(r.evaluations.rbegin()->first);
  });
  for (const std::string& metric : metrics_of(runs)) {
    const Exported to = exported(metric);
    gauges.add(to.name, "Field " + prometheus_label(metric) + " of the last step.", [&](const Run& r) {
      const std::span<const double> values = r.find(metric);
      return values.empty() ? NAN : to.factor * values.back();
    });
  }
  return gauges.text();
}

}  // namespace fp8::log
