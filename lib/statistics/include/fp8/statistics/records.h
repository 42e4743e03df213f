/// Results as records of JSON Lines, and as a table.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fp8/json/value.h"
#include "fp8/statistics/collector.h"

namespace fp8::statistics {

/// No limit of the rows of a table.
inline constexpr std::size_t kAllRows = std::numeric_limits<std::size_t>::max();

/// {"type":"operand"} and {"type":"gemm"} records as fp8-inspect(1) describes them, by linear, GEMM and operand; the
/// record of a GEMM follows those of its operands. `name_of` gives the name of a linear by its number.
std::vector<json::Value> records_of(const Results& results, const std::string& recipe,
                                    const std::function<std::string(int)>& name_of);

/// The rows of a table of {"type":"operand"} records, those of the GEMM with the largest error first, of one GEMM the
/// lowest SQNR first; the first row is the heading, and at most `most` follow. A cast that several GEMMs of a linear
/// read, whose records have the same figures, is one row. Other records are ignored.
std::vector<std::vector<std::string>> worst_first(const std::vector<json::Value>& records, std::size_t most = kAllRows);

/// The rows of a table of {"type":"sensitivity"} records: forward GEMMs with the largest rise of the loss first, then
/// the others with the largest difference of the gradient first; heading and `most` as above.
std::vector<std::vector<std::string>> most_sensitive_first(const std::vector<json::Value>& records,
                                                           std::size_t most = kAllRows);

/// The rows of a table of {"type":"group"} records, the largest rise of the loss first; heading and `most` as above.
std::vector<std::vector<std::string>> most_harmful_first(const std::vector<json::Value>& records,
                                                         std::size_t most = kAllRows);

/// The rows of a table of recipes: the loss of the batch, the mean and the largest error of a GEMM with its name, and
/// the largest share of an operand that underflows, the least mean first. Before them a row with the loss of the batch
/// in bf16, if the records have changes of the loss of this batch alone. The first row is the heading; empty unless the
/// records are of several recipes.
std::vector<std::vector<std::string>> recipes_in_short(const std::vector<json::Value>& records);

/// Lines that state the {"type":"recommendation"} records, and, from the {"type":"operand"} and {"type":"group"}
/// records beside them, the cast that loses most and its effect on the loss.
std::vector<std::string> recommendations(const std::vector<json::Value>& records);

}  // namespace fp8::statistics
