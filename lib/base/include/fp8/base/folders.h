/// Permanent and temporary folders, and leftovers of interrupted writers. Files are in file.h. Every function throws
/// Error `path: reason` on failure.
#pragma once

#include <string>
#include <vector>

namespace fp8 {

/// Creates a folder and its missing parents, and syncs the folders that hold the new names. An existing folder is no
/// error.
void make_folders(const std::string& path);

/// Removes the temporary files that killed writers of `target` (see AtomicFile) left in its folder, except those locked
/// by a running process. Returns their paths; empty where the folder cannot be read.
std::vector<std::string> remove_leftovers(const std::string& target);

/// The folder for temporary files: TMPDIR, else /tmp.
std::string temporary_place();

/// A new temporary folder. The destructor removes it with its contents and ignores errors.
class ScratchFolder {
 public:
  /// Creates the folder with mode 0700.
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  /// Its path.
  const std::string& path() const { return path_; }
  /// The path of `name` in it.
  std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace fp8
