// The rules of shim_memory.h, and the functions that the compiler calls under -fsanitize=thread,alignment. Builds with
// a sanitizer define these functions themselves, and have no checks.
#include "shim_memory.h"

#include <link.h>

#include <algorithm>

#include "shim_hooks.h"

namespace fp8::shim {

Range shared_memory() {
  Range range;
  // The first object is the program.
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* to) {
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          if (object->dlpi_phdr[i].p_type != PT_TLS || object->dlpi_tls_data == nullptr) continue;
          const auto begin = reinterpret_cast<std::uintptr_t>(object->dlpi_tls_data);
          *static_cast<Range*>(to) = {begin, begin + object->dlpi_phdr[i].p_memsz};
        }
        return 1;
      },
      &range);
  return range;
}

void Memory::begin_launch() {
  constexpr std::size_t kMostPages = 4096;
  if (pages_.size() > kMostPages) {
    pages_.clear();
    cached_.fill(nullptr);
  }
  launch_ = ++interval_;
}

void Memory::begin_block() { block_ = ++interval_; }

inline Memory::Byte* Memory::bytes_from(std::uintptr_t at) {
  const std::uintptr_t key = at / kPage;
  const std::size_t slot = key % cached_.size();
  if (cached_[slot] == nullptr || cached_key_[slot] != key) {
    std::unique_ptr<Page>& page = pages_[key];
    if (!page) page = std::make_unique<Page>();
    cached_[slot] = page.get();
    cached_key_[slot] = key;
  }
  return &(*cached_[slot])[at % kPage];
}

// Whether no barrier is between two accesses of the same launch by different threads.
inline bool Memory::unordered(const Moment& before, const Moment& after) const {
  if (before.interval() < launch_ || (before.has(Moment::kAtomic) && after.has(Moment::kAtomic))) return false;
  if (before.interval() < block_ || before.has(Moment::kSeveralBlocks)) return true;
  if (before.interval() < interval_) return false;
  if (before.has(Moment::kSeveralWarps) || before.thread() / 32 != after.thread() / 32) return true;
  return (before.has(Moment::kSeveralLanes) || before.thread() != after.thread()) &&
         before.warp_epoch() >= after.warp_epoch();
}

// `after` with the marks for accesses that it does not come after.
inline Moment Memory::merged(const Moment& before, Moment after) const {
  if (before.interval() < launch_) return after;
  after.mark(Moment::kSeveralBlocks, before.interval() < block_ || before.has(Moment::kSeveralBlocks));
  if (before.interval() < interval_) return after;
  after.mark(Moment::kSeveralWarps, before.has(Moment::kSeveralWarps) || before.thread() / 32 != after.thread() / 32);
  after.mark(Moment::kSeveralLanes, (before.has(Moment::kSeveralLanes) || before.thread() != after.thread()) &&
                                        before.warp_epoch() >= after.warp_epoch());
  return after;
}

inline Memory::Wrong Memory::access_byte(Byte& b, const Moment& now, Access kind, bool shared) {
  // Shared memory of an earlier block is another memory.
  if (shared && b.written.interval() < block_) b.written = {};
  if (shared && b.read.interval() < block_) b.read = {};
  if (unordered(b.written, now)) return Wrong::after_write;
  if (shared && kind != Access::write && b.written.interval() == 0) return Wrong::unwritten;
  if (kind == Access::read) {
    b.read = merged(b.read, now);
    return Wrong::nothing;
  }
  if (unordered(b.read, now)) return Wrong::after_read;
  b.written = kind == Access::atomic ? merged(b.written, now) : now;
  return Wrong::nothing;
}

std::string Memory::message(Wrong wrong, const Byte& b, Access kind, bool shared) const {
  if (wrong == Wrong::unwritten) return "reads shared memory that no thread of the block has written";
  const Moment& before = wrong == Wrong::after_write ? b.written : b.read;
  std::string other = "thread " + std::to_string(before.thread());
  if (before.interval() < block_ || before.has(Moment::kSeveralBlocks)) other += " of another block";
  return std::string(kind == Access::read ? "reads " : "writes ") + (shared ? "shared" : "global") + " memory that " +
         other + " has " + (wrong == Wrong::after_write ? "written" : "read") + ", without a barrier between";
}

