#include "fp8/statistics/records.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "fp8/base/expert_name.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "shown.h"

namespace fp8::statistics {
namespace {

std::string_view name_of_gemm(gemm::GemmRole role) {
  switch (role) {
    case gemm::GemmRole::forward:
      return "forward";
    case gemm::GemmRole::dgrad:
      return "dgrad";
    case gemm::GemmRole::wgrad:
      return "wgrad";
    case gemm::GemmRole::other:
      break;
  }
  return "other";
}

std::string_view name_of_operand(Operand operand) {
  switch (operand) {
    case Operand::input:
      return "input";
    case Operand::weight:
      return "weight";
    case Operand::grad_output:
      break;
  }
  return "grad_output";
}

// Extents of the elements that share a scale, the contracted dimension last.
std::string_view name_of_granularity(quant::Granularity g) {
  switch (g) {
    case quant::Granularity::tensor:
      return "tensor";
    case quant::Granularity::row:
      return "row";
    case quant::Granularity::block1x128:
      return "1x128";
    case quant::Granularity::block128x128:
      return "128x128";
    case quant::Granularity::block1x32:
      return "1x32";
    case quant::Granularity::block1x16:
      return "1x16";
    case quant::Granularity::block16x16:
      return "16x16";
    case quant::Granularity::none:
      break;
  }
  return "none";
}

json::Value histogram_of(const std::array<std::int64_t, 255>& exponents) {
  constexpr int kBias = 127;
  const auto used = [](std::int64_t n) { return n != 0; };
  const auto first = std::find_if(exponents.begin(), exponents.end(), used);
  const auto last = std::find_if(exponents.rbegin(), exponents.rend(), used).base();
  json::Array counts(first, std::max(first, last));
  const json::Value lowest = counts.empty() ? json::Value() : json::Value(first - exponents.begin() - kBias);
  return json::object({{"lowest", lowest}, {"counts", std::move(counts)}});
}

json::Array to_json(const Spread& s) { return {s.least, s.median, s.greatest}; }

json::Value operand_record(const OperandResult& r, const std::string& recipe, const std::string& linear) {
  const Figures& f = r.figures;
  json::Value v = json::object({{"type", "operand"},
                                {"linear", linear},
                                {"gemm", name_of_gemm(r.gemm)},
                                {"operand", name_of_operand(r.operand)},
                                {"recipe", recipe},
                                {"format", r.format == dtype::DType::e4m3 ? "e4m3" : "e5m2"},
                                {"granularity", name_of_granularity(r.granularity)},
                                {"elements", f.elements},
                                {"nonzero", f.nonzero},
                                {"nonfinite", f.nonfinite},
                                {"amax", f.amax},
                                {"scale", f.scale_range().min},
                                {"scale_max", f.scale_range().max},
                                {"scales", f.scales},
                                {"underflow_share", f.share(f.underflowed)},
                                {"subnormal_share", f.share(f.subnormal)},
                                {"saturated_share", f.share(f.saturated)},
                                {"sqnr_db", f.sqnr_db()},
                                {"dynamic_range", f.dynamic_range()},
                                {"histogram", histogram_of(f.exponents)},
                                {"scaled_histogram", histogram_of(f.scaled_exponents)}});
  if (r.groups) {
    v.as_object().set("blocks", json::object({{"count", r.groups->groups},
                                              {"worst", r.groups->worst},
                                              {"amax", to_json(r.groups->amax)},
                                              {"underflow_share", to_json(r.groups->underflow_share)},
                                              {"saturated_share", to_json(r.groups->saturated_share)},
                                              {"sqnr_db", to_json(r.groups->sqnr_db)}}));
  }
  return v;
}

std::string percent(double share) { return format_short(100 * share, 3); }

// The figures of a cast alone: GEMMs whose records have the same ones share the cast.
std::string cast_of(const json::Object& o) {
  json::Value cast = json::object({});
  for (const auto& [name, value] : o)
    if (name != "gemm" && name != "time" && name != "step") cast.as_object().set(name, value);
  return json::dump(cast);
}

// A cast with the worst of the GEMMs that read it.
struct Row {
  const json::Object* operand = nullptr;
  std::string gemms{};  // separated by commas, in order
  double error = 0;     // largest relative error of a product
};

// The loss of the batch in bf16; NaN unless a change of the loss was measured on this batch alone.
double loss_in_bf16(const std::vector<json::Value>& records) {
  double batch_size = NAN;
  for (const json::Value& v : records) {
    const json::Object& o = v.as_object();
    if (o.contains("batch_size")) batch_size = number(o, "batch_size");
    const double loss = number(o, "loss") - number(o, "loss_change");
    if (!std::isnan(loss) && number(o, "sequences") == batch_size) return loss;
  }
  return NAN;
}

}  // namespace

std::vector<json::Value> records_of(const Results& results, const std::string& recipe,
                                    const std::function<std::string(int)>& name_of) {
  std::vector<json::Value> records;
  auto operand = results.operands.begin();
  for (const ProductResult& p : results.products) {
    for (; operand != results.operands.end() && operand->linear == p.linear && operand->gemm == p.gemm; ++operand)
      records.push_back(operand_record(*operand, recipe, name_of(operand->linear)));
    records.push_back(json::object({{"type", "gemm"},
                                    {"linear", name_of(p.linear)},
                                    {"gemm", name_of_gemm(p.gemm)},
                                    {"recipe", recipe},
                                    {"relative_error", p.relative_error}}));
  }
  return records;
}

std::vector<std::vector<std::string>> recipes_in_short(const std::vector<json::Value>& records) {
  struct Recipe {
    std::string name;
    double loss = NAN, sum = 0, worst = 0, underflow = 0;
    std::int64_t gemms = 0;
    std::string of{};  // the GEMM with the largest error
    double mean() const { return gemms == 0 ? HUGE_VAL : sum / static_cast<double>(gemms); }
  };
  std::vector<Recipe> recipes;
  for (const json::Value& v : records) {
    const json::Object& o = v.as_object();
    const std::string& type = o.get_string("type", kWhat);
    if (type == "inspect")
      recipes.push_back({.name = o.get_string("recipe", kWhat), .loss = number(o, "loss")});
    else if (recipes.empty())
      continue;
    Recipe& recipe = recipes.back();  // the records of a recipe follow that of its batch
    if (type == "operand") recipe.underflow = std::max(recipe.underflow, number(o, "underflow_share"));
    if (type != "gemm") continue;
    const double error = std::isnan(number(o, "relative_error")) ? HUGE_VAL : number(o, "relative_error");
    recipe.sum += error, ++recipe.gemms;
    if (recipe.of.empty() || error > recipe.worst)
      recipe.worst = error,
      recipe.of = brief_name(glob_of_experts(o.get_string("linear", kWhat))) + " " + o.get_string("gemm", kWhat);
  }
  if (recipes.size() < 2) return {};
  std::ranges::stable_sort(recipes, {}, &Recipe::mean);
  std::vector<std::vector<std::string>> rows{
      {"recipe", "loss", "mean error %", "worst %", "worst GEMM", "underflow %"}};
  const auto finite_percent = [](double share) { return std::isfinite(share) ? percent(share) : "-"; };
  if (const double loss = loss_in_bf16(records); !std::isnan(loss))
    rows.push_back({"bf16", shown(loss, 6), "-", "-", "-", "-"});
  for (const Recipe& r : recipes)
    rows.push_back({r.name, shown(r.loss, 6), finite_percent(r.mean()), finite_percent(r.worst), terminal_safe(r.of),
                    percent(r.underflow)});
  return rows;
}

std::vector<std::vector<std::string>> worst_first(const std::vector<json::Value>& records, std::size_t most) {
  using Gemm = std::tuple<std::string, std::string, std::string>;
  const auto gemm_of = [&](const json::Object& o) {
    return Gemm{o.get_string("recipe", kWhat), o.get_string("linear", kWhat), o.get_string("gemm", kWhat)};
  };
  std::map<Gemm, double> errors;
  std::vector<const json::Object*> operands;
  for (const json::Value& v : records) {
    const json::Object& o = v.as_object();
    const std::string& type = o.get_string("type", kWhat);
    if (type == "gemm") errors[gemm_of(o)] = number(o, "relative_error");
    if (type == "operand") operands.push_back(&o);
  }
  // A figure that is not finite is null in a record: an error is then the worst, and an SQNR is that of an exact cast
  // or of a cast with elements that are not finite.
  const auto error_of = [&](const json::Object* o) {
    const auto error = errors.find(gemm_of(*o));
    return error == errors.end() || std::isnan(error->second) ? HUGE_VAL : error->second;
  };
  const auto sqnr_of = [](const json::Object* o) {
    const double db = number(*o, "sqnr_db");
    return !std::isnan(db) ? db : number(*o, "nonfinite") > 0 ? -HUGE_VAL : HUGE_VAL;
  };
  std::vector<Row> casts;
  std::map<std::string, std::size_t> known;
  for (const json::Object* o : operands) {
    const std::string& gemm = o->get_string("gemm", kWhat);
    const auto [at, anew] = known.try_emplace(cast_of(*o), casts.size());
    if (anew) {
      casts.push_back({o, gemm, error_of(o)});
      continue;
    }
    Row& row = casts[at->second];
    row.gemms += "," + gemm;
    row.error = std::max(row.error, error_of(o));
  }
  std::ranges::stable_sort(casts, {}, [&](const Row& r) { return std::pair{-r.error, sqnr_of(r.operand)}; });
  const bool experts = fold_experts(casts, [](const Row& row) {
    const json::Object& o = *row.operand;
    return std::array<std::string, 4>{o.get_string("linear", kWhat), row.gemms, o.get_string("operand", kWhat),
                                      o.get_string("recipe", kWhat)};
  });
  std::vector<std::vector<std::string>> rows{{"linear", "gemm", "operand", "recipe", "amax", "scale", "underflow %",
                                              "subnormal %", "saturated %", "SQNR dB", "GEMM error %"}};
  if (experts) rows.front().insert(rows.front().begin() + 1, "expert");
  for (const Row& row : casts) {
    if (rows.size() > most) break;
    const json::Object& o = *row.operand;
    const std::string& name = o.get_string("linear", kWhat);
    rows.push_back({terminal_safe(glob_of_experts(name)), row.gemms, o.get_string("operand", kWhat),
                    o.get_string("recipe", kWhat), shown(number(o, "amax"), 4), shown(number(o, "scale"), 4),
                    percent(number(o, "underflow_share")), percent(number(o, "subnormal_share")),
                    percent(number(o, "saturated_share")), shown(number(o, "sqnr_db"), 4),
                    std::isinf(row.error) ? "-" : percent(row.error)});
    const std::optional<ExpertName> expert = expert_name(name);
    if (experts)
      rows.back().insert(rows.back().begin() + 1, expert ? std::to_string(expert->number) : std::string("-"));
  }
  return rows;
}

}  // namespace fp8::statistics
