// Records of a run: buffered, written and passed on.
#include "fp8/state/journal.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/base/utc.h"
#include "fp8/json/json.h"

namespace fp8::state {
namespace {

constexpr std::size_t kMostUnwritten = std::size_t{16} << 20;  // bytes of buffered records

}  // namespace

bool ends_unfinished(const std::string& path, std::uint64_t size) {
  std::array<std::byte, 1> last{std::byte{'\n'}};
  if (size > 0) File::open_read(path).pread_exact(last, size - 1);
  return last[0] != std::byte{'\n'};
}

void Journal::open(const std::string& run_folder, const LockedFolder& held) {
  if (!writes_) return;
  held_ = &held;
  const std::string path = run_folder + "/log.jsonl";
  log_ = File::open_append(path);
  log_end_ = log_.size();
  if (ends_unfinished(path, log_end_)) unwritten_ = "\n";
}

// Writes the buffered records, all or none, so that readers find complete lines. Returns the first reason of a series
// of failures.
std::optional<std::string> Journal::write_log() {
  if (!log_.is_open() || !held_->in_place()) return std::nullopt;
  try {
    if (log_failing_) log_.truncate(log_end_);
    log_.write_all(unwritten_);
    log_end_ += unwritten_.size();
    unwritten_.clear();
    log_failing_ = false;
  } catch (const Error& e) {
    (void)::ftruncate(log_.fd(), static_cast<off_t>(log_end_));  // if it fails, again before the next records
    if (!std::exchange(log_failing_, true)) return e.what();
  }
  return std::nullopt;
}

void Journal::emit(const json::Value& record) {
  if (!writes_) return;
  const watchdog::LocalWork local(host_comm_.progress());
  json::Value timed = record;
  timed.as_object().set("time", utc_text(std::chrono::system_clock::now()));
  if (unwritten_.size() < kMostUnwritten) {
    unwritten_ += json::dump(timed) + "\n";
  } else {
    ++lost_;
  }
  const std::optional<std::string> problem = write_log();
  try {
    if (!output_failure_ && hooks_.record) hooks_.record(timed);
  } catch (...) {
    output_failure_ = std::current_exception();
  }
  const bool first = !std::exchange(begun_, true);
  if (problem) warn(-1, *problem + "; records are buffered in memory until they can be written");
  if (!first) return;
  for (const json::Value& warning : std::exchange(early_, {})) emit(warning);
}

void Journal::warn(std::int64_t step, const std::string& message) {
  if (!writes_) return;
  const watchdog::LocalWork local(host_comm_.progress());
  json::Value record = json::object({{"type", "warning"}});
  if (step >= 0) record.as_object().set("step", step);
  record.as_object().set("message", message);
  if (begun_) {
    emit(record);
  } else {
    early_.push_back(std::move(record));
  }
  if (hooks_.warning) hooks_.warning(message);
}

void Journal::close() {
  if (!log_failing_) return;
  const watchdog::LocalWork local(host_comm_.progress());
  const auto waiting = std::count(unwritten_.begin(), unwritten_.end(), '\n') - (unwritten_.starts_with('\n') ? 1 : 0);
  if (hooks_.warning) hooks_.warning(log_.path() + ": lacks the last " + std::to_string(waiting + lost_) + " records");
}

void Journal::note(const std::string& text) const {
  if (!writes_ || !hooks_.note) return;
  const watchdog::LocalWork local(host_comm_.progress());
  hooks_.note(text);
}

void Journal::progress(const std::string& text) const {
  if (!writes_ || !hooks_.progress) return;
  const watchdog::LocalWork local(host_comm_.progress());
  hooks_.progress(text);
}

void Journal::progress(const std::string& text, double seconds, std::int64_t done, std::int64_t left) const {
  const double rest = seconds * static_cast<double>(left) / static_cast<double>(std::max<std::int64_t>(done, 1));
  progress(left > 0 && done > 0 ? text + "  ETA " + human_seconds(rest) : text);
}

void Journal::rethrow() const {
  if (!failed()) return;
  try {
    std::rethrow_exception(output_failure_);
  } catch (const std::exception&) {
    const Error error = current_error();
    throw comm::AgreedError(error.what(), error.code());
  } catch (...) {
    return;  // the reader of standard output has closed it
  }
}

}  // namespace fp8::state
