/// Folders that last, those that do not, and what the writers of files leave in them. Files themselves are in file.h.
/// Every function throws Error `path: reason` on failure.
#pragma once

#include <string>
#include <vector>

namespace fp8 {

/// Makes a folder and those above it that are missing, and syncs the folders that hold the new names. One that is there
/// already is no error.
void make_folders(const std::string& path);

/// Removes what killed writers of `target` (see AtomicFile) left beside it, and spares what a living one has locked.
/// Returns what was removed; none where the folder cannot be read.
std::vector<std::string> remove_leftovers(const std::string& target);

/// The folder for temporary files: TMPDIR, else /tmp.
std::string temporary_place();

/// A fresh folder there, which goes with all in it when its owner does. What cannot be removed is left.
class ScratchFolder {
 public:
  /// Makes it, for the user alone.
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
