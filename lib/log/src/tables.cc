// CSV and Prometheus text.
#include <algorithm>
#include <cmath>

#include "fp8/base/text.h"
#include "fp8/log/export.h"

namespace fp8::log {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 16U;

// Integers without a fraction, other numbers as the shortest text that parses to the same bits; empty for NaN.
std::string number(double v) {
  constexpr double kExact = 9007199254740992;  // 2^53: below it every integer is a double
  if (!std::isfinite(v)) return "";
  if (v == std::floor(v) && std::abs(v) < kExact) return std::to_string(static_cast<std::int64_t>(v));
  return format_double(v);
}

// A name without control characters; the escaping is reversible.
std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name) out += c == '\\' ? "\\\\" : std::string(1, c);
  return terminal_safe(out);
}

std::string csv_text(const std::string& name) {
  const std::string text = escaped(name);
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

void csv_of(const Run& run, const std::vector<std::string>& metrics, const Sink& sink) {
  std::vector<const Series<double>*> columns;
  for (const std::string& name : metrics) columns.push_back(run.find(name));
  std::string piece;
  std::size_t phase = 0;
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    while (phase + 1 < run.phases.size() && run.phases[phase + 1].first <= i) ++phase;
    piece += csv_text(run.name) + "," + std::to_string(run.steps[i]) + "," +
             (run.tokens[i] < 0 ? "" : std::to_string(run.tokens[i])) + "," + csv_text(run.phases[phase].precision) +
             "," + csv_text(run.phases[phase].recipe);
    for (const Series<double>* column : columns) piece += "," + (column ? number((*column)[i]) : "");
    piece += "\n";
    if (piece.size() < kPiece) continue;
    sink(piece);
    piece.clear();
  }
  sink(piece);
}

// A name that Prometheus accepts: letters, digits and underscores.
std::string prometheus_name(const std::string& metric) {
  std::string name = "fp8_";
  for (const char c : metric) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += plain ? c : '_';
  }
  return name;
}

std::string prometheus_label(const std::string& text) {
  std::string out;
  for (const char c : terminal_safe(text)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

// Appends a gauge with one line per run that has a value.
template <typename Value>
void gauge(const std::string& name, const std::string& help, std::span<const Run> runs, std::string& out, Value value) {
  std::string lines;
  for (const Run& run : runs) {
    const std::string text = number(value(run));
    if (!text.empty()) lines += name + "{run=\"" + prometheus_label(run.name) + "\"} " + text + "\n";
  }
  if (!lines.empty()) out += "# HELP " + name + " " + help + "\n# TYPE " + name + " gauge\n" + lines;
}

}  // namespace

void write_csv(std::span<const Run> runs, const Sink& sink) {
  const std::vector<std::string> metrics = metrics_of(runs);
  std::string heading = "run,step,tokens,precision,recipe";
  for (const std::string& name : metrics) heading += "," + csv_text(name);
  sink(heading + "\n");
  for (const Run& run : runs) csv_of(run, metrics, sink);
}

std::string prometheus(std::span<const Run> runs) {
  std::string out;
  gauge("fp8_step", "Updates completed.", runs, out,
        [](const Run& r) { return r.steps.empty() ? 0 : static_cast<double>(r.steps.back()); });
  gauge("fp8_tokens", "Tokens seen.", runs, out, [](const Run& r) {
    return r.tokens.empty() || r.tokens.back() < 0 ? NAN : static_cast<double>(r.tokens.back());
  });
  gauge("fp8_finished", "Whether the log has an end record.", runs, out,
        [](const Run& r) { return r.finished ? 1.0 : 0.0; });
  for (const std::string& metric : metrics_of(runs)) {
    gauge(prometheus_name(metric), "Field " + prometheus_label(metric) + " of the last step.", runs, out,
          [&](const Run& r) {
            const Series<double>* values = r.find(metric);
            return values == nullptr || values->empty() ? NAN : values->back();
          });
  }
  return out;
}

}  // namespace fp8::log
