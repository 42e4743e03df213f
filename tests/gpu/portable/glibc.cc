// Functions of glibc 2.35 and 2.36 that the archives of GCC 12 call. Programs of the device bundle contain these
// archives and the functions below, so that they start with glibc 2.34. The functions are hidden, so that libraries
// call those of glibc.
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* result;
};

// Whether one of the segments of `object` contains the address; the result is then complete.
int contains(dl_phdr_info* object, std::size_t, void* data) {
  const auto& [address, result] = *static_cast<Search*>(data);
  const auto at = [&](ElfW(Addr) offset) { return reinterpret_cast<void*>(object->dlpi_addr + offset); };
  bool found = false;
  void* table = nullptr;
  for (const ElfW(Phdr)* p = object->dlpi_phdr; p != object->dlpi_phdr + object->dlpi_phnum; ++p) {
    const ElfW(Addr) offset = address - object->dlpi_addr;
    if (p->p_type == PT_LOAD && offset >= p->p_vaddr && offset - p->p_vaddr < p->p_memsz) {
      found = true;
      result->dlfo_map_start = at(p->p_vaddr);
      result->dlfo_map_end = at(p->p_vaddr + p->p_memsz);
    }
    if (p->p_type == PT_GNU_EH_FRAME) table = at(p->p_vaddr);
  }
  if (!found || table == nullptr) return 0;
  result->dlfo_eh_frame = table;
  return 1;
}

}  // namespace

// Finds the object whose code contains the address, for the unwinder.
extern "C" [[gnu::visibility("hidden")]] int _dl_find_object(void* address, dl_find_object* result) noexcept {
  *result = {};
  Search search{reinterpret_cast<std::uintptr_t>(address), result};
  return ::dl_iterate_phdr(contains, &search) == 1 ? 0 : -1;
}

// std::random_device calls it; the suite has none.
extern "C" [[gnu::visibility("hidden")]] std::uint32_t arc4random() noexcept {
  std::uint32_t bits = 0;
  if (::getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) std::abort();
  return bits;
}
