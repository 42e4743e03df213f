/// Loads shared libraries at run time, so that one build runs on machines with and without them.
#pragma once

#include <string>
#include <vector>

namespace fp8::device {

/// Who sees the functions of a library: those who ask it for them, or also the libraries that are loaded later.
enum class Symbols { own, global };

/// A shared library, loaded for the life of the process.
class Library {
 public:
  /// Loads the first of `names` (file names such as "libcublasLt.so.13") that the dynamic linker finds, else the first
  /// in /usr/local/cuda/lib64. Throws Error with the first name and the hint `hint` when none can be loaded.
  Library(const std::vector<std::string>& names, const std::string& hint, Symbols symbols = Symbols::own);
  /// The address of a function of the library as a pointer of type F. Throws Error when the function is missing.
  template <class F>
  F function(const char* name) const {
    return reinterpret_cast<F>(address(name));
  }
  /// File name of the library, with the folder if it was found in /usr/local/cuda/lib64.
  const std::string& name() const { return name_; }
  /// Handle of dlopen, for dlsym.
  void* handle() const { return handle_; }

 private:
  void* address(const char* name) const;
  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace fp8::device
