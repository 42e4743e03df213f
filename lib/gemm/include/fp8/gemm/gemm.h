/// Matrix multiply C = A B, and counts of the GEMMs that ran. On the host through oneDNN: bf16 operands with f32
/// accumulation, f32 operands in f32. FP8 is emulated: operands are FP8 values stored as bf16 (see quant), products are
/// exact, and sums, in f32 or with the bits of a tensor core, are multiplied by inverse scales in f32 before they are
/// rounded. On a device through cuBLASLt, with FP8 codes as bytes; f32 operands are multiplied in f32, never in TF32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fp8/device/profile.h"
#include "fp8/tensor/tensor.h"

namespace fp8::gemm {

using device::Context;
using dtype::DType;
using tensor::View;

/// The GEMM of a linear layer, for the counts. `other` is matrix multiplication outside of linear layers (attention),
/// which is counted separately.
enum class GemmRole : std::uint8_t { forward, dgrad, wgrad, other };

/// Kind of the operands, for the counts: a GEMM is fp8 or fp4 if both operands are.
using device::OperandKind;

/// Blocks of elements that share an inverse scale, and the layout of these scales. `outer` is a row of A or a column of
/// B, K the contracted dimension. On a device only for FP8 codes, in the layouts below with addresses that are
/// multiples of 16 bytes, and not block128x128 for both operands. On the host for FP8 values stored as bf16, with
/// scales in f32 of these shapes (block1x32: [outer, ceil(K/32)]) and any strides. Source: cuBLAS 13.1, "Narrow
/// Precision Data Types Usage".
enum class ScaleBlocks : std::uint8_t {
  none,  ///< no blocks: one scale for all elements, or one for each outer index
  /// 1 x 128 along K, f32 [outer, ceil(K/128)], stride [1, outer up to a multiple of 8]; that many rows of codes of A
  /// can be read; compute capability 9.0
  block1x128,
  block128x128,  ///< 128 x 128, f32 [ceil(outer/128), ceil(K/128)], stride [ceil(K/128) up to a multiple of 4, 1]; 9.0
  block1x32,     ///< 1 x 32 along K; on the host only
};

/// One operand. FP8 codes as bytes (u8, on a device) have unit stride along K and the other stride a multiple of 16; if
/// K is not a multiple of 16, the other stride is K rounded up, with zero padding.
struct Operand {
  View matrix;  ///< two dimensions, one of the strides is 1; f32, bf16, or FP8 codes on a device
  /// Format of the values before scaling: f32, bf16, e4m3, e5m2, or, on the host and in dry runs, e2m1, with the other
  /// operand e2m1 too.
  DType format = DType::f32;
  /// f32, contiguous: empty (1), [1], or one for each row of A, each column of B; or blocks. For e2m1 [1], the amax of
  /// the tensor.
  View inverse_scale;
  ScaleBlocks blocks = ScaleBlocks::none;  ///< blocks of the inverse scales
};

/// Accumulation of FP8 GEMMs on the host; other GEMMs always accumulate in f32.
/// Source: F. A. Khattak, M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv:2512.07004; verified with
/// recorded results of E4M3 x E4M3 and E5M2 x E4M3, without split K.
enum class Accumulation : std::uint8_t {
  f32,     ///< sums in f32, in oneDNN's order
  hopper,  ///< the bits of an H100: chains of blocks of 32 products, each truncated to 14 significant bits
  ada,     ///< the bits of an RTX 4060: the same with blocks of 16 products
};

/// "f32", "hopper", "ada".
std::string_view name_of(Accumulation accumulation);

/// Options of one GEMM.
struct MatmulOptions {
  GemmRole role = GemmRole::other;  ///< role under which the GEMM is counted
  bool accumulate = false;          ///< C += A B, C in f32
  bool fast_accumulation = false;   ///< tensor cores keep fewer bits of sums; no effect on f32 accumulation
  View bias{};                      ///< empty, or one per column of C, f32 or bf16, added in f32 before rounding
  Accumulation accumulation = Accumulation::f32;  ///< accumulation of FP8 GEMMs on the host
};

/// The operands of one of several GEMMs.
struct Product {
  Operand a, b;              ///< as A and B of Engine::matmul()
  View c;                    ///< as C
  View bias{};               ///< as MatmulOptions::bias
  std::int64_t padding = 0;  ///< contracted elements, the last, that counts of FLOPs leave out
};

/// Number of GEMMs and their FLOPs.
struct Count {
  std::int64_t gemms = 0;  ///< calls
  double flops = 0;        ///< 2 M N K each
};

/// Counts by role and kind.
struct Counts {
  std::array<std::array<Count, 4>, 4> by{};  ///< [role][kind]
  /// Sum over the roles of linear layers (forward, dgrad, wgrad).
  Count linear(OperandKind kind) const;
  /// GEMMs of linear layers whose operands were FP8 or FP4.
  std::int64_t low_precision_gemms() const;
  /// Share of the FLOPs of linear layers that ran with operands of this kind; 0 if none ran.
  double share(OperandKind kind) const;
  /// Share of all FLOPs, including GemmRole::other, that ran with operands of this kind; 0 if none ran.
  double share_total(OperandKind kind) const;
  /// Difference, for the counts of one step.
  Counts operator-(const Counts& earlier) const;
  /// Sum, for the counts of several passes.
  Counts& operator+=(const Counts& other);
};

/// Multiplication of bf16 operands on the host. Both ways sum exact products in f32, in different orders.
enum class HostBf16 : std::uint8_t {
  detect,  ///< native if the CPU has AVX-512 BF16, else upcast, which is then 2.8 times as fast
  native,  ///< oneDNN's bf16 matmul; the CPU treats subnormal bf16 (below 2^-126) as zero
  upcast,  ///< operands are upcast to f32 scratch (exact) for oneDNN's f32 matmul
};

/// Order of the sums of GEMMs with f32 accumulation on the host.
enum class HostSums : std::uint8_t {
  library,  ///< oneDNN's, which depends on shapes, strides and the number of threads
  /// C = X W^T, where rows of X and of W have unit stride, is summed by own kernels in an order that depends on K
  /// alone: a row of C has the same bits whatever the other rows, the threads and the instruction set. Generation uses
  /// this order, since its few rows read W at the speed of memory; for many rows oneDNN is faster. Other GEMMs run as
  /// under `library`.
  fixed,
};

/// Whether HostBf16::detect selects native on this CPU.
bool native_host_bf16();

/// Runs GEMMs and keeps plans (primitives, scratch) between calls: a repeated call allocates nothing. Not thread-safe.
class Engine {
 public:
  /// An engine without plans.
  explicit Engine(HostBf16 host_bf16 = HostBf16::detect, HostSums host_sums = HostSums::library);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// C [M, N] = A [M, K] B [K, N] (+ C) (+ bias); all views are on ctx.device.
  /// A and B both f32, or both bf16 storage (any mix of bf16, e4m3, e5m2 formats; or both e2m1). C is f32 or bf16,
  /// row-major with unit column stride; accumulate needs an f32 C. Any dimension may be 0 (K = 0 gives bias or zeros,
  /// added to C if accumulating). With ctx.dry nothing is computed or counted. The arena is not used. f32 sums are
  /// multiplied by A's inverse scale, then by B's, and then C and bias are added. Deterministic for a given number of
  /// threads. Throws Error if shapes or formats do not match. e2m1: A and B hold codes times the scales of their
  /// blocks, so that the products are exact and the sums f32; these are multiplied by (amax of A x amax of B) / 2688^2,
  /// both multiplications rounded to f32 (quant::fp4_alpha()). With scales for blocks, the host multiplies the codes by
  /// them in f32, and these products in f32. With another Accumulation than f32, sums are multiplied by the product of
  /// the two inverse scales, rounded to f32; the result does not depend on the number of threads, and is NaN or
  /// infinite exactly if the IEEE sum of products is. If both operands have scales for blocks of 128, each block of K
  /// is one chain without fast accumulation; its result is multiplied by the product of the two inverse scales, rounded
  /// to f32, and added in f32, in K's order. Blocks of 32 are refused. On a device A and B may both be FP8 codes, but
  /// not both e5m2; then rows of C begin at, and have lengths that are, multiples of 16 bytes, and fast accumulation is
  /// that of the tensor cores. If chip or library do not support a call, Error names the reason, also in a dry run if
  /// ctx has a stream. Deterministic for one chip and library.
  void matmul(const Context& ctx, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options);

