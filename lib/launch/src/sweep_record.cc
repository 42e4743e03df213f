// JSON of sweep.json.
#include "sweep_record.h"

#include "fp8/base/error.h"
#include "json_file.h"

namespace fp8::launch {
namespace {

std::string path_of(const std::string& run) { return run + "/sweep.json"; }

}  // namespace

std::optional<SweepRecord> read_sweep_record(const std::string& run) {
  const std::string path = path_of(run);
  const json::Value file = read_json_file(path);
  if (file.is_null()) return std::nullopt;
  const json::Object& fields = file.as_object();
  SweepRecord record{strings_of(fields, "flags", path), strings_of(fields, "command", path), std::nullopt};
  const json::Value* status = fields.find("status");
  if (status == nullptr || status->is_null()) return record;
  const std::int64_t number = fields.get_int("status", path);
  if (number < 0 || number > 255) throw Error(path + ": \"status\": no exit status; remove the file to start afresh");
  record.status = static_cast<int>(number);
  return record;
}

void write_sweep_record(const std::string& run, const SweepRecord& record) {
  write_json_file(path_of(run),
                  json::object({{"flags", texts(record.flags)},
                                {"command", texts(record.command)},
                                {"status", record.status ? json::Value(*record.status) : json::Value()}}));
}

}  // namespace fp8::launch
