// Logs of runs: an accepted log is summarized and compared with itself.
#include <span>

#include "../../lib/log/tests/parse_run.h"
#include "fp8/json/json.h"
#include "fp8/log/compare.h"
#include "fuzz.h"

FP8_FUZZ(log) {
  using namespace fp8;
  return fuzz::judge([&] {
    const std::string_view text = fuzz::text_of(data, size);
    const log::Run run = log::parse_run(text, "log.jsonl", {.all = true, .metrics = {}});
    fuzz::require(run.tokens.size() == run.steps.size(), "a step has a count of tokens");
    for (const log::Column& column : run.columns)
      fuzz::require(column.values.size() == run.steps.size(), "a column has a value for each step");
    json::dump(log::record(log::summarize(run)));
    const std::span<const log::Run> one(&run, 1);
    json::dump(log::record(log::compare(one, one), 0.01));
  });
}
