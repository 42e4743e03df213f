/// A line for the user about the libraries of this machine.
#pragma once

#include <functional>
#include <string>

namespace fp8::gemm {

/// Sets what is done with a note: that a library lacks something which is done in another way. Call it before any
/// engine runs; without it notes are dropped.
void on_note(std::function<void(const std::string&)> tell);

/// Passes on "what: why", if it is the first note of the process about `what`.
void note_once(const std::string& what, const std::string& why);

}  // namespace fp8::gemm
