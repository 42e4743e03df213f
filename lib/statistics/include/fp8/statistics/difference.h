/// Differences of the results that two computations of the same operations gave: sums over elements, records and
/// tables. On the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/json/value.h"
#include "fp8/tensor/tensor.h"

namespace fp8::statistics {

/// Sums over the elements of two results a and b of one operation that are finite in both.
struct Difference {
  std::int64_t elements = 0;     ///< number of elements that are finite in both
  std::int64_t nonfinite_a = 0;  ///< elements of a that are NaN or infinite
  std::int64_t nonfinite_b = 0;  ///< elements of b that are
  double reference = 0;          ///< sum of a^2
  double difference = 0;         ///< sum of (b - a)^2

  /// Adds the sums of other elements.
  Difference& operator+=(const Difference& o);
  /// |b - a| / |a|, Euclidean norms: 0 if both are equal, infinite if only a is zero, NaN without elements.
  double relative() const;
};

/// Sums over a [rows, cols] and b of the same shape, each f32 or bf16 with unit column stride, on the host. The
/// bits do not depend on the number of threads. Throws Error if the shapes differ.
Difference difference(const tensor::View& a, const tensor::View& b);

/// The difference of one result.
struct OperationDifference {
  bool backward = false;    ///< pass
  int layer = -1;           ///< layer from 0; -1 outside of the layers
  std::string operation{};  ///< full name; the weight's name if the result is its gradient
  std::string result{};     ///< output, input_gradient or weight_gradient
  Difference sums{};        ///< sums over all ranks
};

/// The first operation whose relative difference is above `bound`; null if there is none.
const OperationDifference* first_above(const std::vector<OperationDifference>& operations, double bound);
/// The first operation with an element that is not finite in a or b; null if there is none.
const OperationDifference* first_nonfinite(const std::vector<OperationDifference>& operations);

/// {"type":"operation"} records in order of execution, as fp8-inspect(1) describes them, then {"type":"bisection"}
/// with the first above `bound`, the first that is not finite, and the members of `about`.
std::vector<json::Value> records_of(const std::vector<OperationDifference>& operations, double bound,
                                    const json::Value& about);

/// Rows of tables of {"type":"operation"} records. The first row is the heading; empty without such a record.
struct DifferenceTables {
  std::vector<std::vector<std::string>> first;    ///< the first ten operations that differ
  std::vector<std::vector<std::string>> largest;  ///< the ten operations that differ most
};

/// The tables of some records; records of other types are ignored.
DifferenceTables difference_tables(const std::vector<json::Value>& records);

/// Lines that state the {"type":"bisection"} records.
std::vector<std::string> conclusions(const std::vector<json::Value>& records);

}  // namespace fp8::statistics