  /// matmul() of each product, with `options` but for their bias. On a device one grouped GEMM of cuBLASLt computes all
  /// products that are bf16, or FP8 codes with one scale each, without bias, with addresses and lengths of rows of 16
  /// bytes, if library and chip have one: compute capability 9.0 from cuBLAS 13.4 on, FP8 from 13.5 on. Otherwise one
  /// GEMM follows the other; a note tells when the library is the reason. Products are counted as single ones are.
  void matmul(const Context& ctx, std::span<const Product> products, const MatmulOptions& options);

  /// Adds `flops` of matrix multiplication outside of this engine, as in attention, to counts() of GemmRole::other; the
  /// number of GEMMs is unchanged.
  void count_other(OperandKind kind, double flops);

  /// Counts since the construction.
  const Counts& counts() const;

  /// Bytes of scratch memory, on host and device together, that the calls so far need, including dry runs. The engine
  /// owns the memory; it is not in an arena, and all plans share it.
  std::size_t scratch_bytes() const;

 private:
  friend class VaryingRows;
  friend class Uncounted;
  friend class FurtherRows;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// While it exists, the calls of an engine are those of layers whose number of rows differs from call to call: rows of
/// A and C, or with GemmRole::wgrad the contraction. Few plans, of certain numbers of rows, are then kept for all of
/// these; only the order of f32 sums may change. The scratch of the host bounds that of calls with fewer rows. On a
/// device single GEMMs run with the kernel that cuBLASLt chooses for a rounded number of rows, unless it refuses the
/// kernel for the rows of a call: then, after a note, each number of rows has a kernel of its own.
class VaryingRows {
 public:
  /// For calls of `engine`, which outlives this.
  explicit VaryingRows(Engine& engine);
  ~VaryingRows();
  VaryingRows(const VaryingRows&) = delete;
  VaryingRows& operator=(const VaryingRows&) = delete;

