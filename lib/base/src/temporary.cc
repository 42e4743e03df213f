// Temporary files and folders, in TMPDIR or /tmp.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/folders.h"

namespace fp8 {
namespace {

// The template for mkostemp and mkdtemp in `folder`.
std::string template_in(const std::string& folder) { return folder + "/fp8-XXXXXX"; }

}  // namespace

std::string temporary_place() {
  const char* set = std::getenv("TMPDIR");
  return set != nullptr && *set != 0 ? set : "/tmp";
}

File File::unnamed(const std::string& folder, const std::string& path) {
  constexpr int kOwnerOnly = 0600;
  if (const int unnamed = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kOwnerOnly); unnamed >= 0)
    return {unnamed, path};
  std::string name = template_in(folder);
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) throw_errno(path, "cannot make a temporary file", errno);
  File file(fd, path);
  if (::unlink(name.c_str()) != 0) throw_errno(path, "cannot unlink a temporary file", errno);
  return file;
}

File File::temporary() { return unnamed(temporary_place(), temporary_place()); }

ScratchFolder::ScratchFolder() : path_(template_in(temporary_place())) {
  if (::mkdtemp(path_.data()) == nullptr) throw_errno(temporary_place(), "cannot make a temporary folder", errno);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace fp8
