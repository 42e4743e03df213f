// Sensitivities, groups and recommendations as text.
#include <algorithm>
#include <cmath>

#include "fp8/base/expert_name.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "fp8/statistics/records.h"
#include "shown.h"

namespace fp8::statistics {
namespace {

std::vector<const json::Object*> of_type(const std::vector<json::Value>& records, std::string_view type) {
  std::vector<const json::Object*> found;
  for (const json::Value& v : records)
    if (v.as_object().get_string("type", kWhat) == type) found.push_back(&v.as_object());
  return found;
}

// The names of linears, those of the experts of a layer as one, each with the number of linears.
std::vector<std::pair<std::string, std::int64_t>> kinds_of(const json::Array& linears) {
  std::vector<std::pair<std::string, std::int64_t>> kinds;
  for (const json::Value& v : linears) {
    const std::string name = glob_of_experts(v.as_string());
    const auto known = std::ranges::find(kinds, name, &std::pair<std::string, std::int64_t>::first);
    if (known != kinds.end())
      ++known->second;
    else
      kinds.emplace_back(name, 1);
  }
  return kinds;
}

// "a, b, c": the first whole, of the others what comes after the module that they share with it.
std::string names_of_group(const json::Array& linears) {
  std::string text, parent;
  for (auto [name, count] : kinds_of(linears)) {
    if (name.ends_with(".weight")) name.resize(name.size() - 7);
    const std::size_t dot = name.rfind('.') + 1;
    text += text.empty() ? name : ", " + (name.substr(0, dot) == parent ? name.substr(dot) : name);
    parent = name.substr(0, dot);
  }
  return terminal_safe(text);
}

// The columns of a change of the loss; empty ones if there is none.
void add_change(const json::Object& o, std::vector<std::string>& row) {
  row.insert(row.end(), {shown(number(o, "loss_change"), 3), shown(number(o, "standard_error"), 2),
                         shown(number(o, "p_value"), 2)});
}

// "0.02 \u00b1 0.01 nats (standard error)".
std::string change_text(const json::Object& o, int digits) {
  return shown(number(o, "loss_change"), digits) + " \u00b1 " + shown(number(o, "standard_error"), 2) +
         " nats (standard error)";
}

// A line if the loss of the configuration rises beyond the limit by more than its uncertainty: the harm of groups below
// noise adds up, or the other recipe does not help.
void add_warning(const json::Object& o, std::vector<std::string>& lines) {
  constexpr double kClear = 2;  // standard errors
  const double change = number(o, "loss_change"), limit = number(o, "limit");
  if (!std::isnan(change) && !(change > limit + kClear * number(o, "standard_error"))) return;
  const bool replaced = !o.get_array("in_other_recipe", kWhat).empty();
  const std::string where = replaced ? " with these linears in " + o.get_string("other_recipe", kWhat)
                                     : std::string(" in this configuration"),
                    advice = replaced ? ": leave them in bf16, without --recommend-recipe"
                                      : ": more --batches find groups whose harm is below noise now";
  lines.push_back(std::isnan(change)
                      ? "warning: the loss is not finite" + where
                      : std::string("warning: the loss ") + (replaced ? "still " : "") + "rises by " +
                            shown(change, 3) + " nats" + where + ", more than " + shown(limit, 3) + advice);
}

// The answer without a group that hurts.
std::string nothing_hurts(const json::Object& o) {
  const double noise = number(o, "noise");
  const std::string sequences = counted(o.get_int_or("sequences", 0, kWhat), "sequence");
  if (!(noise > 0)) return "no linear changes the loss of " + sequences;
  const double more = number(o, "more_would_show");
  return "no linear hurts beyond noise (detection limit " + shown(noise, 2) + " nats over " + sequences + "; " +
         (std::isnan(more)
              ? "more would not show less"
              : std::to_string(o.get_int("more_sequences", kWhat)) + " more would show " + shown(more, 2)) +
         ")";
}

void add_names(const json::Array& names, std::vector<std::string>& lines) {
  for (const auto& [name, count] : kinds_of(names))
    lines.push_back("  " + terminal_safe(name) + (count > 1 ? " (" + counted(count, "linear") + ")" : ""));
}

void add_recommendation(const json::Object& o, std::vector<std::string>& lines) {
  const json::Array &skip = o.get_array("skip", kWhat), &other = o.get_array("in_other_recipe", kWhat);
  const std::int64_t hurting = o.get_int("hurting_groups", kWhat);
  std::string answer = counted(hurting, "group") + (hurting == 1 ? " hurts" : " hurt") + " beyond noise";
  if (const double harm = number(o, "sum"); harm > 0)
    answer +=
        "; those that stay raise the loss by " + shown(harm, 3) + " nats, less than " + shown(number(o, "limit"), 3);
  lines.push_back(hurting == 0 ? nothing_hurts(o) : answer);
  lines.push_back("left in bf16: " + std::to_string(skip.size()) +
                  ", in FP8: " + std::to_string(o.get_int("fp8_linears", kWhat)) + "; change of the loss together " +
                  change_text(o, 3));
  add_names(skip, lines);
  if (!other.empty())
    lines.push_back("in " + o.get_string("other_recipe", kWhat) + ": " + std::to_string(other.size()));
  add_names(other, lines);
  if (o.get_int("fp8_linears", kWhat) > 0) add_warning(o, lines);
}

// The cast that loses the largest share of its elements; null if none loses any.
const json::Object* worst_cast(const std::vector<json::Value>& records) {
  const json::Object* worst = nullptr;
  double most = 0;
  for (const json::Object* o : of_type(records, "operand"))
    for (const char* share : {"underflow_share", "saturated_share"})
      if (number(*o, share) > most) most = number(*o, share), worst = o;
  return worst;
}

// The effect of FP8 in a linear on the loss, that of its group; empty if it was not measured.
std::string effect_of(const std::string& linear, const std::vector<json::Value>& records) {
  for (const json::Object* group : of_type(records, "group")) {
    const auto is_it = [&](const json::Value& name) { return name.as_string() == linear; };
    if (std::ranges::none_of(group->get_array("linears", kWhat), is_it)) continue;
    return (group->get_bool("hurts", kWhat) ? ", which raises the loss: "
                                            : ", no effect on the loss of this model beyond noise: ") +
           change_text(*group, 2);
  }
  return "";
}

// "worst cast: 63 % underflow in the weight of model.layers.1.mlp.down_proj, no effect on the loss ...".
void add_worst_cast(const std::vector<json::Value>& records, std::vector<std::string>& lines) {
  const json::Object* o = worst_cast(records);
  if (o == nullptr) return;
  const double underflow = number(*o, "underflow_share"), saturated = number(*o, "saturated_share");
  const bool saturates = saturated > underflow, backward = o->get_string("operand", kWhat) == "grad_output";
  std::string linear = o->get_string("linear", kWhat);
  const std::string effect =
      backward ? ", which acts on gradients and not on the loss of this batch" : effect_of(linear, records);
  if (linear.ends_with(".weight")) linear.resize(linear.size() - 7);
  lines.push_back("worst cast: " + shown(100 * (saturates ? saturated : underflow), 3) + " % " +
                  (saturates ? "saturation" : "underflow") + " in the " + o->get_string("operand", kWhat) + " of " +
                  terminal_safe(linear) + effect);
}

}  // namespace

std::vector<std::vector<std::string>> most_sensitive_first(const std::vector<json::Value>& records, std::size_t most) {
  std::vector<const json::Object*> found = of_type(records, "sensitivity");
  // A change that is not finite is null, and the worst.
  const auto rank = [](const json::Object* o) {
    const bool forward = o->get_string("gemm", kWhat) == "forward";
    const double value = number(*o, forward ? "loss_change" : "relative_l2");
    return std::pair{forward ? 0 : 1, std::isnan(value) ? -HUGE_VAL : -value};
  };
  std::ranges::stable_sort(found, {}, rank);
  std::vector<std::vector<std::string>> rows{
      {"linear", "gemm", "recipe", "loss change", "std. error", "p", "cosine", "relative L2"}};
  for (const json::Object* o : found) {
    if (rows.size() > most) break;
    std::vector<std::string>& row = rows.emplace_back();
    row = {terminal_safe(o->get_string("linear", kWhat)), o->get_string("gemm", kWhat), o->get_string("recipe", kWhat)};
    add_change(*o, row);
    row.insert(row.end(), {shown(number(*o, "cosine"), 7), shown(number(*o, "relative_l2"), 4)});
  }
  return rows;
}

std::vector<std::vector<std::string>> most_harmful_first(const std::vector<json::Value>& records, std::size_t most) {
  std::vector<const json::Object*> found = of_type(records, "group");
  std::ranges::stable_sort(found, {}, [](const json::Object* o) {
    const double change = number(*o, "loss_change");
    return std::isnan(change) ? -HUGE_VAL : -change;
  });
  std::vector<std::vector<std::string>> rows{{"group", "recipe", "loss change", "std. error", "p"}};
  for (const json::Object* o : found) {
    if (rows.size() > most) break;
    std::vector<std::string>& row = rows.emplace_back();
    row = {names_of_group(o->get_array("linears", kWhat)), o->get_string("recipe", kWhat)};
    add_change(*o, row);
  }
  return rows;
}

std::vector<std::string> recommendations(const std::vector<json::Value>& records) {
  std::vector<std::string> lines;
  for (const json::Object* o : of_type(records, "recommendation")) add_recommendation(*o, lines);
  if (!lines.empty()) add_worst_cast(records, lines);
  return lines;
}

}  // namespace fp8::statistics
