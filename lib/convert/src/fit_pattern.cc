// What the differences of two sets of gradients suggest: a factor common to all tensors, to a layer or to a kind of
// parameter, tensors that are zero, and rows in another order.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8/convert/fit.h"

namespace fp8::convert {
namespace {

constexpr double kSmall = 1e-3;       // relative L2 that rounding explains
constexpr double kParallel = 0.9;     // least cosine of tensors that differ by a factor and rounding
constexpr double kSameFactor = 0.01;  // relative difference of factors that count as one

using Tensors = std::vector<const TensorFit*>;

// The layer and the kind of a parameter by its name.
struct Place {
  std::string layer;  // number as text; empty outside of layers
  std::string kind;   // "q_proj", "router", "expert w1", "q_proj bias", "q_proj lora_A", "input_layernorm"
};

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

Place place_of(const std::string& name) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  Place place;
  bool expert = false;
  std::string module, parent, last;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool number = is_number(parts[i]) && i > 0;
    if (number && place.layer.empty() && (parts[i - 1] == "layers" || parts[i - 1] == "h")) place.layer = parts[i];
    if (number && parts[i - 1] == "experts") expert = true;
    if (number) continue;
    if (parts[i] == "bias" || parts[i].starts_with("lora_"))
      last = " " + parts[i];
    else if (i + 1 < parts.size() || parts[i] != "weight")
      parent = std::move(module), module = parts[i];
  }
  const bool router = module == "gate" && (parent == "mlp" || parent == "block_sparse_moe" || parent == "moe");
  place.kind = (expert ? "expert " : "") + (router || module == "router" ? "router" : module) + last;
  return place;
}

bool is_zero(const TensorFit& t) { return t.has_figures() && t.norm_b == 0; }
bool deviates(const TensorFit& t, double bound) {
  return t.has_figures() && !(t.relative_l2 <= std::max(bound, kSmall));
}

// Sine of the angle between a and b: what rounding leaves beside a factor.
double noise(const TensorFit& t) { return std::sqrt(std::max(0.0, 1 - t.cosine * t.cosine)); }

// Whether b is a multiple of a, but for less than half of what the factor changes.
bool scaled(const TensorFit& t) {
  if (!t.has_figures() || !(t.norm_b > 0) || !(std::abs(t.cosine) >= kParallel)) return false;
  return t.factor < 0 || std::abs(t.factor - 1) / std::min(1.0, t.factor) > 2 * noise(t);
}

// Least and greatest factor; nothing if a tensor is not a multiple of A's, or some factors are above 1 and others
// below.
struct Range {
  double least, most;
  double noise = 0;  // largest of a tensor
  bool one() const { return std::abs(most - least) <= std::max(kSameFactor, 3 * noise) * std::abs(most); }
};
std::optional<Range> factors_of(const Tensors& tensors) {
  if (tensors.empty() || !std::ranges::all_of(tensors, [](const TensorFit* t) { return scaled(*t); }))
    return std::nullopt;
  Range r{tensors[0]->factor, tensors[0]->factor};
  for (const TensorFit* t : tensors) {
    r.least = std::min(r.least, t->factor), r.most = std::max(r.most, t->factor);
    r.noise = std::max(r.noise, noise(*t));
  }
  const bool above = r.least > 1 + kSameFactor, below = r.most < 1 - kSameFactor && r.least > 0;
  return above || below || (r.one() && r.most < 0) ? std::optional(r) : std::nullopt;
}

std::string fixed(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", x);
  return text;
}

// "2.00 times too large", "1.20 to 2.70 times too large".
std::string size_of(const Range& r) {
  if (r.most < 0) return fixed(-r.most) + " times A, with the opposite sign";
  const bool large = r.least > 1;
  const double low = large ? r.least : 1 / r.most, high = large ? r.most : 1 / r.least;
  return fixed(low) + (r.one() ? "" : " to " + fixed(high)) + " times too " + (large ? "large" : "small");
}

