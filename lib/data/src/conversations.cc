// Recognizes conversations by their first record.
#include <filesystem>

#include "fp8/base/error.h"
#include "fp8/data/tokenize.h"
#include "fp8/json/records.h"

namespace fp8::data {
namespace {

namespace fs = std::filesystem;

bool may_hold_records(const std::string& path, Source from) {
  if (from == Source::json || from == Source::jsonl) return true;
  const std::string extension = fs::path(path).extension().string();
  return from == Source::automatic && (extension == ".jsonl" || extension == ".ndjson" || extension == ".json");
}

}  // namespace

bool holds_conversations(const std::string& path, Source from, const chat::Columns& columns,
                         const std::string& text_column) {
  std::error_code ignored;
  if (path == "-" || !fs::is_regular_file(path, ignored) || !may_hold_records(path, from)) return false;
  try {
    json::RecordReader reader(path, json::Layout::by_content);
    const std::optional<json::Record> record = reader.next();
    if (!record) return false;
    const json::Value value = json::parse(*record, reader.name());
    return value.is_object() && !value.as_object().contains(text_column) &&
           chat::guess_schema(value, columns).has_value();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace fp8::data
