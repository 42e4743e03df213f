/// GEMMs of which one extent differs from call to call, as the rows of an expert do. A plan takes longer to make than
/// such a GEMM takes, so these use few plans: one for any extent where oneDNN's kernel for that is as fast, else pieces
/// of a few sizes, the last of them padded with zeros. Private to this crate.
#pragma once

#include <cstdint>

#include "plan.h"
#include "scratch.h"

namespace fp8::gemm {

/// Largest extent of any dimension of one oneDNN call.
inline constexpr std::int64_t kLongest = 4096;

/// The extent that varies.
enum class Varying : std::uint8_t {
  none,         ///< every extent recurs
  rows,         ///< rows of A and C
  contraction,  ///< columns of A, rows of B
};

/// Calls of oneDNN, and the scratch memory that plans need.
class PlannedGemm {
 public:
  /// C (+)= A B with a plan for these extents; if `dry`, only makes the plan.
  void run(bool dry, const View& a, const View& b, const View& c, bool accumulate);
  /// The same with few plans. Bounds the scratch of calls with a smaller extent too.
  void run_varying(bool dry, Varying varying, const View& a, const View& b, const View& c, bool accumulate);
  /// Bytes of scratch that the calls so far need.
  std::size_t scratch_bytes() const;
  /// Number of plans that are kept.
  std::size_t plans() const { return plans_.size(); }

 private:
  void run_key(bool dry, const PlanKey& key, const View& a, const View& b, const View& c);
  void run_any_rows(bool dry, const View& a, const View& b, const View& c, bool accumulate);
  void run_any_contraction(bool dry, const View& a, const View& b, const View& c, bool accumulate);
  void run_rows(bool dry, const View& a, const View& b, const View& c, bool accumulate);
  void run_last_rows(bool dry, const View& a, const View& b, const View& c, bool accumulate);
  void run_contraction(bool dry, const View& a, const View& b, const View& c, bool accumulate);
  void run_last_contraction(bool dry, const View& a, const View& b, const View& c, bool accumulate);

  PlanCache plans_;
  Scratch scratchpad_{device::DeviceType::host}, a_{device::DeviceType::host}, b_{device::DeviceType::host},
      c_{device::DeviceType::host};
};

/// Length of the pieces into which a varying extent of at most `limit` is divided: a multiple of the largest piece of
/// run_varying() if possible.
std::int64_t varying_piece(std::int64_t limit);

}  // namespace fp8::gemm
