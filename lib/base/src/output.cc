// The check of the path that a tool writes: not a path that it reads, no part of a committed checkpoint, and no file
// that a run writes in its folder. Every tool's output passes here, by check_output() or, if it is a folder, by
// check_not_input() and check_not_of_run().
#include "output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/file.h"

namespace fp8 {
namespace {

namespace fs = std::filesystem;

// Device and inode.
using FileId = std::pair<dev_t, ino_t>;

// Calls `visit` with the identity of `path`, links followed, and, if it is a folder, with those of all files in it.
// Links to folders are visited, but not the files in those folders. Unreadable files are left out.
template <class Visit>
void visit_files(const std::string& path, const Visit& visit) {
  struct stat s {};
  if (::stat(path == "-" ? "/dev/stdin" : path.c_str(), &s) != 0) return;
  visit(FileId(s.st_dev, s.st_ino));
  if (!S_ISDIR(s.st_mode)) return;
  std::error_code error;
  const fs::recursive_directory_iterator end;
  for (fs::recursive_directory_iterator at(path, fs::directory_options::skip_permission_denied, error);
       !error && at != end; at.increment(error))
    if (::stat(at->path().c_str(), &s) == 0) visit(FileId(s.st_dev, s.st_ino));
}

// Whether a folder is a committed checkpoint of one file per rank.
bool is_checkpoint(const std::string& folder) {
  std::error_code error;
  if (!fs::is_regular_file(folder + "/manifest.json", error)) return false;
  const fs::directory_iterator end;
  for (fs::directory_iterator at(folder, error); !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(".h5")) return true;
  }
  return false;
}

// Whether a name is that of a checkpoint in the folder of a run, finished or not: step-00000001, step-00000002.tmp.
bool is_step(std::string_view name) {
  constexpr std::string_view kStep = "step-";
  if (!name.starts_with(kStep)) return false;
  const std::size_t end = name.find_first_not_of("0123456789", kStep.size());
  return end != kStep.size() && name.size() > kStep.size() &&
         (end == std::string_view::npos || (name[end] == '.' && name.ends_with(".tmp")));
}

// Whether a run, fp8-resume or fp8-sweep writes a file or a folder of that name in the folder of the run.
bool is_run_file(std::string_view name) {
  constexpr std::array<std::string_view, 6> kNames{"log.jsonl",     "tensors.jsonl", ".lock",
                                                   "attempts.json", "sweep.json",    "sweep.log"};
  return std::ranges::find(kNames, name) != kNames.end() || is_step(name) ||
         (name.starts_with("profile-") && name.ends_with(".json"));
}

// Whether a folder is that of a run, by what each run has from its start, or by a checkpoint, which has eight digits.
bool holds_run(const fs::path& folder) {
  constexpr std::size_t kLeastLength = std::string_view("step-00000000").size();
  std::error_code error;
  const fs::directory_iterator end;
  for (fs::directory_iterator at(folder, error); !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name == "log.jsonl" || name == ".lock" || name == "sweep.json") return true;
    if (is_step(name) && name.size() >= kLeastLength) return true;
  }
  return false;
}

// Throws Error if the place of a file or folder, or of one that holds it, is that of a file that a run writes.
void check_names(const std::string& path, const fs::path& place, const fs::path& own) {
  fs::path folder;
  for (const fs::path& part : place) {
    if (is_run_file(part.string()) && ((!own.empty() && folder == own) || holds_run(folder)))
      throw Error(path + ": belongs to a run, which writes " + part.string() + " itself; give another name");
    folder /= part;
  }
}

// Throws Error unless the folder of an output exists; returns whether the output does.
bool check_place(const std::string& path, struct stat& s) {
  if (path.empty()) throw Error("output: empty path");
  if (path == "-")
    throw Error("-: the output cannot be standard output, since it is read back and renamed; give a file name");
  if (path.back() == '/') throw Error(path + ": names a folder");
  const std::string parent = parent_directory(path);
  if (::stat(parent.c_str(), &s) != 0) throw_errno(path, "cannot write in " + parent, errno);
  if (!S_ISDIR(s.st_mode)) throw_errno(path, "cannot write in " + parent, ENOTDIR);
  return status_of(path, s);
}

// Throws Error unless an output that exists can be replaced.
void check_replaceable(const std::string& path, const struct stat& s, bool force) {
  if (!S_ISREG(s.st_mode)) throw Error(path + ": exists and is not a regular file");
  if (!force) throw_exists(path);
}

}  // namespace

void throw_exists(const std::string& path) { throw Error(path + ": exists", {{"force", "to replace it"}}); }

bool status_of(const std::string& path, struct stat& s) {
  if (::lstat(path.c_str(), &s) == 0) return true;
  if (errno == ENOENT) return false;
  throw_errno(path, "", errno);
}

void check_not_input(const std::string& output, const std::vector<std::string>& inputs) {
  std::error_code ignored;
  if (!fs::exists(output, ignored)) return;
  std::set<FileId> replaced;
  visit_files(output, [&](FileId id) { replaced.insert(id); });
  for (const std::string& input : inputs)
    visit_files(input, [&](FileId id) {
      if (!replaced.contains(id)) return;
      if (fs::is_directory(output, ignored) && !fs::equivalent(output, input, ignored))
        throw Error(output + ": shares files with the input " + input);
      throw Error(output + ": is also an input" + (fs::is_directory(input, ignored) ? ", in " + input : ""));
    });
  if (!fs::is_directory(output, ignored) && is_checkpoint(parent_directory(output)))
    throw Error(output + ": is part of a committed checkpoint, of which no file is replaced");
}

void check_not_of_run(const std::string& output, const std::string& own) {
  std::error_code error;
  fs::path path = fs::absolute(output, error);
  if (!path.has_filename()) path = path.parent_path();  // ends in a slash
  const fs::path folder = own.empty() ? fs::path() : fs::weakly_canonical(own, error);
  const fs::path target = fs::weakly_canonical(path, error);  // of a link: where it leads to
  if (!error) check_names(output, target, folder);
  const fs::path parent = fs::weakly_canonical(path.parent_path(), error);
  if (!error && path.filename() != "..") check_names(output, parent / path.filename(), folder);
}

void check_target(const std::string& path, bool force) {
  struct stat s {};
  if (!check_place(path, s)) return;
  check_not_input(path, {});
  check_replaceable(path, s, force);
}

void check_output(const std::string& path, bool force, const std::vector<std::string>& inputs) {
  struct stat s {};
  const bool exists = check_place(path, s);
  if (exists) check_not_input(path, inputs);
  check_not_of_run(path);
  if (exists) check_replaceable(path, s, force);
}

}  // namespace fp8
