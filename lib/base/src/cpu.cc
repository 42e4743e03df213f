// CPUID is read through the compiler's builtin, which also checks that the operating system saves the registers.
#include "fp8/base/cpu.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "fp8/base/error.h"

namespace fp8 {
namespace {

#if defined(__x86_64__)
constexpr std::string_view kBaseline = "avx2";
#elif defined(__aarch64__)
constexpr std::string_view kBaseline = "neon";
#else
constexpr std::string_view kBaseline = "generic";
#endif
constexpr std::array<Isa, 3> kIsas{Isa::baseline, Isa::avx512, Isa::avx512_bf16};

Isa chosen() {
  const Isa supported = supported_isa();
  const char* const value = std::getenv("FP8_CPU_ISA");  // NOLINT(concurrency-mt-unsafe): never set here
  if (value == nullptr || *value == '\0') return supported;
  const auto* const isa = std::find_if(kIsas.begin(), kIsas.end(), [&](Isa i) { return name_of(i) == value; });
  if (isa == kIsas.end())
    throw Error("FP8_CPU_ISA: '" + std::string(value) + "': unknown; one of " + std::string(kBaseline) +
                ", avx512, avx512_bf16");
  return std::min(supported, *isa);
}

}  // namespace

std::string_view name_of(Isa isa) {
  if (isa == Isa::baseline) return kBaseline;
  return isa == Isa::avx512 ? "avx512" : "avx512_bf16";
}

#if defined(__x86_64__)
Isa supported_isa() {
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (!avx512) return Isa::baseline;
  return __builtin_cpu_supports("avx512bf16") ? Isa::avx512_bf16 : Isa::avx512;
}
#else
Isa supported_isa() { return Isa::baseline; }
#endif

Isa cpu_isa() {
  static const Isa isa = chosen();
  return isa;
}

}  // namespace fp8
