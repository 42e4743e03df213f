/// GEMMs of a device of which the host takes the part.
#pragma once

#include <map>
#include <string>

namespace fp8::kernels {

/// GEMMs of one kind.
struct Gemms {
  int calls = 0;       ///< number of calls of the library
  double flops = 0;    ///< 2 M N K each
  double read = 0;     ///< bytes of A and B, and of C if it is accumulated
  double written = 0;  ///< bytes of C
};

/// All GEMMs since the start of the program, by role and operands: "forward fp8", "wgrad bf16".
std::map<std::string, Gemms>& gemms();

/// Whether the bytes that kernels access are counted: not in builds with a sanitizer.
bool counts_bytes();

}  // namespace fp8::kernels
