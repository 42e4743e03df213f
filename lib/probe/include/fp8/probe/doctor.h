/// Whether FP8 can run on this machine, and what of it is in the way: every check is made, none ends the others. Checks
/// of matrix multiply run it, on numbers whose products and sums are exact, so that every bit is known beforehand.
#pragma once

#include <string>
#include <vector>

#include "fp8/json/value.h"
#include "fp8/probe/check.h"

namespace fp8::probe {

/// Where to look.
struct Surroundings {
  std::string root{};  ///< in front of /proc and /sys
  std::string path{};  ///< folders of programs, with colons, as PATH
};

/// What was found.
struct Diagnosis {
  std::vector<Check> checks{};  ///< in order, those of a group together
  std::string device{};         ///< the GPU as it names itself, or "CPU"
  bool native = false;          ///< FP8 runs on the GPU and gives the right bits
  bool emulated = false;        ///< FP8 is emulated on the CPU and gives the right bits
};

/// Makes all checks: takes a few seconds where libraries of CUDA are there. A process that has several GPUs uses the
/// first. Does not throw Error.
Diagnosis diagnose(const Surroundings& around);

/// The answer in a sentence without a full stop.
std::string verdict_of(const Diagnosis& diagnosis);

/// {"type": "doctor", "fp8": "native"|"emulated"|"none", "device": ..., "checks": [{group, name, verdict, detail,
/// cure}]}.
json::Value to_json(const Diagnosis& diagnosis);

}  // namespace fp8::probe
