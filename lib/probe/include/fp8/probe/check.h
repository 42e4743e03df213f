/// The result of one check of a machine: verdict, detail and hint. The checks are in doctor.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/error.h"

namespace fp8::probe {

/// Verdict of a check.
enum class Verdict : std::uint8_t {
  pass,  ///< present and working
  fail,  ///< wrong; `hint` is the hint
  none,  ///< absent, which need not be wrong
};

/// pass, fail, none.
std::string_view name_of(Verdict verdict);

/// A finding of a check that differs between the hosts of a job, and where it was made.
struct Finding {
  std::vector<std::string> hosts{};  ///< "node-1", or "node-1 rank 3" if the ranks of a host differ
  Verdict verdict = Verdict::none;   ///< as in Check
  std::string detail{};              ///< as in Check
  std::string hint{};                ///< as in Check
};

/// One check.
struct Check {
  std::string group{};              ///< heading in the report: GPU, CUDA, libraries, machine, job
  std::string name{};               ///< unique in a diagnosis
  Verdict verdict = Verdict::none;  ///< result
  std::string detail{};             ///< findings, one line
  std::string hint{};               ///< hint, one line; empty when there is nothing to do
  std::string common{};             ///< what ranks that train together need in common; empty if they may differ
  std::vector<Finding> findings{};  ///< in the report of a job, if hosts differ: the finding of each; else empty
};

/// Runs `body` as a check: passes with the string it returns as the detail; fails with the message of an Error that it
/// throws, and with the hint `hint`.
template <class Body>
Check attempt(const std::string& group, const std::string& name, const std::string& hint, Body&& body) {
  try {
    return {group, name, Verdict::pass, body(), {}};
  } catch (const Error& e) {
    return {group, name, Verdict::fail, e.what(), hint};
  }
}

}  // namespace fp8::probe
