// Counts of GEMMs, which prove that FP8 was used.
#include "fp8/gemm/gemm.h"

namespace fp8::gemm {

OperandKind kind_of(DType a, DType b) {
  if (is_fp8(a) && is_fp8(b)) return OperandKind::fp8;
  return a == DType::f32 || b == DType::f32 ? OperandKind::f32 : OperandKind::bf16;
}

Count Counts::linear(OperandKind kind) const {
  Count sum;
  for (const GemmRole role : {GemmRole::forward, GemmRole::dgrad, GemmRole::wgrad}) {
    const Count& c = by[static_cast<std::size_t>(role)][static_cast<std::size_t>(kind)];
    sum.gemms += c.gemms;
    sum.flops += c.flops;
  }
  return sum;
}

double Counts::fp8_share() const {
  const double fp8 = linear(OperandKind::fp8).flops;
  const double all = fp8 + linear(OperandKind::bf16).flops + linear(OperandKind::f32).flops;
  return all > 0 ? fp8 / all : 0;
}

double Counts::fp8_share_total() const {
  const auto& others = by[static_cast<std::size_t>(GemmRole::other)];
  double fp8 = 0, all = 0;
  for (const OperandKind kind : {OperandKind::f32, OperandKind::bf16, OperandKind::fp8}) {
    const double flops = linear(kind).flops + others[static_cast<std::size_t>(kind)].flops;
    all += flops;
    if (kind == OperandKind::fp8) fp8 = flops;
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

Counts& Counts::operator+=(const Counts& other) {
  for (std::size_t r = 0; r < by.size(); ++r) {
    for (std::size_t k = 0; k < by[r].size(); ++k) {
      by[r][k].gemms += other.by[r][k].gemms;
      by[r][k].flops += other.by[r][k].flops;
    }
  }
  return *this;
}

}  // namespace fp8::gemm
