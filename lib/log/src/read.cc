// Reads logs in pieces of whole lines, parsed on all processors and assembled in order.
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <future>
#include <limits>
#include <map>
#include <thread>
#include <utility>

#include "collector.h"
#include "foreign.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/input.h"
#include "fp8/log/run.h"
#include "fp8/log/sweep_folder.h"
#include "piece.h"

namespace fp8::log {
namespace {

constexpr std::size_t kReadAtOnce = std::size_t{1} << 18U;
// Bytes that a thread parses: that takes far longer than starting a thread.
constexpr std::size_t kParsedPiece = std::size_t{1} << 19U;

// Pieces of whole lines from a descriptor; bytes after the last newline begin the next piece.
class Pieces {
 public:
  Pieces(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}

  // The next piece; empty at the end. Only the last one may lack its newline.
  std::string next() {
    std::string piece = std::move(rest_);
    rest_.clear();
    std::size_t scanned = 0, newline = std::string::npos;
    while (!ended_ && (piece.size() < kParsedPiece || newline == std::string::npos)) {
      ended_ = append_some(fd_, name_, piece, kReadAtOnce) == 0;
      const std::size_t last = std::string_view(piece).substr(scanned).rfind('\n');
      if (last != std::string_view::npos) newline = scanned + last;
      scanned = piece.size();
      if (newline == std::string::npos && piece.size() > kLongestLine) break;
    }
    if (!ended_ && newline != std::string::npos) {
      rest_ = piece.substr(newline + 1);
      piece.resize(newline + 1);
    }
    return piece;
  }
  bool ended() const { return ended_; }
  const std::string& name() const { return name_; }

 private:
  int fd_;
  std::string name_;
  std::string rest_;
  bool ended_ = false;
};

// Parses pieces in parallel, one per processor and one more, and collects them in order.
void collect(Pieces& pieces, const Wanted& wanted, Collector& collector) {
  std::deque<std::future<Piece>> under_way;
  const std::size_t most = std::max(1U, std::thread::hardware_concurrency()) + 1;
  const auto take_one = [&] {
    std::future<Piece> first = std::move(under_way.front());
    under_way.pop_front();
    collector.take(first.get());
  };
  std::exception_ptr unreadable;
  bool first = true;
  for (bool more = true; more;) {
    std::string text;
    try {
      text = pieces.next();
    } catch (const Error&) {
      unreadable = std::current_exception();  // thrown after the pieces before it are collected
    }
    if (std::exchange(first, false)) refuse_foreign(pieces.name(), text);
    more = !text.empty() && !pieces.ended();
    if (!text.empty()) {
      // A log of one piece is parsed on this thread, and so is a piece when no thread can be created.
      const std::launch how =
          under_way.empty() && !more ? std::launch::deferred : std::launch::async | std::launch::deferred;
      under_way.push_back(std::async(how, [text = std::move(text), &wanted] { return read_piece(text, wanted); }));
    }
    while (under_way.size() >= most || (!more && !under_way.empty())) take_one();
  }
  if (unreadable) std::rethrow_exception(unreadable);
}

}  // namespace

std::string log_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  std::string file = (std::filesystem::path(path) / kLogFile).string();
  if (std::filesystem::exists(file, ignored)) return file;
  if (std::filesystem::exists(std::filesystem::path(path) / "manifest.json", ignored))
    throw Error(path + ": is a checkpoint, not a run; give the folder of its run, which contains " +
                std::string(kLogFile));
  std::string reason = ": contains no " + std::string(kLogFile);
  if (is_sweep_folder(path)) {
    const std::string folder = path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
    reason += ", but folders in it do: give " + folder + "/*, or --compare " + folder +
              ", which compares the sides of a sweep";
  }
  throw Error(path + reason);
}

std::string run_name(const std::string& path) {
  if (path == "-") return "stdin";
  std::string text = path;
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  std::filesystem::path p(text);
  if (p == kLogFile) p = "./" + text;
  if (p.filename() == kLogFile && !p.parent_path().filename().empty()) p = p.parent_path();
  if (p.filename() == "." || p.filename() == "..") {
    std::error_code failed;
    const std::filesystem::path real = std::filesystem::canonical(p, failed);
    if (!failed) p = real;
  }
  std::string name = p.filename().string();
  if (name.ends_with(".jsonl") && name.size() > 6) name.resize(name.size() - 6);
  return name.empty() ? path : name;
}

std::vector<std::string> run_names(std::span<const std::string> paths) {
  std::map<std::string, int> times, seen;
  for (const std::string& path : paths) ++times[run_name(path)];
  std::vector<std::string> names;
  for (const std::string& path : paths) {
    std::string name = run_name(path);
    if (times[name] > 1) name = path;
    const int now = ++seen[name];
    names.push_back(now > 1 ? name + "-" + std::to_string(now) : name);
  }
  return names;
}

std::size_t Run::index_of(std::int64_t step) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(steps, step) - steps.begin());
}

std::span<const double> Run::find(std::string_view metric) const {
  const auto at = std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.name == metric; });
  return at == columns.end() ? std::span<const double>() : at->values;
}

std::vector<std::string> metrics_of(std::span<const Run> runs) {
  std::vector<std::string> names;
  for (const Run& run : runs) {
    for (const std::string& name : run.metrics) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

void cut_run(Run& run, std::int64_t from, std::int64_t to) {
  const std::size_t begin = run.index_of(from),
                    end = std::max(begin, run.index_of(to == std::numeric_limits<std::int64_t>::max() ? to : to + 1));
  const auto keep = [&](auto& all, std::size_t size) {
    using Offset = std::ptrdiff_t;
    if (all.size() != size) return;  // a column that no step has
    all.erase(all.begin() + static_cast<Offset>(end), all.end());
    all.erase(all.begin(), all.begin() + static_cast<Offset>(begin));
  };
  const std::size_t size = run.steps.size();
  for (Column& column : run.columns) keep(column.values, size);
  keep(run.steps, size);
  keep(run.tokens, size);
  std::vector<Phase> phases;
  for (Phase& phase : run.phases) {
    if (phase.first >= end) break;
    phase.first = std::max(phase.first, begin) - begin;
    if (!phases.empty() && phases.back().first == phase.first) phases.pop_back();
    phases.push_back(std::move(phase));
  }
  run.phases = run.steps.empty() ? std::vector<Phase>() : std::move(phases);
  const std::int64_t first =
      begin > 0 && !run.steps.empty() ? run.steps.front() : from;  // before it no tokens are known
  const auto outside = [&](const auto& event) { return event.first < std::max(from, first) || event.first > to; };
  std::erase_if(run.evaluations, outside);
  std::erase_if(run.checkpoints, outside);
  std::erase_if(run.restarts, [&](std::int64_t step) { return step <= from || step > to; });
}

Run read_run(const std::string& path, const Wanted& wanted) {
  const bool piped = path == "-";
  const std::string name = piped ? "standard input" : log_file(path);
  File file;
  if (!piped) file = File::open_read(name, wanted.waiting);
  Pieces pieces(piped ? STDIN_FILENO : file.fd(), name);
  Collector collector(path, name);
  collect(pieces, wanted, collector);
  collector.finish();
  return collector.release();
}

}  // namespace fp8::log
