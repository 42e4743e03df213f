/// The instruction sets that this CPU supports, for tests of code that is compiled once per instruction set.
#pragma once

#include <vector>

#include "fp8/base/cpu.h"

namespace fp8::test {

/// All instruction sets from the baseline to supported_isa().
inline std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::baseline, Isa::avx512, Isa::avx512_bf16})
    if (isa <= supported_isa()) all.push_back(isa);
  return all;
}

}  // namespace fp8::test
