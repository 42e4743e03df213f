/// The only access of this crate to HDF5's process-wide state, and RAII for its identifiers. Private to the crate: the
/// public headers do not depend on HDF5.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "fp8/h5/types.h"

namespace fp8::h5 {

/// Held during calls to HDF5, whose serial build is not thread-safe.
using Lock = std::unique_lock<std::mutex>;

/// Call before any use of HDF5 and hold the lock during it. Disables external plugins, messages on stderr and HDF5's
/// exit handler (which would flush a file again after an I/O error).
[[nodiscard]] Lock enter_library();

/// An HDF5 identifier, closed by the destructor.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  /// Owns no identifier.
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

  /// Whether an identifier is owned.
  bool ok() const { return id_ >= 0; }
  /// The identifier, negative if there is none.
  hid_t get() const { return id_; }
  /// Closes now; false when HDF5 reports an error.
  bool close() { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

/// File access of the writer: plain POSIX driver, no file locks, object formats 1.8 to 1.10.
Handle file_access();

/// HDF5 type that stores `type`: IEEE floats, the 16-bit float for bf16, uint8 for 8-bit codes, uint16 for f16. Invalid
/// on failure.
Handle storage_type(DType type);

/// Whether `name` is allowed for a group, dataset or attribute.
bool valid_name(std::string_view name);

/// `path: /name: reason`.
std::string message(const std::string& path, std::string_view name, const std::string& reason);

}  // namespace fp8::h5
