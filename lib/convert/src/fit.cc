// Sums over pairs of tensors. Rows in the interleaved rotary order are read a head at a time and reordered.
#include "fp8/convert/fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/model/output.h"
#include "tensor_names.h"

namespace fp8::convert {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLeastPositive = std::numeric_limits<double>::denorm_min();

// Sums over the elements of two tensors, each times `scale`, a power of two.
struct Sums {
  double scale = 1;
  double aa = 0, bb = 0, ab = 0, dd = 0;  // of a^2, b^2, a b, (b - a)^2
  double largest_a = 0, largest_b = 0;    // magnitudes
  double farthest = 0;                    // largest |b - a|, which is not zero where dd underflows
  std::int64_t nonfinite_a = 0, nonfinite_b = 0;

  void add(double a, double b) {
    nonfinite_a += std::isfinite(a) ? 0 : 1;
    nonfinite_b += std::isfinite(b) ? 0 : 1;
    largest_a = std::max(largest_a, std::abs(a)), largest_b = std::max(largest_b, std::abs(b));
    a *= scale, b *= scale;
    aa += a * a;
    bb += b * b;
    ab += a * b;
    const double difference = b - a;
    dd += difference * difference;
    farthest = std::max(farthest, std::abs(difference));
  }
  double largest() const { return std::max(largest_a, largest_b); }
  // Norms, which are zero only of zeros, also where squares underflow.
  double norm_a() const { return std::max(std::sqrt(aa), largest_a > 0 ? kLeastPositive : 0); }
  double norm_b() const { return std::max(std::sqrt(bb), largest_b > 0 ? kLeastPositive : 0); }
};

// Rows of heads in Hugging Face's order: the first of each pair of neighbours, then the second ones.
void split_pairs(std::span<double> rows, std::int64_t head, std::int64_t columns) {
  const std::vector<double> pairs(rows.begin(), rows.end());
  const std::int64_t count = static_cast<std::int64_t>(rows.size()) / columns;
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t at = row % head, half = head / 2;
    const std::int64_t from = row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
    std::copy_n(pairs.begin() + from * columns, columns, rows.begin() + row * columns);
  }
}

Sums scaled_sums(const TensorSet& a, const NamedTensor& x, const TensorSet& b, const NamedTensor& y, std::int64_t head,
                 double scale) {
  const bool reorders = x.interleaved != y.interleaved;
  if (!reorders && x.shape == y.shape && x.shape.size() != 1) {
    const NamedTensor u = a.flat(x), v = b.flat(y);
    if (u.shape.size() == 1 && v.shape.size() == 1) return scaled_sums(a, u, b, v, head, scale);
  }
  Sums sums{scale};
  const std::int64_t columns = x.columns(), rows = std::min(x.rows(), y.rows());
  if (columns == 0) return sums;
  const RowsReader of_a = a.reader(x), of_b = b.reader(y);
  std::vector<double> u, v;
  model::for_pieces(
      rows, columns,
      [&](std::int64_t begin, std::int64_t end) {
        u.resize(static_cast<std::size_t>((end - begin) * columns));
        v.resize(u.size());
        of_a(begin, end - begin, u);
        of_b(begin, end - begin, v);
        if (reorders) split_pairs(x.interleaved ? u : v, head, columns);
        for (std::size_t i = 0; i < u.size(); ++i) sums.add(u[i], v[i]);
      },
      reorders ? head : 1);
  return sums;
}

// Values whose squares f64 cannot hold, which only F64 tensors have, are summed again after division by the largest.
Sums sums_of(const TensorSet& a, const NamedTensor& x, const TensorSet& b, const NamedTensor& y, std::int64_t head) {
  constexpr double kMost = 0x1p+480, kLeast = 0x1p-450;
  const Sums sums = scaled_sums(a, x, b, y, head, 1);
  const bool finite = sums.nonfinite_a == 0 && sums.nonfinite_b == 0;
  if (!finite || sums.largest() == 0 || (sums.largest() < kMost && sums.largest() > kLeast)) return sums;
  return scaled_sums(a, x, b, y, head, std::ldexp(1.0, std::clamp(-std::ilogb(sums.largest()), -1022, 1022)));
}

