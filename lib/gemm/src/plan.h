/// Plans: one oneDNN matmul primitive for each shape, layout and format that was asked for, kept for the next call like
/// it. No scales and no bias here: those are the epilogue's, because oneDNN 2.6 leaves its fast kernels for them.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "fp8/tensor/tensor.h"

namespace fp8::gemm {

using dtype::DType;
using tensor::View;

/// What tells one plan from another.
struct PlanKey {
  std::int64_t m = 0, n = 0, k = 0;             ///< C is [m, n], the contraction k
  std::array<std::int64_t, 2> stride_a{};       ///< elements, of A [m, k]
  std::array<std::int64_t, 2> stride_b{};       ///< elements, of B [k, n]
  std::int64_t stride_c = 0;                    ///< elements between rows of C
  DType operands = DType::f32, c = DType::f32;  ///< storage of A and B, of C
  bool accumulate = false;                      ///< C += A B
  int threads = 0;                              ///< a primitive splits its work by them when it is made
  /// Order without meaning, for the map.
  auto operator<=>(const PlanKey&) const = default;
};

/// The key of C (+)= A B. Strides of extents of one carry nothing and are made alike.
PlanKey key_of(const View& a, const View& b, const View& c, bool accumulate);

/// One primitive with its argument table.
class MatmulPlan {
 public:
  ~MatmulPlan();
  MatmulPlan(const MatmulPlan&) = delete;
  MatmulPlan& operator=(const MatmulPlan&) = delete;
  /// Bytes of scratch it needs while it runs.
  std::size_t scratchpad_bytes() const;
  /// C (+)= A B on memory laid out as the key says; `scratchpad` has scratchpad_bytes() at least.
  void run(void* a, void* b, void* c, void* scratchpad);
  /// oneDNN's name of the kernel, such as "brg:avx512_core_bf16".
  std::string implementation() const;

 private:
  friend class PlanCache;
  struct Impl;
  explicit MatmulPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Finds plans or makes them. Throws Error when oneDNN has none.
class PlanCache {
 public:
  PlanCache();
  ~PlanCache();
  /// The plan for `key`; valid until the next call.
  MatmulPlan& find(const PlanKey& key);
  /// Plans held.
  std::size_t size() const;
  /// Whether this CPU multiplies bf16 faster than f32.
  static bool fast_bf16();

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  std::map<PlanKey, std::unique_ptr<MatmulPlan>> plans_;
};

}  // namespace fp8::gemm
