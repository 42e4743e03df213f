// attempts.json is small and is rewritten whole before each launch.
#include "fp8/launch/attempts.h"

#include <filesystem>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/folders.h"
#include "fp8/json/json.h"

namespace fp8::launch {

Attempts::Attempts(const std::string& run, json::Value job) : path_(run + "/attempts.json"), job_(std::move(job)) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path_, error);
  if (status.type() == std::filesystem::file_type::not_found) return;
  if (status.type() != std::filesystem::file_type::regular) throw Error(path_ + ": not a regular file");
  read();
}

void Attempts::read() {
  const json::Value file = json::parse_file(path_, {.max_depth = 8, .max_bytes = std::size_t{16} << 20U});
  if (!file.is_object()) throw Error(path_ + ": expected an object; remove the file to count from 0");
  const json::Object& fields = file.as_object();
  const json::Value* job = fields.find("job");
  const std::int64_t step = fields.get_int("step", path_), count = fields.get_int("attempts", path_);
  const std::string& how = fields.get_string("ended", path_);
  std::vector<std::string> lines;
  const char* tail = fields.contains("stderr_tail") ? "stderr_tail" : "said";  // as earlier programs wrote it
  for (const json::Value& line : fields.get_array(tail, path_)) {
    if (!line.is_string()) throw Error(path_ + ": \"" + tail + "\": expected strings");
    lines.push_back(line.as_string());
  }
  if (step < 0 || count < 0) throw Error(path_ + ": negative count; remove the file to count from 0");
  if (job == nullptr || !(*job == job_)) return;
  step_ = step;
  count_ = count;
  how_ = how;
  stderr_tail_ = std::move(lines);
}

void Attempts::write() const {
  json::Array lines;
  for (const std::string& line : stderr_tail_) lines.emplace_back(line);
  const json::Value file = json::object(
      {{"job", job_}, {"step", step_}, {"attempts", count_}, {"ended", how_}, {"stderr_tail", std::move(lines)}});
  (void)remove_leftovers(path_);
  AtomicFile target(path_, true);
  File out = File::open_update(target.path());
  out.write_all(json::dump(file, 2) + "\n");
  out.close();
  target.commit();
}

bool Attempts::observe(std::int64_t step) {
  if (step <= step_) return false;
  step_ = step;
  count_ = 0;
  return true;
}

void Attempts::begin() {
  ++count_;
  how_.clear();
  stderr_tail_.clear();
  write();
}

void Attempts::forgive() {
  if (count_ > 0) --count_;
  if (count_ == 0) {
    clear();
  } else {
    write();
  }
}

void Attempts::failed(const std::string& how, const std::vector<std::string>& said) {
  how_ = how;
  stderr_tail_ = said;
  write();
}

void Attempts::clear() {
  std::error_code error;
  std::filesystem::remove(path_, error);
  if (error) throw Error(path_ + ": cannot be removed: " + error.message());
}

}  // namespace fp8::launch