 private:
  Engine& engine_;
};

/// While it exists, the GEMMs of an engine are not counted: those that repeat GEMMs which were counted.
class Uncounted {
 public:
  /// For calls of `engine`, which outlives this.
  explicit Uncounted(Engine& engine);
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  Engine& engine_;
  Counts before_;
};

/// While it exists, the GEMMs of an engine count by their FLOPs alone: they compute further rows of GEMMs that were
/// counted.
class FurtherRows {
 public:
  /// For calls of `engine`, which outlives this.
  explicit FurtherRows(Engine& engine);
  ~FurtherRows();
  FurtherRows(const FurtherRows&) = delete;
  FurtherRows& operator=(const FurtherRows&) = delete;

 private:
  Engine& engine_;
  Counts before_;
};

/// Name and version of the library in use on the host, such as "oneDNN 2.6.3".
std::string library_version();

/// Properties of oneDNN in this process on which its known defects depend.
struct HostLibrary {
  std::array<int, 3> version{};  ///< major, minor, patch
  bool stops_at_avx2 = false;    ///< on x86: no AVX-512, in the CPU or by FP8_CPU_ISA or oneDNN's limit
};

/// The library in use on the host. Throws Error as cpu_isa() does.
HostLibrary host_library();

/// Name and version of the library in use on devices, such as "cuBLASLt 13.1.0". Throws Error if it cannot be loaded.
std::string device_library_version();

/// Kind as which a GEMM of these operand formats is counted.
OperandKind kind_of(DType a, DType b);

}  // namespace fp8::gemm