// About a factor that all tensors have: "B is A summed over 4".
std::string of_all(const Range& r) {
  const double factor = std::midpoint(r.least, r.most), error = std::max(kSameFactor, r.noise / 5);
  const auto whole = [error](double x) { return x > 1.5 && std::abs(x / std::round(x) - 1) < error; };
  const auto text = [](double x) { return std::to_string(std::llround(x)); };
  if (whole(factor)) return "B is A summed over " + text(factor);
  if (whole(1 / factor)) return "B is A divided by " + text(1 / factor);
  if (std::abs(factor + 1) < error) return "B is A with the opposite sign";
  return "B is A times " + fixed(factor);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

// The search: each finding explains its tensors, which later ones ignore.
class Search {
 public:
  Search(const std::vector<TensorFit>& tensors, double bound) : bound_(bound) {
    for (const TensorFit& t : tensors) {
      if (!t.compared || (t.has_figures() && t.norm_a == 0 && t.norm_b == 0)) continue;
      all_.push_back(&t);
      const Place place = place_of(t.name);
      if (!place.layer.empty()) layers_[std::stoull(place.layer.substr(0, 18))].push_back(&t);
      kinds_[{place.kind, !place.layer.empty()}].push_back(&t);
    }
  }
  std::vector<std::string> run() {
    if (!all_.empty() && of_everything()) return found_;
    find_layers([](const TensorFit& t) { return !t.finite_b && t.finite_a; }, " is not finite in B");
    find_layers([](const TensorFit& t) { return is_zero(t); }, " is zero in B");
    find_scaled_layers();
    find_kinds();
    find_rotated();
    return found_;
  }

 private:
  bool of_everything() {
    if (std::ranges::all_of(all_, [](const TensorFit* t) { return is_zero(*t); }))
      return found_.emplace_back("all of B is zero"), true;
    const auto range = factors_of(all_);
    if (!range || !range->one()) return false;
    found_.push_back(of_all(*range));
    return true;
  }
  Tensors left(const Tensors& tensors) const {
    Tensors out;
    std::ranges::copy_if(tensors, std::back_inserter(out), [&](const TensorFit* t) { return !explained_.contains(t); });
    return out;
  }
  void explain(const Tensors& tensors, std::string text) {
    explained_.insert(tensors.begin(), tensors.end());
    found_.push_back(std::move(text));
  }
  // Layers of several tensors all of which are so.
  template <class Test>
  void find_layers(const Test& test, const char* what) {
    for (const auto& [layer, tensors] : layers_)
      if (tensors.size() > 1 && std::ranges::all_of(tensors, [&](const TensorFit* t) { return test(*t); }))
        explain(tensors, "all of layer " + std::to_string(layer) + what);
  }
  void find_scaled_layers() {
    for (const auto& [layer, tensors] : layers_) {
      const auto range = factors_of(left(tensors));
      if (range && range->one() && left(tensors).size() > 1)
        explain(left(tensors), "all of layer " + std::to_string(layer) + " is " + size_of(*range));
    }
  }
  // Kinds with the same finding share a line.
  void find_kinds() {
    std::map<std::pair<std::string, bool>, std::pair<std::vector<std::string>, Tensors>> same;
    for (const auto& [kind, tensors] : kinds_) {
      const Tensors rest = left(tensors);
      if (rest.empty() || std::ranges::none_of(rest, [&](const TensorFit* t) { return deviates(*t, bound_); }))
        continue;
      std::string text;
      if (std::ranges::all_of(rest, [](const TensorFit* t) { return is_zero(*t); }))
        text = "zero in B";
      else if (const auto range = factors_of(rest))
        text = size_of(*range);
      if (text.empty()) continue;
      auto& [names, of] = same[{text, kind.second}];
      names.push_back(kind.first);
      of.insert(of.end(), rest.begin(), rest.end());
    }
    for (const auto& [finding, what] : same)
      explain(what.second, (finding.second ? "each " : "") + joined(what.first) +
                               (finding.second || what.first.size() == 1 ? " is " : " are ") + finding.first);
  }
  // q and k with the norm of A's and another direction, while v is as in A.
  void find_rotated() {
    std::vector<std::string> names;
    for (const char* kind : {"q_proj", "k_proj"}) {
      const Tensors rest = left(kinds_[{kind, true}]);
      const bool turned = !rest.empty() && std::ranges::all_of(rest, [](const TensorFit* t) {
        return t->has_figures() && t->cosine < 0.9 && std::abs(t->norm_b / t->norm_a - 1) < kSameFactor;
      });
      if (turned) names.emplace_back(kind);
    }
    if (!names.empty())
      found_.push_back("each " + joined(names) +
                       " has the norm of A but another direction: its rows may be in another "
                       "rotary order (--names torchtitan undoes that of torchtitan; see fp8-debug(7))");
  }

  double bound_;
  Tensors all_;                                            // compared tensors, but for those that both have as zero
  std::map<std::uint64_t, Tensors> layers_;                // by number
  std::map<std::pair<std::string, bool>, Tensors> kinds_;  // by kind, and whether it is in layers
  std::set<const TensorFit*> explained_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> suggestions(const std::vector<TensorFit>& tensors, double bound) {
  return Search(tensors, bound).run();
}

}  // namespace fp8::convert
