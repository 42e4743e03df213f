/// Shared libraries that are loaded when first needed, so that one build runs on machines with and without them.
#pragma once

#include <string>
#include <vector>

namespace fp8::device {

/// A shared library, loaded for the life of the process.
class Library {
 public:
  /// Loads the first of `names` (file names such as "libcublasLt.so.13") that the dynamic linker finds, else the first
  /// that lies in /usr/local/cuda/lib64. Throws Error that names the first and says what to install or set.
  Library(const std::vector<std::string>& names, const std::string& cure);
  /// The address of a function of the library as a pointer of type F. Throws Error naming it where it is missing.
  template <class F>
  F function(const char* name) const {
    return reinterpret_cast<F>(address(name));
  }
  /// The name it was found under.
  const std::string& name() const { return name_; }
  /// What the dynamic linker calls it, for code that looks up functions by itself.
  void* handle() const { return handle_; }

 private:
  void* address(const char* name) const;
  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace fp8::device
