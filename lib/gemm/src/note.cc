// The first note of a process.
#include "fp8/gemm/note.h"

#include <mutex>
#include <utility>

namespace fp8::gemm {
namespace {

std::function<void(const std::string&)>& teller() {
  static std::function<void(const std::string&)> tell;
  return tell;
}

}  // namespace

void on_note(std::function<void(const std::string&)> tell) { teller() = std::move(tell); }

void note_once(const std::string& text) {
  static std::once_flag told;
  std::call_once(told, [&] {
    if (teller()) teller()(text);
  });
}

}  // namespace fp8::gemm
