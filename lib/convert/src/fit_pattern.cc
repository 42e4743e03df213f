// What the differences of two sets of gradients suggest: a factor common to all tensors, to a layer or to a kind of
// parameter, tensors that are zero, rows in another order, samples that are missing, and the one tensor, layer or kind
// that differs. A sentence counts the tensors that it is not true of, and those that could not be compared.
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
#include <tuple>
#include <utility>
#include <vector>

#include "fp8/base/expert_name.h"
#include "fp8/base/text.h"
#include "fp8/convert/fit.h"

namespace fp8::convert {
namespace {

constexpr double kSmall = 1e-3;       // relative L2 that rounding explains
constexpr double kFloor = 1e-5;       // relative L2 that another order of sums in f32 explains
constexpr double kParallel = 0.9;     // least cosine of tensors that differ by a factor and rounding
constexpr double kSameFactor = 0.01;  // relative difference of factors that count as one
constexpr double kTurned = 0.96;      // median cosine below which rounding, that of FP8 too, is no explanation
constexpr double kPlain = 1e6;        // factors above this, and below its reciprocal, are written with an exponent
constexpr double kHalf = 0.5;         // relative L2 that one token of many does not reach
constexpr double kApart = 10;         // ratio of relative L2 between tensors that differ and all others

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
    if (number && place.layer.empty() && (parts[i - 1] == "layers" || parts[i - 1] == "h") && parts[i].size() <= 9)
      place.layer = parts[i];
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
bool zero_in_both(const TensorFit& t) { return is_zero(t) && t.norm_a == 0; }
bool deviates(const TensorFit& t, double bound) {
  return t.has_figures() && !(t.relative_l2 <= std::max(bound, kSmall));
}
// Whether a pattern can be seen in it: both sides have it, and not as zeros.
bool is_telling(const TensorFit& t) { return t.compared && !zero_in_both(t); }
// How far b is from a; infinite without figures.
double distance_of(const TensorFit& t) { return t.note.empty() ? t.relative_l2 : HUGE_VAL; }

// Sine of the angle between a and b: what rounding leaves beside a factor.
double noise(const TensorFit& t) { return std::sqrt(std::max(0.0, 1 - t.cosine * t.cosine)); }

// Whether b is a multiple of a, but for less than half of what the factor changes.
bool scaled(const TensorFit& t) {
  if (!t.has_figures() || !(t.norm_b > 0) || !(std::abs(t.cosine) >= kParallel)) return false;
  if (!std::isfinite(t.factor) || t.factor == 0) return false;  // beyond the range of f64
  return t.factor < 0 || std::abs(t.factor - 1) / std::min(1.0, t.factor) > 2 * noise(t);
}

// Least and greatest factor; nothing if a tensor is not a multiple of A's, or some factors are above 1 and others
// below.
struct Range {
  double least, most;
  double noise = 0;  // largest of a tensor
  bool one() const { return std::abs(most - least) <= std::max(kSameFactor, 2 * noise) * std::abs(most); }
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

// "2.00", "1e+20".
std::string number(double x) {
  if (std::abs(x) >= kPlain || std::abs(x) < 0.01) return format_short(x, 3);
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", x);
  return text;
}

// "2.00 times too large", "1.20 to 2.70 times too large".
std::string size_of(const Range& r) {
  if (r.most < 0) return number(-r.most) + " times A, with the opposite sign";
  const bool large = r.least > 1;
  if (!large && r.least < 1 / kPlain) return (r.one() ? "" : number(r.least) + " to ") + number(r.most) + " times A";
  const double low = large ? r.least : 1 / r.most, high = large ? r.most : 1 / r.least;
  return number(low) + (r.one() ? "" : " to " + number(high)) + " times too " + (large ? "large" : "small");
}

// About a factor that tensors have: "4 times A", and its usual cause.
struct Factor {
  std::string text, cause;
};
Factor factor_of(const Range& r) {
  const double factor = std::midpoint(r.least, r.most), error = std::max(kSameFactor, r.noise / 5);
  const auto whole = [error](double x) {
    const double off = std::abs(x - std::round(x));
    return x > 1.5 && x < kPlain && off < 0.1 && off < error * x;
  };
  const auto text = [](double x) { return std::to_string(std::llround(x)); };
  if (whole(factor))
    return {text(factor) == "2" ? "twice A" : text(factor) + " times A",
            "a sum over " + text(factor) + " ranks or micro-batches instead of their mean"};
  if (whole(1 / factor))
    return {"A divided by " + text(1 / factor),
            "a mean over " + text(1 / factor) + " ranks or micro-batches instead of their sum"};
  if (std::abs(factor + 1) < error) return {"A with the opposite sign", ""};
  return {"A times " + number(factor), ""};
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

// "6 of 9".
std::string share(std::size_t some, std::size_t all) { return std::to_string(some) + " of " + std::to_string(all); }

// The tensors of a group, without those that a finding counts, that could not be compared or are zero in both sets: ";
// 3 are only in A, 1 is zero in both".
std::string rest_of(const Tensors& found, const Tensors& group) {
  std::map<std::string, std::size_t> counts;
  const std::set<const TensorFit*> of_finding(found.begin(), found.end());
  for (const TensorFit* t : group) {
    if (of_finding.contains(t)) continue;
    if (!t->compared) ++counts[t->note.starts_with("only") ? t->note : "of another shape"];
    if (t->compared && !t->has_figures()) ++counts["not finite"];
    if (zero_in_both(*t)) ++counts["zero in both"];
  }
  std::string text;
  for (const auto& [what, count] : counts)
    text += (text.empty() ? "; " : ", ") + std::to_string(count) + (count == 1 ? " is " : " are ") + what;
  return text;
}

bool one_factor(const Tensors& tensors) {
  const auto range = factors_of(tensors);
  return range && range->one();
}

// The part of the samples that a factor below 1 suggests.
std::string missing_part(double factor) {
  const double parts = std::round(1 / factor);
  return parts >= 2 && std::abs(factor * parts - 1) < 0.2
             ? "only one of " + std::to_string(std::llround(parts)) + " micro-batches or ranks counts"
             : "a micro-batch or a rank does not count";
}

// The tensors of a group that are zero in B.
Tensors zeros_of(const Tensors& group) {
  Tensors zeros;
  std::ranges::copy_if(group, std::back_inserter(zeros), [](const TensorFit* t) { return is_zero(*t); });
  return zeros;
}

double median_of(const Tensors& tensors, double TensorFit::*figure) {
  std::vector<double> values;
  for (const TensorFit* t : tensors) values.push_back(t->*figure);
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

bool one_has_gradients(const Fit& fit) {
  return (fit.a.weights && fit.b.gradients) || (fit.a.gradients && fit.b.weights);
}

// Whether the metadata of both sides show that the samples are not the same.
bool other_samples(const Fit& fit) {
  const auto differ = [](const std::optional<double>& a, const std::optional<double>& b) { return a && b && *a != *b; };
  return differ(fit.a.tokens, fit.b.tokens) || differ(fit.a.step, fit.b.step);
}

// "layer 3", "layers 0 to 3, 7 and 9".
std::string layers_text(const std::vector<std::uint64_t>& rising) {
  std::vector<std::string> runs;
  for (std::size_t first = 0, end = 0; first < rising.size(); first = end) {
    for (end = first + 1; end < rising.size() && rising[end] == rising[end - 1] + 1;) ++end;
    runs.push_back(std::to_string(rising[first]) + (end - first > 1 ? " to " + std::to_string(rising[end - 1]) : ""));
  }
  return (rising.size() == 1 ? "layer " : "layers ") + joined(runs);
}

// The search: each finding explains its tensors, which later ones ignore.
class Search {
 public:
  Search(const Fit& fit, double bound)
      : bound_(bound),
        rounded_(fit.a.rounded || fit.b.rounded),
        no_causes_((fit.a.weights && fit.b.weights) || other_samples(fit)) {
    for (const TensorFit& t : fit.tensors) {
      all_.push_back(&t);
      const Place place = place_of(t.name);
      if (!place.layer.empty()) layers_[std::stoull(place.layer)].push_back(&t);
      kinds_[{place.kind, !place.layer.empty()}].push_back(&t);
    }
  }
  std::vector<std::string> run() {
    const Tensors telling = left(all_);
    if (!telling.empty() && of_everything(telling)) return found_;
    find_layers([](const TensorFit& t) { return !t.finite_b && t.finite_a; }, "not finite in B");
    find_layers([](const TensorFit& t) { return is_zero(t); }, "zero in B");
    find_scaled_layers();
    find_kinds();
    find_rotated();
    if (!others_agree() && !find_culprit()) count_one_sided();
    return found_;
  }

 private:
  // " in 6 of 9 tensors"; empty if they are all.
  std::string many(const Tensors& tensors) const {
    return tensors.size() == all_.size() ? "" : " in " + share(tensors.size(), all_.size()) + " tensors";
  }
  bool of_everything(const Tensors& telling) {
    if (std::ranges::all_of(telling, [](const TensorFit* t) { return is_zero(*t); })) {
      const Tensors zeros = zeros_of(all_);
      found_.push_back((zeros.size() == all_.size() ? "all of B is zero" : "B is zero" + many(zeros)) +
                       rest_of(zeros, all_));
      return true;
    }
    const std::string rest = rest_of(telling, all_);
    if (!no_causes_ && of_other_samples(telling, rest)) return true;
    const auto range = factors_of(telling);
    if (!range || !range->one()) return false;
    const Factor factor = factor_of(*range);
    found_.push_back("B is " + factor.text + many(telling) +
                     (factor.cause.empty() || no_causes_ ? "" : ": " + factor.cause) + rest);
    return true;
  }
  // Tensors that all differ by more than rounding and less than unrelated ones. The factor of a part of the terms of A
  // is, in the mean over all parts, its share s, since the parts add up to A; its cosine is sqrt(s) at least, where
  // parts have nothing in common. Other terms, of the norm of A, have the factor as their cosine.
  bool of_other_samples(const Tensors& telling, const std::string& rest) {
    const bool related = telling.size() > 2 && std::ranges::all_of(telling, [&](const TensorFit* t) {
                           return deviates(*t, bound_) && t->cosine > 0.1;
                         });
    if (!related) return false;
    const double cosine = median_of(telling, &TensorFit::cosine), factor = median_of(telling, &TensorFit::factor);
    const bool turned = std::ranges::all_of(telling, [](const TensorFit* t) { return noise(*t) > 0.01; });
    const bool whole = telling.size() == all_.size();
    const std::string which = whole ? "every tensor" : share(telling.size(), all_.size()) + " tensors",
                      has = which + (whole ? " has" : " have") + " another direction and ";
    std::string text;
    if (turned && factor > 1e-3 && factor < 0.83 && cosine * cosine > 0.9 * factor &&
        (cosine < kTurned || !one_factor(telling))) {
      text = has + "a projection of about " + format_short(factor, 2) + " of A: samples are missing, as where " +
             missing_part(factor);
    } else if (turned && cosine < kTurned && factor > 0.83 && factor < 1.2) {
      text = has +
             "a projection of about all of A: only one micro-batch of several, divided by its own number of "
             "targets, a mean of means, or other samples or weights";
    } else if (turned && cosine < kTurned && factor > 0.5 * cosine && factor < 1.2 * cosine) {
      text = has + "about the norm of A: other samples, weights or targets";
    } else if (cosine >= kTurned && factor > 0.8 && factor < 1.2 && !rounded_ &&
               std::ranges::none_of(telling, [](const TensorFit* t) { return scaled(*t); })) {
      const auto [least, most] = std::ranges::minmax(telling, {}, &TensorFit::relative_l2);
      text = which + (whole ? " differs" : " differ") + " by " + format_short(least->relative_l2, 2) + " to " +
             format_short(most->relative_l2, 2) +
             ": rounding, or a mean of means, where micro-batches or ranks are divided by their own numbers of targets";
    }
    if (text.empty()) return false;
    found_.push_back(text + "; see fp8-debug(7)" + rest);
    return true;
  }
  // Tensors of a group that are not explained yet and can show a pattern.
  Tensors left(const Tensors& tensors) const {
    Tensors out;
    std::ranges::copy_if(tensors, std::back_inserter(out),
                         [&](const TensorFit* t) { return is_telling(*t) && !explained_.contains(t); });
    return out;
  }
  void explain(const Tensors& tensors, std::string text) {
    explained_.insert(tensors.begin(), tensors.end());
    found_.push_back(std::move(text));
  }
  void explain_layer(std::uint64_t layer, const Tensors& tensors, const Tensors& group, const std::string& what) {
    explain(tensors, (tensors.size() == group.size() ? "all " + std::to_string(group.size())
                                                     : share(tensors.size(), group.size())) +
                         " tensors of layer " + std::to_string(layer) + " are " + what + rest_of(tensors, group));
  }
  // Layers of several tensors all of which are so.
  template <class Test>
  void find_layers(const Test& test, const char* what) {
    for (const auto& [layer, group] : layers_) {
      const Tensors telling = left(group);
      if (telling.size() < 2 || !std::ranges::all_of(telling, [&](const TensorFit* t) { return test(*t); })) continue;
      Tensors found;
      std::ranges::copy_if(group, std::back_inserter(found), [&](const TensorFit* t) { return test(*t); });
      explain_layer(layer, found, group, what);
    }
  }
  void find_scaled_layers() {
    for (const auto& [layer, group] : layers_) {
      const Tensors rest = left(group);
      const auto range = factors_of(rest);
      if (range && range->one() && rest.size() > 1) explain_layer(layer, rest, group, size_of(*range));
    }
  }
  // "each q_proj is", "5 of 6 q_proj are", "embed_tokens is": kinds of which as many tensors are meant.
  struct Quantity {
    bool each = true, in_layers = true;
    std::string share{};  // unless `each`
    std::string rest{};
    auto operator<=>(const Quantity&) const = default;
  };
  static Quantity quantity_of(const Tensors& tensors, const Tensors& group, bool in_layers) {
    const bool each = tensors.size() == group.size();
    return {each, in_layers || group.size() > 1, each ? "" : share(tensors.size(), group.size()),
            rest_of(tensors, group)};
  }
  static std::string subject_of(const Quantity& quantity, std::vector<std::string> kinds, const char* verb = "is",
                                const char* plural = "are") {
    if (!quantity.each)
      for (std::string& kind : kinds) kind.insert(0, quantity.share + " ");
    const bool one = quantity.each ? quantity.in_layers || kinds.size() == 1
                                   : kinds.size() == 1 && quantity.share.starts_with("1 of");
    return (quantity.each && quantity.in_layers ? "each " : "") + joined(kinds) + " " + (one ? verb : plural) + " ";
  }
  // Kinds with the same finding share a line.
  void find_kinds() {
    std::map<std::pair<std::string, Quantity>, std::pair<std::vector<std::string>, Tensors>> same;
    for (const auto& [kind, group] : kinds_) {
      Tensors rest = left(group);
      if (rest.empty() || std::ranges::none_of(rest, [&](const TensorFit* t) { return deviates(*t, bound_); }))
        continue;
      std::string text;
      if (std::ranges::all_of(rest, [](const TensorFit* t) { return is_zero(*t); }))
        text = "zero in B", rest = zeros_of(group);
      else if (const auto range = factors_of(rest))
        text = size_of(*range);
      if (text.empty()) continue;
      auto& [names, of] = same[{text, quantity_of(rest, group, kind.second)}];
      names.push_back(kind.first);
      of.insert(of.end(), rest.begin(), rest.end());
    }
    for (const auto& [finding, what] : same)
      explain(what.second, subject_of(finding.second, what.first) + finding.first + finding.second.rest);
  }
  // q and k with the norm of A's and another direction.
  void find_rotated() {
    std::map<Quantity, std::vector<std::string>> same;
    Tensors found;
    for (const char* kind : {"q_proj", "k_proj"}) {
      const Tensors& group = kinds_[{kind, true}];
      const Tensors rest = left(group);
      const bool turned = !rest.empty() && std::ranges::all_of(rest, [](const TensorFit* t) {
        return t->has_figures() && t->cosine < 0.9 && std::abs(t->norm_b / t->norm_a - 1) < kSameFactor;
      });
      if (!turned) continue;
      same[quantity_of(rest, group, true)].emplace_back(kind);
      found.insert(found.end(), rest.begin(), rest.end());
    }
    for (const auto& [quantity, kinds] : same)
      explain(found, subject_of(quantity, kinds, "has", "have") +
                         "the norm of A and another direction: rows may be in another rotary order, see fp8-debug(7)" +
                         quantity.rest);
  }
  // Adds to the only finding how near all other tensors are, if they are much nearer. Returns whether they are.
  bool others_agree() {
    if (found_.size() != 1 || explained_.size() == all_.size()) return false;
    double least = HUGE_VAL, most = 0;
    for (const TensorFit* t : all_)
      if (explained_.contains(t))
        least = std::min(least, distance_of(*t));
      else
        most = std::max(most, distance_of(*t));
    if (!(kApart * std::max(most, kFloor) <= least) && !(most <= bound_)) return false;
    const std::size_t others = all_.size() - explained_.size();
    found_[0] += "; the other " + counted(static_cast<std::int64_t>(others), "tensor") +
                 (most == 0     ? others == 1 ? " is equal" : " are equal"
                  : others == 1 ? " differs by " + format_short(most, 2)
                                : " differ by at most " + format_short(most, 2));
    return true;
  }
  // The one tensor, layer or kind that differs far more than all others. Returns whether there is one.
  bool find_culprit() {
    Tensors sorted = all_;
    std::ranges::stable_sort(sorted, std::greater<>(), [](const TensorFit* t) { return distance_of(*t); });
    for (std::size_t n = sorted.size() - 1; n > 0; --n) {
      const double least = distance_of(*sorted[n - 1]), rest = distance_of(*sorted[n]);
      const bool apart = least > rest && least > bound_ && least >= kApart * std::max(rest, kFloor);
      if (!apart && !(bound_ > 0 && rest <= bound_ && least > bound_)) continue;
      const Tensors found(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(n));
      const std::string text = culprit(found, rest == 0 ? "" : " by more than " + format_short(rest, 2));
      if (text.empty()) continue;
      if (std::ranges::any_of(found, [&](const TensorFit* t) { return !explained_.contains(t); }))
        found_.push_back(text);
      return true;
    }
    return false;
  }
  // "9 tensors are only in A: layer 0", "11 tensors are only in A: layer 0 and 2 others", "2 tensors are only in A".
  std::string one_sided(const char* note) const {
    const auto is_so = [&](const TensorFit* t) { return t->note == note; };
    const auto count = std::ranges::count_if(all_, is_so);
    if (count == 0) return "";
    std::vector<std::uint64_t> whole;
    std::ptrdiff_t others = count;
    for (const auto& [layer, group] : layers_)
      if (std::ranges::all_of(group, is_so)) whole.push_back(layer), others -= std::ssize(group);
    return counted(count, "tensor") + (count == 1 ? " is " : " are ") + note +
           (whole.empty() ? "" : ": " + layers_text(whole)) +
           (whole.empty() || others == 0 ? "" : " and " + counted(others, "other"));
  }
  void count_one_sided() {
    const std::string of_a = one_sided("only in A"), of_b = one_sided("only in B");
    if (!of_a.empty() || !of_b.empty()) found_.push_back(of_a + (of_a.empty() || of_b.empty() ? "" : "; ") + of_b);
  }
  // "layer 1 alone differs by more than 2e-07, in 7 of 9 tensors", "layer 1 alone differs: 9 of 9 tensors are only in
  // A"; empty if the tensors are not of one layer or kind.
  std::string culprit(const Tensors& found, const std::string& more) const {
    if (found.size() == 1) return found[0]->name + " alone differs" + more + ": " + reason_of(*found[0]);
    const std::string& note = found[0]->note;
    const bool absent =
        note.starts_with("only") && std::ranges::all_of(found, [&](const TensorFit* t) { return t->note == note; });
    const auto alone = [&](const std::string& name, const Tensors& group) {
      const std::string tensors = share(found.size(), group.size()) + " tensors";
      return std::ranges::includes(sorted_by_address(group), sorted_by_address(found))
                 ? name + " alone differs" + more + (absent ? ": " + tensors + " are " + note : ", in " + tensors)
                 : "";
    };
    const Place place = place_of(found[0]->name);
    std::string text;
    if (!place.layer.empty()) text = alone("layer " + place.layer, layers_.at(std::stoull(place.layer)));
    return text.empty() ? alone(place.kind, kinds_.at({place.kind, !place.layer.empty()})) : text;
  }
  static Tensors sorted_by_address(Tensors tensors) {
    std::ranges::sort(tensors);
    return tensors;
  }
  static std::string reason_of(const TensorFit& t) {
    if (!t.note.empty()) return t.note;
    if (is_zero(t)) return "zero in B";
    if (t.norm_a == 0) return "zero in A";
    if (const auto range = factors_of({&t})) return size_of(*range);
    return "relative L2 " + format_short(t.relative_l2, 3) +
           (std::isnan(t.cosine) ? "" : ", cosine " + format_short(t.cosine, 3));
  }

  double bound_;
  bool rounded_;                                           // one side was computed in bf16 or FP8
  bool no_causes_;                                         // no gradients of the same samples
  Tensors all_;                                            // of both sets
  std::map<std::uint64_t, Tensors> layers_;                // by number
  std::map<std::pair<std::string, bool>, Tensors> kinds_;  // by kind, and whether it is in layers
  std::set<const TensorFit*> explained_;
  std::vector<std::string> found_;
};

// What the metadata show of the samples of both sides, if they are not the same.
std::string about_samples(const SideFacts& a, const SideFacts& b) {
  const auto number = [](double x) { return format_short(x, 15); };
  const auto of = [&](const SideFacts& side) {
    return (side.step ? "step " + number(*side.step) : "a step") +
           (side.tokens ? ", after " + number(*side.tokens) + " tokens of its run" : "");
  };
  const bool first = a.step.value_or(1) == 1 && b.step.value_or(1) == 1;
  if (first) return "B is the gradient of " + number(*b.tokens) + " tokens, A of " + number(*a.tokens);
  return "A is the gradient of " + of(a) + ", and B of " + of(b) + ": the samples differ";
}

// The losses of both sides, where they say more than the tensors do.
std::string about_losses(const Fit& fit, double bound) {
  if (!fit.a.loss || !fit.b.loss) return "";
  const double a = *fit.a.loss, b = *fit.b.loss, relative = a == b ? 0 : std::abs(b - a) / std::abs(a);
  const bool within = std::ranges::all_of(fit.tensors, [&](const TensorFit& t) { return t.within(bound); });
  if (within && relative <= std::max(bound, kFloor)) return "";
  std::string text = "loss " + format_short(a, 6) + " of A and " + format_short(b, 6) + " of B";
  if (relative > 0) text += ", relative difference " + format_short(relative, 2);
  if (relative > 10 * kSmall) return text + ": the forward pass differs, by its samples, weights or targets";
  return text + (relative <= kFloor ? ": the forward pass agrees" : "");
}

// The figures of an expert, or of all that is not an expert.
struct Differences {
  double most = 0, least = HUGE_VAL;  // relative L2 of a tensor
  bool turned = true;                 // no tensor of B is a multiple of the tensor of A
  void add(const TensorFit& t) {
    most = std::max(most, distance_of(t)), least = std::min(least, distance_of(t));
    turned = turned && t.has_figures() && noise(t) > distance_of(t) / 2;
  }
};

// What one token with another expert leaves: all tensors of two experts of a layer differ far more than those of
// others, by less than half of themselves and not by a factor; the router differs too, since the token has another
// loss, and with it the gradients elsewhere. Empty if it is not so, or the losses differ.
std::string about_near_tie(const Fit& fit, double bound) {
  std::map<std::pair<std::string, std::int64_t>, Differences> experts;
  Differences others;
  std::map<std::string, double> routers;  // by the layer
  for (const TensorFit& t : fit.tensors)
    if (const auto expert = expert_name(t.name)) {
      experts[{expert->experts, expert->number}].add(t);
    } else {
      others.add(t);
      if (const Place place = place_of(t.name); place.kind == "router") routers[place.layer] = distance_of(t);
    }
  if (experts.size() < 3 || (fit.a.weights && fit.b.weights)) return "";
  std::vector<std::pair<double, std::pair<std::string, std::int64_t>>> order;
  for (const auto& [expert, differences] : experts) order.emplace_back(differences.most, expert);
  std::ranges::partial_sort(order, order.begin() + 3, std::greater<>());
  const auto& [layer, x] = order[0].second;
  const std::int64_t y = order[1].second.second;
  if (order[1].second.first != layer || order[0].first >= kHalf || others.least == 0) return "";
  for (const std::int64_t number : {x, y}) {
    const Differences& d = experts.at({layer, number});
    if (!d.turned || d.least <= std::max(bound, kFloor) || d.least < 2 * order[2].first) return "";
  }
  if (routers[place_of(layer).layer] <= std::max(bound, kFloor)) return "";
  if (fit.a.loss && fit.b.loss && std::abs(*fit.b.loss / *fit.a.loss - 1) > kSmall) return "";
  return "experts " + std::to_string(std::min(x, y)) + " and " + std::to_string(std::max(x, y)) + " of " + layer +
         " differ most: a token whose logits are nearly equal may have another expert, which is no defect; see Near "
         "ties in fp8-moe(7)";
}

// Flags that would match more tensors.
void advise_names(const SideFacts& side, const char* name, std::vector<std::string>& found) {
  for (const auto& [count, system] : {std::pair(side.torchtitan, "torchtitan"), {side.megatron, "megatron"}})
    if (count > 0)
      found.push_back(counted(count, "tensor") + " of " + name + " without counterpart " +
                      (count == 1 ? "has a name" : "have names") + " of " + system + ", which --names " + system +
                      " translates");
}

}  // namespace

std::vector<std::string> suggestions(const Fit& fit, double bound) {
  std::vector<std::string> found;
  const bool within = std::ranges::all_of(fit.tensors, [&](const TensorFit& t) { return t.within(bound); });
  if (one_has_gradients(fit))
    found.push_back(fit.a.weights ? "A has weights and B gradients, by its metadata: they are not expected to agree"
                                  : "A has gradients, by its metadata, and B weights: they are not expected to agree");
  if (!within && other_samples(fit)) found.push_back(about_samples(fit.a, fit.b));
  if (std::string losses = about_losses(fit, bound); !losses.empty()) found.push_back(std::move(losses));
  if (!within && !fit.a.precision.empty() && !fit.b.precision.empty() && fit.a.precision != fit.b.precision)
    found.push_back("A was computed in " + fit.a.precision + ", B in " + fit.b.precision +
                    ": differences of rounding are expected, see fp8-debug(7)");
  advise_names(fit.a, "A", found);
  advise_names(fit.b, "B", found);
  if (one_has_gradients(fit)) return found;
  for (std::string& text : Search(fit, bound).run()) found.push_back(std::move(text));
  if (std::string tie = about_near_tie(fit, bound); !tie.empty()) found.push_back(std::move(tie));
  return found;
}

}  // namespace fp8::convert
