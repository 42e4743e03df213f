// Follows a log: parses whole lines only and detects a replaced file.
#include "fp8/log/follow.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <span>

#include "collector.h"
#include "foreign.h"
#include "fp8/base/error.h"
#include "fp8/base/input.h"
#include "piece.h"
#include "statistics.h"

namespace fp8::log {
namespace {

constexpr std::size_t kFollowedAtOnce = std::size_t{1} << 19U;
constexpr std::size_t kKnown = 256;  // bytes compared to detect a replaced file

}  // namespace

Follower::Follower(std::string path, const Wanted& wanted) : path_(std::move(path)), wanted_(wanted) {
  if (path_ == "-") collector_ = std::make_unique<Collector>(path_, file_name_ = "standard input");
}

Follower::~Follower() = default;

const Run* Follower::run() const { return collector_ == nullptr ? nullptr : &collector_->run(); }

// Whether the bytes read last are still in the open file: it may have been truncated and rewritten.
bool Follower::still_there() const {
  std::string now(known_.size(), '\0');
  try {
    file_.pread_exact(std::as_writable_bytes(std::span(now)), offset_ - now.size());
  } catch (const Error&) {
    return false;
  }
  return now == known_;
}

// Opens the file at the path if it is not the open one; false when there is none.
bool Follower::reopen() {
  struct stat now {
  }, open{};
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path_, ignored);
  file_name_ = folder ? (std::filesystem::path(path_) / kLogFile).string() : path_;
  if (::stat(file_name_.c_str(), &now) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return file_.is_open();
    throw_errno(file_name_, "", errno);
  }
  const bool same = file_.is_open() && ::fstat(file_.fd(), &open) == 0 && open.st_ino == now.st_ino &&
                    open.st_dev == now.st_dev && static_cast<std::uint64_t>(now.st_size) >= offset_ && still_there();
  if (same) return true;
  if (S_ISFIFO(now.st_mode))
    throw Error(file_name_ + ": is a named pipe, which cannot be followed; redirect it to standard input and follow -");
  file_ = File::open_read(file_name_);
  offset_ = 0;
  rest_.clear();
  known_.clear();
  collector_ = std::make_unique<Collector>(path_, file_name_);
  return true;
}

// Appends available bytes to rest_; returns their number.
std::size_t Follower::read_piece_at_most(int milliseconds) {
  const bool piped = path_ == "-";
  if (piped) {
    pollfd waiting{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, milliseconds) <= 0) return 0;
  }
  const std::size_t n = append_some(piped ? STDIN_FILENO : file_.fd(), file_name_, rest_, kFollowedAtOnce);
  ended_ = piped && n == 0;
  return n;
}

bool Follower::poll(int milliseconds) {
  if (path_ != "-" && !reopen()) return false;
  bool any = false;
  while (const std::size_t n = read_piece_at_most(any ? 0 : milliseconds)) {
    any = true;
    if (offset_ == 0) refuse_foreign(file_name_, rest_);
    offset_ += n;
    const std::size_t fresh = rest_.size() - n;
    known_ += rest_.substr(rest_.size() - std::min(n, kKnown));
    known_.erase(0, known_.size() - std::min(known_.size(), kKnown));
    const std::size_t newline = std::string_view(rest_).substr(fresh).rfind('\n');
    if (newline != std::string_view::npos) {
      const std::size_t behind = fresh + newline + 1;
      collector_->take(read_piece(std::string_view(rest_).substr(0, behind), wanted_));
      rest_.erase(0, behind);
    }
    if (rest_.size() > kLongestLine)
      throw Error(file_name_ + ": a line longer than " + std::to_string(kLongestLine) + " bytes");
  }
  return any;
}

Progress progress(const Run& run) {
  Progress p;
  p.planned = run.planned_steps;
  if (!run.steps.empty()) p.steps = run.steps.back();
  if (!run.tokens.empty() && run.tokens.back() >= 0) p.tokens = run.tokens.back();
  const auto recent = [&](const char* metric) {
    const Values all = run.find(metric);
    return quantile(all.last(std::min(all.size(), kRecentSteps)), 0.5);
  };
  p.loss = last(run.find("loss"));
  p.step_s = recent("step_s");
  p.tokens_per_s = recent("tokens_per_s");
  if (!run.evaluations.empty() && std::isfinite(run.evaluations.rbegin()->second.loss)) {
    p.eval_loss = run.evaluations.rbegin()->second.loss;
  }
  if (!run.checkpoints.empty()) p.checkpoint = run.checkpoints.rbegin()->first;
  if (p.planned && p.step_s && *p.planned >= p.steps) {
    p.seconds_left = static_cast<double>(*p.planned - p.steps) * *p.step_s;
  }
  return p;
}

}  // namespace fp8::log
