/// The answer to one question about a machine: pass, fail, or there is nothing to ask, with what was found and what
/// helps. Plain data; who asks is in doctor.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fp8/base/error.h"

namespace fp8::probe {

/// How a check ended.
enum class Verdict : std::uint8_t {
  pass,  ///< it is there and it works
  fail,  ///< it is wrong, and `cure` says what to do
  none,  ///< it is not there, which need not be wrong
};

/// pass, fail, none.
std::string_view name_of(Verdict verdict);

/// One check.
struct Check {
  std::string group{};              ///< heading it stands under: GPU, CUDA, machine
  std::string name{};               ///< what is asked, unique in a diagnosis
  Verdict verdict = Verdict::none;  ///< the answer
  std::string detail{};             ///< what was found, one line
  std::string cure{};               ///< what helps, one line; empty where nothing is wanted
};

/// The check that `body` is: it returns the detail of one that passes; an Error that it throws is the detail of one
/// that fails.
template <class Body>
Check attempt(const std::string& group, const std::string& name, const std::string& cure, Body&& body) {
  try {
    return {group, name, Verdict::pass, body(), {}};
  } catch (const Error& e) {
    return {group, name, Verdict::fail, e.what(), cure};
  }
}

}  // namespace fp8::probe
