#include "fp8/statistics/routes.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/error.h"
#include "shown.h"

namespace fp8::statistics {
namespace {

double share(std::int64_t part, std::int64_t of) { return static_cast<double>(part) / static_cast<double>(of); }

std::string shown_percent(double value) { return shown(100 * value, 3); }

std::vector<const json::Object*> routes_in(const std::vector<json::Value>& records) {
  std::vector<const json::Object*> found;
  for (const json::Value& v : records)
    if (v.as_object().get_string("type", kWhat) == "routes") found.push_back(&v.as_object());
  return found;
}

}  // namespace

RouteDifference route_difference(std::span<const std::int32_t> reference, std::span<const std::int32_t> other,
                                 std::int64_t per_token) {
  const auto k = static_cast<std::size_t>(per_token);
  if (reference.size() != other.size() || reference.size() % k != 0)
    throw Error("routes: " + std::to_string(reference.size()) + " and " + std::to_string(other.size()) +
                " experts of tokens with " + std::to_string(per_token));
  RouteDifference d;
  for (std::size_t at = 0; at < other.size(); at += k) {
    const auto a = reference.subspan(at, k), b = other.subspan(at, k);
    if ((a.front() < 0) != (b.front() < 0)) throw Error("routes: other tokens are padding");
    if (b.front() < 0) continue;
    const auto elsewhere = std::ranges::count_if(b, [&](std::int32_t e) { return !std::ranges::binary_search(a, e); });
    ++d.tokens;
    d.differing += elsewhere > 0 ? 1 : 0;
    d.experts += per_token;
    d.other_experts += elsewhere;
  }
  return d;
}

json::Value record_of(const RouteDifference& d, int layer, const std::string& recipe, const std::string& reference) {
  return json::object({{"type", "routes"},
                       {"recipe", recipe},
                       {"reference", reference},
                       {"layer", layer},
                       {"tokens", d.tokens},
                       {"experts_per_token", d.tokens == 0 ? json::Value() : json::Value(d.experts / d.tokens)},
                       {"differ", share(d.differing, d.tokens)},
                       {"experts_differ", share(d.other_experts, d.experts)}});
}

std::vector<std::vector<std::string>> most_rerouted_first(const std::vector<json::Value>& records, std::size_t most) {
  std::vector<const json::Object*> found = routes_in(records);
  std::ranges::stable_sort(found, {}, [](const json::Object* o) {
    const double differ = number(*o, "differ");
    return std::isnan(differ) ? HUGE_VAL : -differ;
  });
  std::vector<std::vector<std::string>> rows{{"layer", "recipe", "reference", "tokens differ %", "experts differ %"}};
  for (const json::Object* o : found) {
    if (rows.size() > most) break;
    rows.push_back({std::to_string(o->get_int("layer", kWhat)), o->get_string("recipe", kWhat),
                    o->get_string("reference", kWhat), shown_percent(number(*o, "differ")),
                    shown_percent(number(*o, "experts_differ"))});
  }
  return rows;
}

std::vector<std::string> rerouted(const std::vector<json::Value>& records) {
  const std::vector<const json::Object*> found = routes_in(records);
  std::vector<std::string> lines;
  for (auto at = found.begin(); at != found.end();) {
    const std::string& recipe = (*at)->get_string("recipe", kWhat);
    const auto end =
        std::find_if(at, found.end(), [&](const json::Object* o) { return o->get_string("recipe", kWhat) != recipe; });
    double sum = 0;
    const json::Object* worst = *at;
    for (auto o = at; o != end; ++o) {
      sum += number(**o, "differ");
      if (number(**o, "differ") > number(*worst, "differ")) worst = *o;
    }
    lines.push_back(recipe + ": " + shown_percent(sum / static_cast<double>(end - at)) +
                    " % of the routes have other experts than in " + worst->get_string("reference", kWhat) +
                    "; most in layer " + std::to_string(worst->get_int("layer", kWhat)) + ", " +
                    shown_percent(number(*worst, "differ")) + " %");
    at = end;
  }
  return lines;
}

}  // namespace fp8::statistics
