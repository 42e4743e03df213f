// Counts of GEMMs, which prove that FP8 or FP4 was used.
#include "fp8/gemm/gemm.h"

namespace fp8::gemm {
namespace {

constexpr std::array kKinds{OperandKind::f32, OperandKind::bf16, OperandKind::fp8, OperandKind::fp4};

}  // namespace

OperandKind kind_of(DType a, DType b) {
  if (is_fp4(a) && is_fp4(b)) return OperandKind::fp4;
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

std::int64_t Counts::low_precision_gemms() const {
  return linear(OperandKind::fp8).gemms + linear(OperandKind::fp4).gemms;
}

double Counts::share(OperandKind kind) const {
  double all = 0;
  for (const OperandKind each : kKinds) all += linear(each).flops;
  return all > 0 ? linear(kind).flops / all : 0;
}

double Counts::share_total(OperandKind kind) const {
  const auto& others = by[static_cast<std::size_t>(GemmRole::other)];
  double all = 0;
  for (const OperandKind each : kKinds) all += linear(each).flops + others[static_cast<std::size_t>(each)].flops;
  return all > 0 ? (linear(kind).flops + others[static_cast<std::size_t>(kind)].flops) / all : 0;
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
