/// Matrix multiply C = A B for every layer, and the count of what ran. On the host through oneDNN: bf16 with f32
/// accumulation, f32 for f32 operands; FP8 operands are bf16 values on the FP8 grid (see quant), products exact,
/// inverse scales applied in f32 before the result is rounded: that is the emulation. It sums in f32, or with the bits
/// of a tensor core. On a device through cuBLASLt, FP8 codes as bytes; f32 operands are multiplied in f32, never in
/// TF32. Not for element-wise work; not a BLAS.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "fp8/tensor/tensor.h"

namespace fp8::gemm {

using device::Context;
using dtype::DType;
using tensor::View;

/// What a GEMM of a linear layer is for. `other` is matmul work outside of linear layers (attention); it is counted
/// apart.
enum class GemmRole : std::uint8_t { forward, dgrad, wgrad, other };

/// Class of operands for counting: a GEMM is fp8 when both its operands are.
enum class OperandKind : std::uint8_t { f32, bf16, fp8 };

/// Blocks of elements that share an inverse scale, and how these scales lie in memory. `outer` is a row of A or a
/// column of B, K what is contracted; all addresses are multiples of 16 bytes. Only for FP8 codes on a device, and not
/// square128 on both sides. Source: cuBLAS 13.1, "Narrow Precision Data Types Usage".
enum class ScaleBlocks : std::uint8_t {
  none,       ///< no blocks: one for all or one for each outer index
  row128,     ///< 1 x 128 along K, f32 [outer, ceil(K/128)], stride [1, outer]; compute capability 9.0
  square128,  ///< 128 x 128, f32 [ceil(outer/128), ceil(K/128)], stride [ceil(K/128) up to a multiple of 4, 1]; 9.0
  row32,      ///< 1 x 32 along K, E8M0 bytes in tiles of 128 x 4, all whole, contiguous; from 10.0 on
};

/// One operand. FP8 codes as bytes (u8, on a device) lie with unit stride along K and the other stride a multiple of
/// 16; where K is none, that stride is the next one, and the bytes between are zero.
struct Operand {
  View matrix;                ///< two dimensions, one of the strides is 1; f32 or bf16, also FP8 codes (device)
  DType format = DType::f32;  ///< grid of the values, scaled or not: f32, bf16, e4m3, e5m2
  View inverse_scale;  ///< f32, contiguous: empty (1), [1], or one for each row of A, each column of B; or blocks
  ScaleBlocks blocks = ScaleBlocks::none;  ///< what the inverse scales belong to
};

/// How products of FP8 codes are summed on the host; those of other operands are always summed in f32.
/// Source: F. A. Khattak, M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv:2512.07004: proven against
/// recorded products of E4M3 x E4M3 and E5M2 x E4M3, K not split.
enum class Accumulation : std::uint8_t {
  f32,     ///< in f32, in oneDNN's order
  hopper,  ///< bit for bit as an H100: chains of blocks of 32 products, each truncated to 14 significant bits
  ada,     ///< bit for bit as an RTX 4060: the same with blocks of 16 products
};

/// "f32", "hopper", "ada".
std::string_view name_of(Accumulation accumulation);

/// How to run one GEMM.
struct MatmulOptions {
  GemmRole role = GemmRole::other;  ///< for the counts
  bool accumulate = false;          ///< C += A B, C in f32
  bool fast_accumulation = false;   ///< tensor cores may keep fewer bits while summing; no effect on f32 sums
  View bias{};                      ///< empty, or one per column of C, f32 or bf16, added in f32 before rounding
  Accumulation accumulation = Accumulation::f32;  ///< of FP8 codes stored as bf16; on a device only f32
};

/// GEMMs executed and their FLOPs (2 M N K).
struct Count {
  std::int64_t gemms = 0;  ///< calls
  double flops = 0;        ///< 2 M N K each
};

/// Counts by role and kind.
struct Counts {
  std::array<std::array<Count, 3>, 4> by{};  ///< [role][kind]
  /// Sum over the roles of linear layers (forward, dgrad, wgrad).
  Count linear(OperandKind kind) const;
  /// Share of the linear layers' FLOPs that ran in FP8; 0 when none ran.
  double fp8_share() const;
  /// Share of all matmul FLOPs, those of GemmRole::other included, that ran in FP8; 0 when none ran.
  double fp8_share_total() const;
  /// Difference, for the counts of one step.
  Counts operator-(const Counts& earlier) const;
};

/// How bf16 storage is multiplied on the host. Both sum exact products in f32, in their own orders.
enum class HostBf16 : std::uint8_t {
  detect,  ///< native where the CPU has AVX-512 BF16, else upcast, which is then the faster by 2.8
  native,  ///< oneDNN's bf16 matmul; the CPU takes subnormal bf16 (below 2^-126) for zero
  upcast,  ///< operands to f32 scratch (exact), oneDNN's f32 matmul
};

/// Runs GEMMs and keeps plans (primitives, scratch) between calls: nothing is allocated once a call like it has been
/// made. One per thread of control.
class Engine {
 public:
  /// An engine without plans.
  explicit Engine(HostBf16 host_bf16 = HostBf16::detect);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// C [M, N] = A [M, K] B [K, N] (+ C) (+ bias), where ctx.device says; all views lie there.
  /// A and B both f32, or both bf16 storage (any mix of bf16, e4m3, e5m2 formats). C is f32 or bf16, row-major with
  /// unit column stride (its row stride may be larger: a block of columns of a wider matrix); bf16 C with accumulate is
  /// refused. Any dimension may be any size; zero is legal (K = 0 gives bias or zeros, added to C when accumulating).
  /// With ctx.dry nothing is computed or counted. The arena is not used. Inverse scales multiply the f32 sum one after
  /// the other, A's first, then come C and bias. Deterministic for a given number of threads. Throws Error on a
  /// mismatch of shapes or formats.
  /// Sums of a tensor core are multiplied by the product of the two inverse scales, rounded to f32; they do not depend
  /// on the number of threads. A sum is NaN or infinite where that of its products in IEEE arithmetic is. On a device A
  /// and B may both be FP8 codes too, e5m2 on one side at most: then rows of C begin at multiples of 16 bytes and are
  /// as long, fast accumulation is that of the tensor cores, and what this chip or library does not offer is an Error
  /// that names it, in a dry run already when ctx has a stream. Deterministic for one chip and library.
  void matmul(const Context& ctx, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options);

  /// Adds `flops` of matrix products that ran elsewhere, as in attention, to counts() of GemmRole::other; gemms stay.
  void count_other(OperandKind kind, double flops);

  /// What ran since the engine was made.
  const Counts& counts() const;

  /// Bytes of scratch memory that the calls so far need, dry ones included, on host and device together. It belongs to
  /// the engine, is not in any arena, and is shared by all plans.
  std::size_t scratch_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// "oneDNN 2.6.3" of the library in use on the host.
std::string library_version();

/// What decides which defects of oneDNN a process on the host meets.
struct HostLibrary {
  std::array<int, 3> version{};  ///< major, minor, patch
  bool stops_at_avx2 = false;    ///< on x86 without AVX-512 in the CPU, or with FP8_CPU_ISA or oneDNN's own limit on it
};

/// The library in use on the host. Throws Error as cpu_isa() does.
HostLibrary host_library();

/// "cuBLASLt 13.1.0" of the library that devices use. Throws Error where it cannot be loaded.
std::string device_library_version();

/// Kind a GEMM of these operand formats counts as.
OperandKind kind_of(DType a, DType b);

}  // namespace fp8::gemm
