#include "report.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "fp8/base/characters.h"
#include "fp8/base/expert_name.h"
#include "fp8/cli/output.h"
#include "fp8/statistics/difference.h"
#include "fp8/statistics/records.h"
#include "fp8/statistics/routes.h"

namespace fp8::report {
namespace {

using Rows = std::vector<std::vector<std::string>>;

bool fits(const Rows& rows, std::size_t columns) {
  const std::string table = cli::table(rows);
  std::size_t widest = 0;
  for (std::size_t begin = 0; begin < table.size();) {
    const std::size_t end = table.find('\n', begin);
    widest = std::max(widest, width_of(std::string_view(table).substr(begin, end - begin)));
    begin = end + 1;
  }
  return widest <= columns;
}

// Whether a column with this heading has names of linears.
bool is_name(std::string_view heading) { return heading == "linear" || heading == "group" || heading == "operation"; }

void remove_column(Rows& rows, std::size_t column) {
  for (std::vector<std::string>& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
}

// Moves the columns that have one value in all rows, names aside, to a text: "recipe tensorwise, saturated % 0". Those
// without values are not in it.
std::string take_constants(Rows& rows) {
  std::string text;
  for (std::size_t c = rows[0].size(); c-- > 0;) {
    const std::string value = rows[1][c];
    if (is_name(rows[0][c]) || rows.size() < 3 ||
        std::any_of(rows.begin() + 1, rows.end(), [&](const auto& row) { return row[c] != value; }))
      continue;
    if (value != "-") text = rows[0][c] + " " + value + (text.empty() ? "" : ", ") + text;
    remove_column(rows, c);
  }
  return text;
}

// A table, or the columns of it that matter most where it is wider than `columns`.
std::string fitted(Rows rows, std::size_t columns) {
  constexpr std::array<std::string_view, 6> kLeastFirst{"scale", "subnormal %", "amax", "p", "cosine", "saturated %"};
  if (columns == 0 || fits(rows, columns)) return cli::table(rows);
  for (std::size_t c = 0; c < rows[0].size(); ++c)
    for (auto row = rows.begin() + 1; is_name(rows[0][c]) && row != rows.end(); ++row)
      (*row)[c] = brief_name((*row)[c]);
  if (fits(rows, columns)) return cli::table(rows);
  const std::string constants = take_constants(rows);
  std::string left_out;
  for (const std::string_view name : kLeastFirst) {
    if (fits(rows, columns)) break;
    const auto at = std::ranges::find(rows[0], name);
    if (at == rows[0].end()) continue;
    left_out += (left_out.empty() ? "" : ", ") + std::string(name);
    remove_column(rows, static_cast<std::size_t>(at - rows[0].begin()));
  }
  return cli::table(rows) + (constants.empty() ? "" : "in every row: " + constants + "\n") +
         (left_out.empty() ? "" : "left out here: " + left_out + "\n");
}

void add(std::string& text, const std::string& part) {
  if (!part.empty()) text += (text.empty() ? "" : "\n") + part;
}

std::string lines_of(const std::vector<std::string>& lines, std::size_t columns) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return columns == 0 ? text : cli::wrapped(text, columns);
}

}  // namespace

std::string text_of(const std::vector<json::Value>& records, std::size_t most, std::size_t columns) {
  std::string text = lines_of(statistics::recommendations(records), columns);
  for (const Rows& rows : {statistics::most_harmful_first(records, most), statistics::recipes_in_short(records),
                           statistics::worst_first(records, most), statistics::most_rerouted_first(records, most),
                           statistics::most_sensitive_first(records, most)})
    if (rows.size() > 1) add(text, fitted(rows, columns));
  text += lines_of(statistics::rerouted(records), columns);
  if (const auto tables = statistics::difference_tables(records); tables.first.size() > 1) {
    add(text, "the first that differ\n" + fitted(tables.first, columns));
    add(text, "those that differ most\n" + fitted(tables.largest, columns) + "\n");
  }
  return text + lines_of(statistics::conclusions(records), columns);
}

}  // namespace fp8::report
