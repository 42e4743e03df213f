// Loads shared libraries with dlopen; errors contain a hint.
#include "fp8/device/library.h"

#include <dlfcn.h>

#include "fp8/base/error.h"

namespace fp8::device {

Library::Library(const std::vector<std::string>& names, const std::string& hint, Symbols symbols) {
  const int mode = RTLD_NOW | (symbols == Symbols::global ? RTLD_GLOBAL : RTLD_LOCAL);
  for (const char* folder : {"", "/usr/local/cuda/lib64/"}) {
    for (const std::string& name : names) {
      handle_ = dlopen((folder + name).c_str(), mode);
      if (handle_ == nullptr) continue;
      name_ = folder + name;
      return;
    }
  }
  throw Error(names.front() + ": cannot be loaded: " + hint);
}

void* Library::address(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr) throw Error(name_ + ": has no function " + name + "; another version of the library is needed");
  return found;
}

}  // namespace fp8::device
