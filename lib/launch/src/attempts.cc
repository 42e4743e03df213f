// attempts.json is small and is rewritten whole before each launch.
#include "fp8/launch/attempts.h"

#include <filesystem>

#include "fp8/base/error.h"
#include "json_file.h"

namespace fp8::launch {

Attempts::Attempts(const std::string& run, json::Value job) : path_(run + "/attempts.json"), job_(std::move(job)) {
  (void)read_json_file(path_, [&](const json::Object& fields) { read(fields); });
}

void Attempts::read(const json::Object& fields) {
  const json::Value* job = fields.find("job");
  const std::int64_t step = fields.get_int("step", path_), count = fields.get_int("attempts", path_);
  const std::string& how = fields.get_string("ended", path_);
  const char* tail = fields.contains("stderr_tail") ? "stderr_tail" : "said";  // as earlier programs wrote it
  std::vector<std::string> lines = strings_of(fields, tail, path_);
  if (step < 0 || count < 0) throw Error(path_ + ": negative count");
  if (job == nullptr || !(*job == job_)) return;
  step_ = step;
  count_ = count;
  how_ = how;
  stderr_tail_ = std::move(lines);
}

void Attempts::write() const {
  write_json_file(path_, json::object({{"job", job_},
                                       {"step", step_},
                                       {"attempts", count_},
                                       {"ended", how_},
                                       {"stderr_tail", texts(stderr_tail_)}}));
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