std::string count_of(std::int64_t n, const char* side) {
  return n == 0 ? "" : std::to_string(n) + (n == 1 ? " element of " : " elements of ") + side;
}

TensorFit fit_of(const NamedTensor& x, const Sums& s) {
  TensorFit t{x.name};
  t.compared = true;
  t.finite_a = s.nonfinite_a == 0, t.finite_b = s.nonfinite_b == 0;
  if (!t.finite_a || !t.finite_b) {
    const std::string of_a = count_of(s.nonfinite_a, "A"), of_b = count_of(s.nonfinite_b, "B");
    t.note = of_a + (of_a.empty() || of_b.empty() ? "" : " and ") + of_b + " not finite";
    t.relative_l2 = t.cosine = t.factor = kNaN;
    return t;
  }
  t.norm_a = s.norm_a(), t.norm_b = s.norm_b();
  const double distance = std::max(std::sqrt(s.dd), s.farthest);
  const double relative = distance / t.norm_a;  // infinite if a is zero
  t.relative_l2 = distance == 0 ? 0 : std::max(relative, kLeastPositive);
  t.cosine = t.norm_a > 0 && t.norm_b > 0 ? std::clamp(s.ab / t.norm_a / t.norm_b, -1.0, 1.0) : kNaN;
  t.factor = s.aa > 0 ? s.ab / s.aa : kNaN;
  return t;
}

TensorFit without_figures(const std::string& name, const std::string& note) {
  TensorFit t{name, note};
  t.relative_l2 = t.cosine = t.factor = kNaN;
  return t;
}

// Whether two shapes differ only by rows beyond a vocabulary.
bool differ_by_padding(const NamedTensor& x, const NamedTensor& y) {
  if (x.shape.size() != y.shape.size() || x.shape.size() != 2 || x.shape[1] != y.shape[1]) return false;
  return x.shape[0] > y.shape[0] ? x.padded : y.padded && x.shape[0] < y.shape[0];
}

// Rows from row `begin` on that have an element that is not zero.
std::int64_t rows_not_zero(const TensorSet& set, const NamedTensor& tensor, std::int64_t begin) {
  std::int64_t count = 0;
  const std::int64_t columns = tensor.columns();
  const RowsReader reader = set.reader(tensor);
  std::vector<double> values;
  model::for_pieces(tensor.rows() - begin, columns, [&](std::int64_t first, std::int64_t last) {
    values.resize(static_cast<std::size_t>((last - first) * columns));
    reader(begin + first, last - first, values);
    for (std::size_t row = 0; row < values.size(); row += static_cast<std::size_t>(columns))
      count +=
          std::any_of(values.begin() + static_cast<std::ptrdiff_t>(row),
                      values.begin() + static_cast<std::ptrdiff_t>(row) + columns, [](double v) { return v != 0; });
  });
  return count;
}

// Compares the rows that both have. Rows beyond are padding if they are zero, and have a note beside the figures
// otherwise.
TensorFit fit_of_vocabulary(const TensorSet& a, const NamedTensor& x, const TensorSet& b, const NamedTensor& y) {
  TensorFit t = fit_of(x, sums_of(a, x, b, y, 0));
  const std::int64_t common = std::min(x.rows(), y.rows());
  const bool of_a = x.rows() > common;
  const std::int64_t count = x.columns() == 0 ? 0 : rows_not_zero(of_a ? a : b, of_a ? x : y, common);
  if (count > 0)
    t.note += (t.note.empty() ? "" : "; ") + std::to_string(count) + (count == 1 ? " row of " : " rows of ") +
              (of_a ? "A" : "B") + " beyond the " + std::to_string(common) + (of_a ? " of B" : " of A") +
              (count == 1 ? " is" : " are") + " not zero";
  return t;
}

// Pairs of tensors in different rotary orders.
using Pairs = std::vector<std::pair<const NamedTensor*, const NamedTensor*>>;
Pairs reordered(const TensorSet& a, const TensorSet& b) {
  Pairs pairs;
  for (const NamedTensor& x : a.tensors()) {
    const NamedTensor* y = b.find(x.key);
    if (y != nullptr && x.shape == y->shape && x.interleaved != y->interleaved) pairs.emplace_back(&x, y);
  }
  return pairs;
}

