// The first note of a process about each matter.
#include "fp8/gemm/note.h"

#include <mutex>
#include <set>
#include <utility>

namespace fp8::gemm {
namespace {

std::function<void(const std::string&)>& teller() {
  static std::function<void(const std::string&)> tell;
  return tell;
}

}  // namespace

void on_note(std::function<void(const std::string&)> tell) { teller() = std::move(tell); }

void note_once(const std::string& what, const std::string& why) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::lock_guard lock(mutex);
  if (told.insert(what).second && teller()) teller()(what + ": " + why);
}

}  // namespace fp8::gemm
