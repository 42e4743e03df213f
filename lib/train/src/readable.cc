// Lines for records.
#include "fp8/train/readable.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::train {
namespace {

double number(const json::Object& record, const char* key) { return record.get_double_or(key, NAN, "record"); }

std::string shown(double value, int digits) { return std::isfinite(value) ? format_short(value, digits) : "-"; }

std::string step_line(const json::Object& r) {
  std::string text = "step " + std::to_string(r.get_int("step", "record")) + "  loss " + shown(number(r, "loss"), 5);
  const json::Value* masked = r.find("masked");
  if (masked != nullptr) return text + "  no targets";
  text += "  grad norm " + shown(number(r, "grad_norm"), 3) + "  lr " + shown(number(r, "lr"), 3) + "  " +
          human_count(static_cast<std::uint64_t>(std::max(0.0, number(r, "tokens_per_s")))) + " tokens/s";
  if (number(r, "fp8_flop_share") > 0) text += "  FP8 " + shown(100 * number(r, "fp8_flop_share"), 3) + " %";
  return text + (r.at("skipped").as_bool() ? "  skipped" : "");
}

bool is_emulated(const json::Object& r) {
  const json::Value* emulated = r.find("emulated");
  return emulated != nullptr && emulated->is_bool() && emulated->as_bool();
}

std::string eval_line(const json::Object& r) {
  const bool in_run = r.contains("step");
  const std::string at = in_run ? " after step " + std::to_string(r.get_int("step", "record")) : "";
  return "evaluation" + at + "  loss " + shown(number(r, "loss"), 5) + "  perplexity " +
         shown(number(r, "perplexity"), 5) + "  " +
         human_count(static_cast<std::uint64_t>(r.get_int("tokens", "record"))) + " tokens" +
         (!in_run && is_emulated(r) ? "  FP8 emulated" : "");
}

std::string sequence_line(const json::Object& r) {
  double sum = 0;
  const json::Array& losses = r.get_array("losses", "record");
  for (const json::Value& loss : losses) sum += loss.as_double();
  return "sequence " + std::to_string(r.get_int("index", "record")) + "  mean loss " +
         shown(losses.empty() ? NAN : sum / static_cast<double>(losses.size()), 5);
}

std::string sample_line(const json::Object& r) {
  return "sample after step " + std::to_string(r.get_int("step", "record")) + "  " +
         terminal_safe(json::dump(r.get_string("prompt", "record"))) + " goes on " +
         terminal_safe(json::dump(r.get_string("text", "record")));
}

// What computed an evaluation: its recipe, else its precision.
std::string computed_in(const json::Object& record) {
  const json::Value& recipe = record.at("recipe");
  return recipe.is_string() ? recipe.as_string() : record.get_string("precision", "record");
}

}  // namespace

std::vector<std::vector<std::string>> evaluation_table(const std::vector<json::Value>& records) {
  std::vector<std::vector<std::string>> rows;
  for (const json::Value& record : records) {
    const json::Object& r = record.as_object();
    const json::Object& first = records.front().as_object();
    if (rows.empty()) rows.push_back({"recipe", "loss", "from " + computed_in(first), "perplexity"});
    const double difference = number(r, "loss") - number(first, "loss");
    rows.push_back({computed_in(r), shown(number(r, "loss"), 6),
                    rows.size() == 1 ? "" : (difference > 0 ? "+" : "") + shown(difference, 3),
                    shown(number(r, "perplexity"), 6)});
  }
  return rows;
}

std::string readable(const json::Value& record) {
  const json::Object& r = record.as_object();
  const std::string type = r.get_string("type", "record");
  if (type == "step") return step_line(r);
  if (type == "eval") return eval_line(r);
  if (type == "sequence") return sequence_line(r);
  if (type == "sample") return sample_line(r);
  if (type == "checkpoint")
    return "saved " + r.get_string("path", "record") + "  " + human_seconds(number(r, "seconds"));
  return "";
}

}  // namespace fp8::train
