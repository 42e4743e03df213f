// The check of the path that a tool writes: not a path that it reads, and no part of a committed checkpoint. Every
// tool's output passes here, by check_output() or, if it is a folder, by check_not_input().
#include "output.h"

#include <cerrno>
#include <filesystem>
#include <set>
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

void check_output(const std::string& path, bool force, const std::vector<std::string>& inputs) {
  if (path.empty()) throw Error("output: empty path");
  if (path == "-")
    throw Error("-: the output cannot be standard output, since it is read back and renamed; give a file name");
  struct stat s {};
  if (path.back() == '/') throw Error(path + ": names a folder");
  const std::string parent = parent_directory(path);
  if (::stat(parent.c_str(), &s) != 0) throw_errno(path, "cannot write in " + parent, errno);
  if (!S_ISDIR(s.st_mode)) throw_errno(path, "cannot write in " + parent, ENOTDIR);
  if (!status_of(path, s)) return;
  check_not_input(path, inputs);
  if (!S_ISREG(s.st_mode)) throw Error(path + ": exists and is not a regular file");
  if (!force) throw_exists(path);
}

}  // namespace fp8
