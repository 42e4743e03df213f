/// Objects that are used again and again, such as CUDA events, whose creation takes longer than their use.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace fp8::device {

/// A pool of default-made objects. It holds as many as were in use at one time.
template <class T>
class Pool {
 public:
  /// An object that nobody else holds, in the state in which its last holder left it. When the last pointer to it is
  /// gone it returns to the pool, on any thread, or is destroyed if the pool is. Throws what making a T throws.
  std::shared_ptr<T> get() {
    std::unique_ptr<T> object = free_->get();
    if (!object) object = std::make_unique<T>();
    return {object.release(), [free = std::weak_ptr(free_)](T* p) {
              std::unique_ptr<T> unused(p);
              if (const std::shared_ptr<Free> pool = free.lock()) pool->put(std::move(unused));
            }};
  }

 private:
  struct Free {
    std::unique_ptr<T> get() {
      const std::lock_guard lock(mutex);
      if (objects.empty()) return nullptr;
      std::unique_ptr<T> last = std::move(objects.back());
      objects.pop_back();
      return last;
    }
    void put(std::unique_ptr<T> object) noexcept {
      try {
        const std::lock_guard lock(mutex);
        objects.push_back(std::move(object));
      } catch (const std::exception&) {
        return;  // no memory to keep the object: it is destroyed
      }
    }
    std::mutex mutex;
    std::vector<std::unique_ptr<T>> objects;
  };
  std::shared_ptr<Free> free_ = std::make_shared<Free>();
};

}  // namespace fp8::device
