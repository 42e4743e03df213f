/// Matrix multiply on the host: which oneDNN multiplications a call is made of, and the scratch memory they share.
/// Operands are already validated (engine.cc); nothing is counted here.
#pragma once

#include <cstddef>

#include "epilogue.h"
#include "fp8/gemm/gemm.h"
#include "plan.h"

namespace fp8::gemm {

/// Scratch memory that grows to the largest need and stays.
class Scratch {
 public:
  /// Notes a need of `bytes`, takes nothing.
  void need(std::size_t bytes) { need_ = bytes > need_ ? bytes : need_; }
  /// Memory of the largest need so far; its content is lost when it grows.
  std::byte* memory();
  /// Largest need so far, in bytes.
  std::size_t bytes() const { return need_; }

 private:
  std::size_t need_ = 0;
  device::Buffer buffer_;
};

/// See Engine, whose host half it is.
class HostGemm {
 public:
  /// Chooses the way of bf16 by the CPU when asked to detect.
  explicit HostGemm(HostBf16 bf16);
  /// Runs one call, or when `dry` makes its plans and notes its scratch.
  void run(bool dry, const Operand& a, const Operand& b, const View& c, const Options& options);
  /// Bytes of all scratch that calls so far need.
  std::size_t scratch_bytes() const;

 private:
  View upcast(bool dry, const View& v, Scratch& scratch);
  void multiply(bool dry, const View& a, const View& b, const View& c, bool accumulate);
  void run_tiles(bool dry, const View& a, const View& b, const View& c, const Epilogue& epilogue);

  bool upcast_;
  PlanCache plans_;
  Scratch scratchpad_, sums_, a_, b_;
};

}  // namespace fp8::gemm
