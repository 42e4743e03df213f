// Records as rows of tables.
#include <algorithm>
#include <set>

#include "fp8/base/text.h"
#include "fp8/judge/judge.h"

namespace fp8::judge {
namespace {

std::string number(const json::Object& o, const std::string& member, int digits = 3) {
  return format_short(o.get_double(member, member), digits);
}

std::vector<const json::Object*> of_type(const std::vector<json::Value>& records, const std::string& type) {
  std::vector<const json::Object*> found;
  for (const json::Value& record : records)
    if (record.as_object().get_string("type", "record") == type) found.push_back(&record.as_object());
  return found;
}

std::string name_of(const json::Object& o) {
  const std::string recipe = o.get_string_or("recipe", "", "candidate");
  return recipe.empty() ? o.get_string("precision", "candidate") : recipe;
}

}  // namespace

std::vector<std::vector<std::string>> candidate_table(const std::vector<json::Value>& records) {
  std::vector<const json::Object*> candidates = of_type(records, "candidate");
  std::ranges::stable_sort(candidates, {}, [](const json::Object* o) { return o->get_double("k3", "candidate"); });
  const bool several = std::ranges::any_of(candidates, [&](const json::Object* o) {
    return o->get_string("checkpoint", "candidate") != candidates.front()->get_string("checkpoint", "candidate");
  });
  std::vector<std::vector<std::string>> rows{
      {"candidate", "tokens", "k3", "k1", "mean |d|", "max |d|", "mean exp|d|", "outside 0.5-2", "best T"}};
  if (several) rows.front().insert(rows.front().begin() + 1, "checkpoint");
  for (const json::Object* o : candidates) {
    const json::Value* t = o->find("temperature");
    std::vector<std::string> row{name_of(*o),
                                 std::to_string(o->get_int("tokens", "candidate")),
                                 number(*o, "k3"),
                                 number(*o, "k1"),
                                 number(*o, "mean_abs"),
                                 number(*o, "max_abs"),
                                 number(*o, "mult_prob_error", 5),
                                 number(*o, "ratio_outside"),
                                 t != nullptr ? number(t->as_object(), "value") : "-"};
    if (several) row.insert(row.begin() + 1, terminal_safe(o->get_string("checkpoint", "candidate")));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::vector<std::string>> token_table(const std::vector<json::Value>& records) {
  std::vector<std::vector<std::string>> rows;
  std::set<std::string> checkpoints;
  for (const json::Object* o : of_type(records, "token")) checkpoints.insert(o->get_string("checkpoint", "token"));
  for (const json::Object* o : of_type(records, "token")) {
    if (rows.empty()) rows.push_back({"candidate", "sequence", "position", "id", "log-probability", "here", "d"});
    if (rows.size() == 1 && checkpoints.size() > 1) rows[0].insert(rows[0].begin() + 1, "checkpoint");
    rows.push_back({o->get_string("candidate", "token"), std::to_string(o->get_int("sequence", "token")),
                    std::to_string(o->get_int("position", "token")), std::to_string(o->get_int("id", "token")),
                    number(*o, "logprob", 5), number(*o, "candidate_logprob", 5), number(*o, "d")});
    if (checkpoints.size() > 1)
      rows.back().insert(rows.back().begin() + 1, terminal_safe(o->get_string("checkpoint", "token")));
  }
  return rows;
}

}  // namespace fp8::judge
