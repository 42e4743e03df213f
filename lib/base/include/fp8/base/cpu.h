/// The instruction set of the hot loops on the host. Sources named *.isa.cc are compiled once per instruction set, and
/// each defines one table of functions; the table is selected here, once per process. All other sources are compiled
/// for the baseline. oneDNN selects its own instruction set, see fp8/gemm.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fp8 {

/// Instruction sets that hot loops are compiled for; each contains those before.
enum class Isa : std::uint8_t {
  baseline,     ///< x86-64-v3 (AVX2 and FMA) on x86, the compiler's default elsewhere
  avx512,       ///< x86-64-v4: AVX-512 F, BW, CD, DQ and VL
  avx512_bf16,  ///< avx512 and dot products of pairs of bf16
};

/// "avx2" ("neon" on aarch64), "avx512" or "avx512_bf16": the spelling in FP8_CPU_ISA and in records.
std::string_view name_of(Isa isa);

/// The largest set that this CPU and its operating system support.
Isa supported_isa();

/// The set in use: supported_isa(), lowered by the environment variable FP8_CPU_ISA, which is read once. A set that the
/// CPU does not support is replaced by supported_isa(). Throws Error when the variable holds an unknown name.
Isa cpu_isa();

}  // namespace fp8

/// Declares the tables `table` of type `Type` that <file>.isa.cc defines in namespace FP8_ISA of the current namespace,
/// and `function(isa)`, which returns the table of an instruction set, by default of the one in use.
#if defined(__x86_64__)
#define FP8_ISA_TABLES(Type, table, function)                                                        \
  namespace avx2 {                                                                                   \
  extern const Type table;                                                                           \
  }                                                                                                  \
  namespace avx512 {                                                                                 \
  extern const Type table;                                                                           \
  }                                                                                                  \
  namespace avx512_bf16 {                                                                            \
  extern const Type table;                                                                           \
  }                                                                                                  \
  inline const Type& function(Isa isa = cpu_isa()) {                                                 \
    constexpr std::array<const Type*, 3> kTables{&avx2::table, &avx512::table, &avx512_bf16::table}; \
    return *kTables[static_cast<std::size_t>(isa)];                                                  \
  }
#else
#define FP8_ISA_TABLES(Type, table, function) \
  namespace baseline {                        \
  extern const Type table;                    \
  }                                           \
  inline const Type& function(Isa = Isa::baseline) { return baseline::table; }
#endif
