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
  std::optional<SweepRecord> record;
  (void)read_json_file(path, [&](const json::Object& fields) {
    SweepRecord found{.flags = strings_of(fields, "flags", path), .command = strings_of(fields, "command", path)};
    found.position = fields.get_int_or("position", 0, path);
    const json::Value* status = fields.find("status");
    if (status != nullptr && !status->is_null()) {
      const std::int64_t number = fields.get_int("status", path);
      if (number < 0 || number > 255) throw Error(path + ": \"status\": no exit status");
      found.status = static_cast<int>(number);
    }
    record = std::move(found);
  });
  return record;
}

void write_sweep_record(const std::string& run, const SweepRecord& record) {
  write_json_file(path_of(run),
                  json::object({{"flags", texts(record.flags)},
                                {"command", texts(record.command)},
                                {"position", record.position},
                                {"status", record.status ? json::Value(*record.status) : json::Value()}}));
}

}  // namespace fp8::launch