bool Memory::access(std::uintptr_t at, std::size_t bytes, Access kind, unsigned thread, std::uint16_t warp_epoch,
                    std::size_t& fresh, std::string& why) {
  const bool shared = shared_.has(at);
  const Moment now(interval_, warp_epoch, thread, kind == Access::atomic ? Moment::kAtomic : 0);
  std::size_t unknown = 0;
  // Most accesses find all their bytes in one state.
  for (std::size_t i = 0, n = 0; i < bytes; i += n) {
    Byte* const first = bytes_from(at + i);
    const Byte before = *first;
    const std::size_t most = std::min(bytes - i, kPage - (at + i) % kPage);
    n = 1;
    while (n < most && first[n] == before) ++n;
    Byte after = before;
    const Wrong wrong = access_byte(after, now, kind, shared);
    if (wrong != Wrong::nothing) {
      why = message(wrong, before, kind, shared);
      return false;
    }
    std::fill_n(first, n, after);
    const bool known =
        before.written.interval() >= launch_ || (kind == Access::read && before.read.interval() >= launch_);
    unknown += known ? 0 : n;
  }
  fresh = unknown;
  return true;
}

}  // namespace fp8::shim

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

using fp8::shim::Access;
using fp8::shim::access;

// The static data that the compiler passes to the handler of a misaligned access.
struct Mismatch {
  const char* file;
  std::uint32_t line, column;
  const void* type;
  unsigned char log_alignment, kind;
};

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): the names are those that the compiler calls
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* at, std::size_t n) { access(at, n, Access::read, __builtin_return_address(0)); }
void __tsan_write_range(void* at, std::size_t n) { access(at, n, Access::write, __builtin_return_address(0)); }

#define FP8_ACCESS(n)                                                                                   \
  void __tsan_read##n(void* at) { access(at, n, Access::read, __builtin_return_address(0)); }           \
  void __tsan_write##n(void* at) { access(at, n, Access::write, __builtin_return_address(0)); }         \
  void __tsan_unaligned_read##n(void* at) { access(at, n, Access::read, __builtin_return_address(0)); } \
  void __tsan_unaligned_write##n(void* at) { access(at, n, Access::write, __builtin_return_address(0)); }
FP8_ACCESS(1)
FP8_ACCESS(2)
FP8_ACCESS(4)
FP8_ACCESS(8)
FP8_ACCESS(16)
#undef FP8_ACCESS

// Atomic operations of the host's part of a source, such as reference counts; kernels use none.
#define FP8_ATOMIC(bits, T)                                                                                           \
  T __tsan_atomic##bits##_load(const volatile T* at, int) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }           \
  void __tsan_atomic##bits##_store(volatile T* at, T v, int) { __atomic_store_n(at, v, __ATOMIC_SEQ_CST); }           \
  T __tsan_atomic##bits##_exchange(volatile T* at, T v, int) { return __atomic_exchange_n(at, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_add(volatile T* at, T v, int) { return __atomic_fetch_add(at, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_sub(volatile T* at, T v, int) { return __atomic_fetch_sub(at, v, __ATOMIC_SEQ_CST); } \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* at, T* expected, T v, int, int) {                     \
    return static_cast<int>(__atomic_compare_exchange_n(at, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)); \
  }
FP8_ATOMIC(8, unsigned char)
FP8_ATOMIC(32, unsigned)
FP8_ATOMIC(64, unsigned long)
#undef FP8_ATOMIC

void __ubsan_handle_type_mismatch_v1(const Mismatch* what, void* at) {
  fp8::shim::misaligned(at, std::size_t{1} << what->log_alignment, what->file, what->line);
}
}
// NOLINTEND(bugprone-reserved-identifier)
#endif