// The width of a head with which the first q and k agree best.
std::int64_t best_head(const TensorSet& a, const TensorSet& b, const Pairs& pairs) {
  std::int64_t common = 0, best = 2;
  for (const auto& [x, y] : pairs) common = std::gcd(common, x->rows());
  double most = -std::numeric_limits<double>::infinity();
  for (std::int64_t head = 2; head <= common; head += 2) {
    if (common % head != 0) continue;
    double agreement = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(2, pairs.size()); ++i) {
      const double cosine = fit_of(*pairs[i].first, sums_of(a, *pairs[i].first, b, *pairs[i].second, head)).cosine;
      agreement += std::isnan(cosine) ? 0 : std::abs(cosine);
    }
    if (agreement > most) best = head, most = agreement;
  }
  return best;
}

// What the metadata of `set` and the names of its tensors without counterpart in `other` say.
SideFacts facts_of(const TensorSet& set, const TensorSet& other) {
  const auto text_of = [&](const char* key) { return set.metadata(key).value_or(""); };
  SideFacts facts;
  facts.loss = parse_double(text_of("loss"));
  facts.step = parse_double(text_of("step"));
  facts.tokens = parse_double(text_of("tokens"));
  facts.precision = text_of("precision");
  facts.rounded = !facts.precision.empty() && facts.precision != "fp32";
  if (const std::string recipe = text_of("recipe"); facts.rounded && !recipe.empty() && recipe != "none")
    facts.precision += " " + recipe;
  facts.weights = set.holds_weights();
  facts.gradients = !facts.weights && (set.metadata("loss") || set.metadata("grad_norm"));
  for (const NamedTensor& t : set.tensors()) {
    if (other.find(t.key) != nullptr) continue;
    facts.torchtitan += set.names() != TensorNames::torchtitan && is_name_of(t.stored, TensorNames::torchtitan);
    facts.megatron += set.names() != TensorNames::megatron && is_name_of(t.stored, TensorNames::megatron);
  }
  return facts;
}

// Orders tensors without figures first, then infinite distances, then falling ones; equal ones by name.
bool worse(const TensorFit& a, const TensorFit& b) {
  const bool x = !a.note.empty(), y = !b.note.empty();
  if (x != y) return x;
  if (!x && a.relative_l2 != b.relative_l2) return a.relative_l2 > b.relative_l2;
  return a.name < b.name;
}

}  // namespace

Fit fit(const TensorSet& a, const TensorSet& b, const model::ProgressSink& progress) {
  Fit out;
  const Pairs pairs = reordered(a, b);
  const std::optional<Heads>& heads = a.heads() ? a.heads() : b.heads();
  std::int64_t head = heads ? heads->dim : 0;
  for (const auto& [x, y] : pairs)
    if (x->rows() % 2 != 0 || (head > 0 && x->rows() % head != 0))
      throw Error(x->name + ": its " + std::to_string(x->rows()) + " rows are no heads" +
                  (head > 0 ? " of " + std::to_string(head) : "") + ", so their rotary order cannot be undone");
  if (!pairs.empty() && head == 0) head = out.head_dim = best_head(a, b, pairs);
  std::size_t done = 0;
  for (const NamedTensor& x : a.tensors()) {
    if (progress) progress(x.name, done++, a.tensors().size());
    const NamedTensor* y = b.find(x.key);
    if (y == nullptr)
      out.tensors.push_back(without_figures(x.name, "only in A"));
    else if (differ_by_padding(x, *y))
      out.tensors.push_back(fit_of_vocabulary(a, x, b, *y));
    else if (x.shape != y->shape)
      out.tensors.push_back(without_figures(x.name, "shapes differ: " + x.shape_text() + " and " + y->shape_text()));
    else
      out.tensors.push_back(fit_of(x, sums_of(a, x, b, *y, head)));
  }
  for (const NamedTensor& y : b.tensors())
    if (a.find(y.key) == nullptr) out.tensors.push_back(without_figures(y.name, "only in B"));
  std::ranges::sort(out.tensors, worse);
  out.a = facts_of(a, b), out.b = facts_of(b, a);
  return out;
}

}  // namespace fp8::convert
