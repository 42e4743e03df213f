/// The only place where this crate touches HDF5's process-wide state, and RAII for its identifiers. Private to the
/// crate: the public headers know nothing of HDF5.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "fp8/h5/types.h"

namespace fp8::h5 {

/// Held while in HDF5, whose serial build bears one thread at a time.
using Lock = std::unique_lock<std::mutex>;

/// Call before entering HDF5, and stay no longer than the lock lives: no plugins from outside, no messages on stderr,
/// and no work at exit (a file that met an I/O error must not be flushed again by an exit handler).
[[nodiscard]] Lock enter_library();

/// An HDF5 identifier, closed by the destructor.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  /// Nothing.
  Handle() = default;
  /// Owns `id` unless it is negative.
  Handle(hid_t id, Close closer) : id_(id), close_(closer) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      close();
      id_ = std::exchange(other.id_, -1);
      close_ = other.close_;
    }
    return *this;
  }
  ~Handle() { close(); }

  /// Whether it owns an identifier.
  bool ok() const { return id_ >= 0; }
  /// The identifier, negative when there is none.
  hid_t get() const { return id_; }
  /// Closes now; false when HDF5 reports an error.
  bool close() { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }
  /// Gives the identifier up without closing it: after an I/O error HDF5 is not entered again.
  void abandon() { id_ = -1; }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

/// File access as reader and writer use it: plain POSIX driver, no file locks, object formats 1.8 to 1.10.
Handle file_access();

/// HDF5 type that stores `type`: IEEE floats, the 16-bit float for bf16, uint8 for 8-bit codes, uint16 for f16. Invalid
/// on failure.
Handle storage_type(DType type);

/// Whether `name` may be the name of a group, dataset or attribute.
bool valid_name(std::string_view name);

/// `path: /name: reason`.
std::string message(const std::string& path, std::string_view name, const std::string& reason);

}  // namespace fp8::h5
