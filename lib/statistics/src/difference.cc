#include "fp8/statistics/difference.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/dtype/dispatch.h"

namespace fp8::statistics {
namespace {

using tensor::View;

constexpr std::size_t kRows = 10;  // number of rows of a table

template <class A, class B>
Difference row_difference(const A* a, const B* b, std::int64_t n) {
  Difference d;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<double>(dtype::to_float(a[i])), y = static_cast<double>(dtype::to_float(b[i]));
    const bool finite_x = std::isfinite(x), finite_y = std::isfinite(y), both = finite_x && finite_y;
    d.nonfinite_a += finite_x ? 0 : 1;
    d.nonfinite_b += finite_y ? 0 : 1;
    d.elements += both ? 1 : 0;
    d.reference += both ? x * x : 0;
    d.difference += both ? (y - x) * (y - x) : 0;
  }
  return d;
}

template <class A, class B>
Difference matrix_difference(const View& a, const View& b) {
  std::vector<Difference> rows(static_cast<std::size_t>(a.shape[0]));
#pragma omp parallel for
  for (std::int64_t r = 0; r < a.shape[0]; ++r)
    rows[static_cast<std::size_t>(r)] =
        row_difference(a.as<A>() + r * a.stride[0], b.as<B>() + r * b.stride[0], a.shape[1]);
  Difference total;
  for (const Difference& row : rows) total += row;  // in order, for any number of threads
  return total;
}

// Without its type and number.
json::Value named(const OperationDifference& o) {
  return json::object({{"pass", o.backward ? "backward" : "forward"},
                       {"layer", o.layer < 0 ? json::Value() : json::Value(o.layer)},
                       {"operation", o.operation},
                       {"result", o.result},
                       {"relative_difference", o.sums.relative()},
                       {"finite_a", o.sums.nonfinite_a == 0},
                       {"finite_b", o.sums.nonfinite_b == 0}});
}

json::Value found(const std::vector<OperationDifference>& operations, const OperationDifference* one) {
  if (one == nullptr) return {};
  json::Value v = named(*one);
  v.as_object().set("order", one - operations.data());
  return v;
}

double operation_number(const json::Object& o, const char* key) { return o.get_double_or(key, NAN, "operation"); }

// null in a record: NaN where no element is finite, and infinite where a is zero and b is not.
std::string shown_difference(const json::Object& o) {
  const double v = operation_number(o, "relative_difference");
  return std::isnan(v) ? "-" : format_short(v, 4);
}

std::string not_finite(const json::Object& o) {
  const bool a = o.get_bool("finite_a", "operation"), b = o.get_bool("finite_b", "operation");
  return a && b ? "" : a ? "B" : b ? "A" : "A and B";
}

std::string words_of(std::string result) {
  std::replace(result.begin(), result.end(), '_', ' ');
  return result;
}

std::vector<std::string> row_of(const json::Object& o) {
  const std::string what = "operation";
  return {std::to_string(o.get_int("order", what)),
          o.get_string("pass", what),
          terminal_safe(o.get_string("operation", what)),
          words_of(o.get_string("result", what)),
          shown_difference(o),
          not_finite(o)};
}

std::string sentence(const json::Object& o) {
  const std::string what = "operation";
  return terminal_safe(o.get_string("operation", what)) + ", " + o.get_string("pass", what) + ", " +
         words_of(o.get_string("result", what)) + ", number " + std::to_string(o.get_int("order", what));
}

}  // namespace

Difference& Difference::operator+=(const Difference& o) {
  elements += o.elements;
  nonfinite_a += o.nonfinite_a;
  nonfinite_b += o.nonfinite_b;
  reference += o.reference;
  difference += o.difference;
  return *this;
}

double Difference::relative() const {
  if (elements == 0) return NAN;
  return difference == 0 ? 0 : std::sqrt(difference / reference);
}

Difference difference(const View& a, const View& b) {
  if (a.shape != b.shape) throw Error("difference: results of different shapes");
  Difference d;
  dtype::with_float_type(a.dtype, "difference", [&]<class A>() {
    dtype::with_float_type(b.dtype, "difference", [&]<class B>() { d = matrix_difference<A, B>(a, b); });
  });
  return d;
}

