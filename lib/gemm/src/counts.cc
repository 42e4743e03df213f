// Counting what ran: the proof that FP8 was used.
#include "fp8/gemm/gemm.h"

namespace fp8::gemm {

Kind kind_of(DType a, DType b) {
  const auto is_fp8 = [](DType t) { return t == DType::e4m3 || t == DType::e5m2; };
  if (is_fp8(a) && is_fp8(b)) return Kind::fp8;
  return a == DType::f32 || b == DType::f32 ? Kind::f32 : Kind::bf16;
}

Count Counts::linear(Kind kind) const {
  Count sum;
  for (const Role role : {Role::forward, Role::dgrad, Role::wgrad}) {
    const Count& c = by[static_cast<std::size_t>(role)][static_cast<std::size_t>(kind)];
    sum.gemms += c.gemms;
    sum.flops += c.flops;
  }
  return sum;
}

double Counts::fp8_share() const {
  const double fp8 = linear(Kind::fp8).flops;
  const double all = fp8 + linear(Kind::bf16).flops + linear(Kind::f32).flops;
  return all > 0 ? fp8 / all : 0;
}

double Counts::fp8_share_total() const {
  const auto& others = by[static_cast<std::size_t>(Role::other)];
  double fp8 = 0, all = 0;
  for (const Kind kind : {Kind::f32, Kind::bf16, Kind::fp8}) {
    const double flops = linear(kind).flops + others[static_cast<std::size_t>(kind)].flops;
    all += flops;
    if (kind == Kind::fp8) fp8 = flops;
  }
  return all > 0 ? fp8 / all : 0;
}

Counts Counts::operator-(const Counts& earlier) const {
  Counts difference = *this;
  for (std::size_t r = 0; r < by.size(); ++r) {
    for (std::size_t k = 0; k < by[r].size(); ++k) {
      difference.by[r][k].gemms -= earlier.by[r][k].gemms;
      difference.by[r][k].flops -= earlier.by[r][k].flops;
    }
  }
  return difference;
}

}  // namespace fp8::gemm
