/// Permanent and temporary folders, and leftovers of interrupted writers. Files are in file.h. Every function throws
/// Error `path: reason` on failure.
#pragma once

#include <string>
#include <vector>

#include "fp8/base/file.h"

namespace fp8 {

/// Creates a folder and its missing parents, and syncs the folders that hold the new names. An existing folder is no
/// error.
void make_folders(const std::string& path);

/// Removes the temporary files and folders that killed writers of `output` (see AtomicFile, AtomicFolder) left next to
/// it, except those locked by a running process. Returns their paths; empty where the folder cannot be read.
std::vector<std::string> remove_leftovers(const std::string& output);

/// Removes the temporary files and folders (see AtomicFile, AtomicFolder) that this process is writing, for a process
/// that is about to end while other threads write. Ignores errors. Finds them by their locks among the descriptors of
/// the process, so it needs no list of them.
void remove_unfinished() noexcept;

/// A folder that appears under its final name only when it is complete: filled under a temporary name next to it, then
/// renamed. Files in it are synced by who writes them. Until the commit it also has a file `.lock`, locked while this
/// object exists, by which remove_leftovers() recognizes the folder of a killed process.
class AtomicFolder {
 public:
  /// Creates an empty temporary folder next to `target`. Throws Error when the parent of `target` does not exist, or
  /// `target` exists and is not a folder that `replace` allows to replace.
  AtomicFolder(const std::string& target, bool replace);
  /// Removes the temporary folder unless it was committed.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// The temporary folder.
  const std::string& path() const { return temporary_; }
  /// Syncs the temporary folder and renames it to the target; a target that is replaced is removed.
  void commit();

 private:
  std::string target_;
  std::string temporary_;
  File lock_;
  bool replace_;
  bool committed_ = false;
};

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

  /// The path of the folder.
  const std::string& path() const { return path_; }
  /// The path of `name` in it.
  std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace fp8