const OperationDifference* first_above(const std::vector<OperationDifference>& operations, double bound) {
  const auto at = std::ranges::find_if(operations, [&](const auto& o) { return o.sums.relative() > bound; });
  return at == operations.end() ? nullptr : &*at;
}

const OperationDifference* first_nonfinite(const std::vector<OperationDifference>& operations) {
  const auto at = std::ranges::find_if(
      operations, [](const OperationDifference& o) { return o.sums.nonfinite_a + o.sums.nonfinite_b > 0; });
  return at == operations.end() ? nullptr : &*at;
}

std::vector<json::Value> records_of(const std::vector<OperationDifference>& operations, double bound,
                                    const json::Value& about) {
  std::vector<json::Value> records;
  for (const OperationDifference& o : operations) {
    json::Value record = json::object({{"type", "operation"}, {"order", records.size()}});
    const json::Value members = named(o);
    for (const auto& [key, value] : members.as_object()) record.as_object().set(key, value);
    records.push_back(std::move(record));
  }
  json::Value end = json::object({{"type", "bisection"}});
  for (const auto& [key, value] : about.as_object()) end.as_object().set(key, value);
  end.as_object().set("operations", operations.size());
  end.as_object().set("bound", bound);
  end.as_object().set("first_above", found(operations, first_above(operations, bound)));
  end.as_object().set("first_nonfinite", found(operations, first_nonfinite(operations)));
  records.push_back(std::move(end));
  return records;
}

DifferenceTables difference_tables(const std::vector<json::Value>& records) {
  std::vector<const json::Object*> operations, different;
  for (const json::Value& v : records)
    if (v.as_object().get_string("type", "record") == "operation") operations.push_back(&v.as_object());
  if (operations.empty()) return {};
  std::ranges::copy_if(operations, std::back_inserter(different), [](const json::Object* o) {
    return !(operation_number(*o, "relative_difference") == 0) || !not_finite(*o).empty();
  });
  const std::vector<std::string> heading{"number", "pass", "operation", "result", "difference", "not finite in"};
  DifferenceTables tables{{heading}, {heading}};
  for (const json::Object* o : different)
    if (tables.first.size() <= kRows) tables.first.push_back(row_of(*o));
  const auto size = [](const json::Object* o) {
    const double v = operation_number(*o, "relative_difference");
    return std::isnan(v) ? HUGE_VAL : v;
  };
  std::ranges::stable_sort(different, [&](const json::Object* x, const json::Object* y) { return size(x) > size(y); });
  for (const json::Object* o : different)
    if (tables.largest.size() <= kRows) tables.largest.push_back(row_of(*o));
  return tables;
}

std::vector<std::string> conclusions(const std::vector<json::Value>& records) {
  const std::string what = "bisection";
  std::vector<std::string> lines;
  for (const json::Value& v : records) {
    const json::Object& o = v.as_object();
    if (o.get_string("type", what) != what) continue;
    const json::Value &above = *o.find("first_above"), &nonfinite = *o.find("first_nonfinite");
    const std::string bound = format_short(operation_number(o, "bound"), 4);
    lines.push_back("A: " + terminal_safe(o.get_string("a", what)) + "  loss " +
                    format_short(operation_number(o, "loss_a"), 6));
    lines.push_back("B: " + terminal_safe(o.get_string("b", what)) + "  loss " +
                    format_short(operation_number(o, "loss_b"), 6));
    lines.push_back(
        above.is_null()
            ? "no operation of " + std::to_string(o.get_int("operations", what)) + " differs by more than " + bound
            : "first above " + bound + ": " + sentence(above.as_object()) + ": " + shown_difference(above.as_object()));
    lines.push_back(nonfinite.is_null() ? "every result is finite"
                                        : "first not finite: " + sentence(nonfinite.as_object()) + ": in " +
                                              not_finite(nonfinite.as_object()));
  }
  return lines;
}

}  // namespace fp8::statistics
