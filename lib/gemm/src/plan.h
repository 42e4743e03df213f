/// Plans: one oneDNN matmul primitive for each shape, layout and format, kept for repeated calls. Without scales and
/// bias, which the epilogue applies, because the fast kernels of oneDNN 2.6 do not support them. Private to this crate.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fp8/tensor/tensor.h"
#include "recent_plans.h"

namespace fp8::gemm {

using dtype::DType;
using tensor::View;

/// An extent that is not part of a plan, but given at each call.
inline constexpr std::int64_t kAnyExtent = -1;

/// The key of a plan.
struct PlanKey {
  std::int64_t m = 0, n = 0, k = 0;             ///< C is [m, n], the contraction k; m or k may be kAnyExtent
  std::array<std::int64_t, 2> stride_a{};       ///< elements, of A [m, k]
  std::array<std::int64_t, 2> stride_b{};       ///< elements, of B [k, n]
  std::int64_t stride_c = 0;                    ///< elements between rows of C
  DType operands = DType::f32, c = DType::f32;  ///< storage of A and B, of C
  bool accumulate = false;                      ///< C += A B
  int threads = 0;                              ///< a primitive is made for a number of threads
  /// Any total order, for the map.
  auto operator<=>(const PlanKey&) const = default;
};

/// The key of C (+)= A B. Strides of dimensions of extent 1 are normalized.
PlanKey key_of(const View& a, const View& b, const View& c, bool accumulate);

/// One primitive with its argument table.
class MatmulPlan {
 public:
  ~MatmulPlan();
  MatmulPlan(const MatmulPlan&) = delete;
  MatmulPlan& operator=(const MatmulPlan&) = delete;
  /// Bytes of scratch that run() needs.
  std::size_t scratchpad_bytes() const;
  /// C (+)= A B on memory with the layout of the key; `scratchpad` has at least scratchpad_bytes().
  void run(void* a, void* b, void* c, void* scratchpad);
  /// The same for a key with kAnyExtent, of which m or k are the extents of this call.
  void run_any(std::int64_t m, std::int64_t k, void* a, void* b, void* c, void* scratchpad);
  /// oneDNN's name of the kernel, such as "brg:avx512_core_bf16".
  std::string implementation() const;

 private:
  friend class PlanCache;
  struct Impl;
  explicit MatmulPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Finds or makes plans. Throws Error if oneDNN has no kernel.
class PlanCache {
 public:
  PlanCache();
  ~PlanCache();
  /// The plan for `key`; valid until the next call.
  MatmulPlan& find(const PlanKey& key);
  /// Number of plans.
  std::size_t size() const { return plans_.size(); }
  /// Whether this CPU multiplies bf16 faster than f32.
  static bool fast_bf16();

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  RecentPlans<PlanKey, MatmulPlan> plans_;
};

}  // namespace fp8::gemm
