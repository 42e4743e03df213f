// Maps calls to plans of cuBLASLt, and checks what chip and library support.
#include "device_plan.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "fp8/base/round.h"

namespace fp8::gemm {
namespace {

constexpr std::int64_t kWord = 16;         // bytes: alignment of addresses and strides for tensor cores
constexpr std::int64_t kBlock = 128;       // elements of a side of a block
constexpr std::int64_t kRowsOfBlocks = 8;  // extents of C with scales for blocks of 128
constexpr std::size_t kApart = 256;        // bytes: alignment of parts of scratch

// Alignments above kWord are equal: no kernel needs more, and a shape must get the same kernel at every address of the
// arena.
std::uint32_t alignment_of(const void* p) {
  const auto low = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(p) % kWord);
  return low == 0 ? static_cast<std::uint32_t>(kWord) : 1U << std::countr_zero(low);
}

std::string capability_name(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

// One operand: A, or B transposed, so that its rows are C's columns.
struct Side {
  const char* name;  // "A", "B"
  const Operand& operand;
  View matrix;  // [outer, K]
  std::int64_t outer() const { return matrix.shape[0]; }
  std::int64_t k() const { return matrix.shape[1]; }
  bool vector() const { return operand.blocks == ScaleBlocks::none && operand.inverse_scale.size() > 1; }
};

const char* sharing(const Side& s) {
  switch (s.operand.blocks) {
    case ScaleBlocks::block1x128:
      return "scales for 1x128";
    case ScaleBlocks::block128x128:
      return "scales for 128x128";
    case ScaleBlocks::block1x32:
    case ScaleBlocks::none:
      break;
  }
  return s.vector() ? "row scales" : "tensor scale";
}

// Throws unless the chip, if it is known, supports the operand.
void check_capability(const Side& s, int capability) {
  if (capability == 0) return;
  const std::string has = ", and this chip has " + capability_name(capability);
  if (is_fp4(s.operand.format)) {
    if (capability < 100) refuse("FP4 codes need compute capability 10.0 or later" + has);
    return;
  }
  if (capability < 89) refuse("FP8 codes need compute capability 8.9 or later" + has);
  const bool blocks_of_128 =
      s.operand.blocks == ScaleBlocks::block1x128 || s.operand.blocks == ScaleBlocks::block128x128;
  if (blocks_of_128 && capability != 90)
    refuse(std::string(s.name) + ": FP8 with " + sharing(s) + " needs compute capability 9.0" + has);
}

// Elements along K that the library contracts, including the padding, which is zero in both operands.
std::int64_t padded_k(const Side& s) { return round_up(s.k(), kWord); }

// "A must be transposed and B non-transposed (The TN format)" before compute capability 10, so here everywhere.
Factor codes_factor(const Side& s) {
  const View& v = s.matrix;
  const std::string name = s.name;
  if (v.shape[1] > 1 && v.stride[1] != 1)
    refuse(name + ": FP8 codes must be contiguous along the contracted dimension");
  const std::int64_t stride = v.shape[0] > 1 ? v.stride[0] : padded_k(s);
  if (stride % kWord != 0 || stride < v.shape[1] || reinterpret_cast<std::uintptr_t>(v.data) % kWord != 0)
    refuse(name + ": rows of FP8 codes must begin at multiples of 16 bytes");
  if (v.shape[1] % kWord != 0 && stride != padded_k(s))
    refuse(name + ": " + std::to_string(v.shape[1]) + " FP8 codes in a row must be padded with zeros to " +
           std::to_string(padded_k(s)));
  return {.format = s.operand.format,
          .rows = padded_k(s),
          .columns = s.outer(),
          .stride = stride,
          .alignment = alignment_of(v.data)};
}

// An f32 or bf16 operand in any layout: contiguous rows are columns of the library. A matrix of one column, whose
// stride along the rows is arbitrary, has the orientation of the wider ones: experts of one row run together with
// others.
Factor float_factor(const Side& s) {
  const View& v = s.matrix;
  const bool by_rows = v.stride[1] == 1 || v.stride[0] != 1;
  const int long_way = by_rows ? 1 : 0, other = 1 - long_way;
  const std::int64_t rows = v.shape[static_cast<std::size_t>(long_way)];
  const std::int64_t columns = v.shape[static_cast<std::size_t>(other)];
  const std::int64_t stride = columns > 1 ? v.stride[static_cast<std::size_t>(other)] : rows;
  if (stride < rows) refuse(std::string(s.name) + " " + shape_of(s.operand.matrix) + " overlaps itself");
  return {.format = v.dtype,
          .transposed = !by_rows,
          .rows = rows,
          .columns = columns,
          .stride = stride,
          .alignment = alignment_of(v.data)};
}

// Block scales: the library prescribes shape, strides and alignment.
void check_blocks(const Side& s) {
  const View& v = s.operand.inverse_scale;
  const std::int64_t groups = divide_up(s.k(), kBlock);
  bool fits = v.empty() || reinterpret_cast<std::uintptr_t>(v.data) % kWord == 0;
  const bool rows = s.operand.blocks == ScaleBlocks::block1x128;
  const std::int64_t outer = rows ? s.outer() : divide_up(s.outer(), kBlock);
  fits = fits && v.dtype == DType::f32 && v.rank == 2 && v.shape[0] == outer && v.shape[1] == groups;
  const std::int64_t step_outer = rows ? 1 : round_up(groups, 4);
  const std::int64_t step_k = rows ? round_up(outer, kRowsOfBlocks) : 1;
  fits = fits && (outer <= 1 || v.stride[0] == step_outer) && (groups <= 1 || v.stride[1] == step_k);
  if (!fits || v.empty()) refuse(std::string(s.name) + ": " + sharing(s) + " blocks have a wrong type or layout");
}

bool is_128(ScaleBlocks b) { return b == ScaleBlocks::block1x128 || b == ScaleBlocks::block128x128; }

// The supported pairs of formats and scales. For 128-element and 128x128 scales, PyTorch refuses fast accumulation, and
// Transformer Engine requires multiples of 8 (the manual says 4).
void check_pair(const Side& a, const Side& b, const View& c, const MatmulOptions& options) {
  if (a.operand.format == DType::e5m2 && b.operand.format == DType::e5m2)
    refuse("float8_e5m2 times float8_e5m2 is not supported by cuBLASLt");
  const ScaleBlocks x = a.operand.blocks, y = b.operand.blocks;
  const bool pair = (x == y && x != ScaleBlocks::block128x128) || (is_128(x) && is_128(y) && x != y);
  if (!pair)
    refuse(std::string("A with ") + sharing(a) + " and B with " + sharing(b) + " is not supported by cuBLASLt");
  if (!is_128(x)) return;
  if (options.fast_accumulation) refuse("fast accumulation is not supported with scales for blocks of 128");
  const bool rows = c.shape[0] % kRowsOfBlocks == 0 || x == ScaleBlocks::block1x128;
  if (!rows || c.shape[1] % kRowsOfBlocks != 0)
    refuse("C " + shape_of(c) + ": extents must be multiples of 8 with scales for blocks of 128");
}

Scaling scaling_of(const Side& s, bool vectors) {
  switch (s.operand.blocks) {
    case ScaleBlocks::block1x128:
      return Scaling::vec128_32f;
    case ScaleBlocks::block128x128:
      return Scaling::blk128x128_32f;
    case ScaleBlocks::block1x32:
    case ScaleBlocks::none:
      break;
  }
  return vectors ? Scaling::outer_vec_32f : Scaling::scalar_32f;
}

// "Tensor Core Usage": FP8 kernels require (m * size of C) % 16 == 0 and so on.
void check_result_of_codes(const View& c, std::int64_t stride) {
  const auto size = static_cast<std::int64_t>(size_of(c.dtype));
  if (c.shape[1] * size % kWord != 0 || stride * size % kWord != 0 ||
      reinterpret_cast<std::uintptr_t>(c.data) % kWord != 0)
    refuse("C " + shape_of(c) +
           ": rows of the result of FP8 codes must begin at multiples of 16 bytes and have lengths of multiples of 16 "
           "bytes");
}

void add_codes(DeviceCall& call, const Side& a, const Side& b, const View& c, const MatmulOptions& options,
               int capability, bool after) {
  for (const Side* s : {&a, &b}) {
    if (s->operand.blocks == ScaleBlocks::block1x32) refuse("scales for 1x32 are multiplied into FP8 values on a GPU");
    check_capability(*s, capability);
  }
  check_pair(a, b, c, options);
  for (const Side* s : {&a, &b}) {
    if (s->operand.blocks != ScaleBlocks::none) check_blocks(*s);
  }
  const bool many = a.vector() || b.vector();
  call.after = many && (after || (capability != 0 && capability != 90));
  const bool vectors = many && !call.after;
  DevicePlan& p = call.plan;
  p.a = codes_factor(b);
  p.b = codes_factor(a);
  p.a.transposed = true;
  p.k = p.a.rows;
  p.a.scaling = scaling_of(b, vectors);
  p.b.scaling = scaling_of(a, vectors);
  if (a.operand.blocks == ScaleBlocks::block1x128) p.n = p.b.columns = round_up(p.n, kRowsOfBlocks);
  p.fast_accumulation = options.fast_accumulation;
  check_result_of_codes(c, p.c_stride);
  if (vectors && !a.vector()) call.broadcast_a = a.outer();
  if (vectors && !b.vector()) call.broadcast_b = b.outer();
}

void add_floats(DeviceCall& call, const Side& a, const Side& b) {
  DevicePlan& p = call.plan;
  p.a = float_factor(b);
  p.b = float_factor(a);
  p.a.transposed = !p.a.transposed;  // row-major [N, K] is column-major K x N, and the library needs N x K
  p.k = a.k();
}

// The type of bias that the library supports for these operands and this C.
DType library_bias(const Side& a, DType c) { return is_codes(a.operand) ? DType::bf16 : c; }

const char* scaling_text(Scaling s) {
  switch (s) {
    case Scaling::scalar_32f:
    case Scaling::per_batch_scalar_32f:
      return " with a tensor scale";
    case Scaling::outer_vec_32f:
      return " with row scales";
    case Scaling::vec128_32f:
      return " with scales for 1x128";
    case Scaling::blk128x128_32f:
      return " with scales for 128x128";
    case Scaling::none:
      break;
  }
  return "";
}

// The plan without what may differ between GEMMs that are computed together.
DevicePlan kind_of_plan(DevicePlan p) {
  p.m = p.n = p.k = p.c_stride = 0;
  for (Factor* f : {&p.a, &p.b}) f->rows = f->columns = f->stride = 0;
  return p;
}

// Whether a grouped GEMM can have this one: "All matrix dimensions must meet the optimal requirements listed in Tensor
// Core Usage", and arrays of extents are 32-bit.
bool is_groupable(const DevicePlan& p) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const auto aligned = [](DType type, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                          std::uint32_t alignment) {
    const auto size = static_cast<std::int64_t>(size_of(type));
    return rows > 0 && columns > 0 && rows * size % kWord == 0 && stride * size % kWord == 0 && alignment == kWord &&
           std::max(columns, stride) <= kMost;
  };
  const auto fits = [&](const Factor& f) {
    return f.format != DType::f32 && !is_fp4(f.format) &&
           (f.scaling == Scaling::none || f.scaling == Scaling::scalar_32f) &&
           aligned(f.format, f.rows, f.columns, f.stride, f.alignment);
  };
  return p.k > 0 && !p.bias && fits(p.a) && fits(p.b) && aligned(p.c, p.m, p.n, p.c_stride, p.c_alignment);
}

// The extent of all calls, or their average, rounded up to a power of two.
std::int64_t average(std::span<const DeviceCall> calls, std::int64_t DevicePlan::*extent) {
  std::int64_t sum = 0;
  bool equal = true;
  for (const DeviceCall& call : calls) {
    sum += call.plan.*extent;
    equal = equal && call.plan.*extent == calls.front().plan.*extent;
  }
  if (equal) return calls.front().plan.*extent;
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(divide_up(sum, std::ssize(calls)))));
}

// Few numbers that bound all others by at most a quarter: multiples of 16, and four for each doubling.
std::int64_t rounded_rows(std::int64_t rows) {
  constexpr std::int64_t kLeast = 16, kOfDoubling = 4;
  const std::int64_t below =
      rows < 2 ? 1 : std::int64_t{1} << (std::bit_width(static_cast<std::uint64_t>(rows - 1)) - 1);
  return round_up(rows, std::max(kLeast, below / kOfDoubling));
}

// Another length of columns, which are adjacent if they were.
void set_rows(Factor& f, std::int64_t rows) {
  f.stride = f.stride == f.rows ? rows : std::max(f.stride, rows);
  f.rows = rows;
}

}  // namespace

bool is_codes(const Operand& o) {
  return (is_fp8(o.format) && o.matrix.dtype == DType::u8) || (is_coded(o.format) && o.matrix.dtype == o.format);
}

std::size_t DeviceCall::sums_bytes() const {
  return finish ? tensor::make_view(nullptr, DType::f32, device::DeviceType::cuda, {plan.n, plan.m}).bytes() : 0;
}

std::size_t DeviceCall::broadcast_b_at() const {
  return round_up(static_cast<std::size_t>(broadcast_a) * sizeof(float), kApart);
}

std::size_t DeviceCall::broadcast_bytes() const {
  return broadcast_b_at() + static_cast<std::size_t>(broadcast_b) * sizeof(float);
}

DeviceCall describe(const Operand& a, const Operand& b, const View& c, const MatmulOptions& options, int capability,
                    bool after) {
  const Side left{"A", a, a.matrix}, right{"B", b, b.matrix.transposed()};
  const bool codes = is_codes(a);
  DeviceCall call;
  DevicePlan& p = call.plan;
  p.m = c.shape[1];
  p.n = c.shape[0];
  p.c = c.dtype;
  p.c_stride = c.shape[0] > 1 ? c.stride[0] : c.shape[1];
  if (left.k() > 0 && codes) add_codes(call, left, right, c, options, capability, after);
  if (left.k() > 0 && !codes) add_floats(call, left, right);

  const bool scaled = !codes && !(a.inverse_scale.empty() && b.inverse_scale.empty());
  const bool rounded = !codes && a.matrix.dtype == DType::f32 &&
                       c.dtype == DType::bf16;  // the library does not support this combination
  const bool other_bias = !options.bias.empty() && options.bias.dtype != library_bias(left, c.dtype);
  const bool more_rows = p.n > c.shape[0];  // than C has
  call.finish = p.k == 0 || call.after || scaled || rounded || other_bias || more_rows;
  if (call.finish) {  // the library writes dense f32 sums
    p.c = DType::f32;
    p.c_stride = p.m;
    p.c_alignment = static_cast<std::uint32_t>(kWord);
    return call;
  }
  p.c_alignment = alignment_of(c.data);
  p.accumulate = options.accumulate;
  p.bias = !options.bias.empty();
  if (p.bias) {
    p.bias_type = options.bias.dtype;
    p.bias_alignment = alignment_of(options.bias.data);
  }
  return call;
}

std::optional<DevicePlan> together(std::span<const DeviceCall> calls) {
  if (calls.size() < 2) return std::nullopt;
  const DevicePlan kind = kind_of_plan(calls.front().plan);
  for (const DeviceCall& call : calls)
    if (call.finish || !is_groupable(call.plan) || kind_of_plan(call.plan) != kind) return std::nullopt;
  DevicePlan plan = kind;
  plan.groups = std::ssize(calls);
  plan.m = average(calls, &DevicePlan::m);
  plan.n = average(calls, &DevicePlan::n);
  plan.k = average(calls, &DevicePlan::k);
  for (Factor* f : {&plan.a, &plan.b})
    if (f->scaling == Scaling::scalar_32f) f->scaling = Scaling::per_batch_scalar_32f;
  return plan;
}

DevicePlan with_rounded_rows(DevicePlan plan, GemmRole role) {
  if (plan.k == 0) return plan;
  if (role != GemmRole::wgrad) {
    plan.n = rounded_rows(plan.n);
    if (plan.b.transposed)
      set_rows(plan.b, plan.n);
    else
      plan.b.columns = plan.n;
    return plan;
  }
  plan.k = rounded_rows(plan.k);
  for (Factor* f : {&plan.a, &plan.b}) {
    const bool along = f->transposed == (f == &plan.a);  // the contraction is along the columns of the library
    if (along)
      set_rows(*f, plan.k);
    else
      f->columns = plan.k;
  }
  return plan;
}

Epilogue epilogue_of(const DeviceCall& call, const Operand& a, const Operand& b, const MatmulOptions& options) {
  Epilogue epilogue = epilogue_of(a, b, options);
  const bool applied = call.plan.k > 0 && is_codes(a) && !call.after;
  if (applied) epilogue.scale_a = epilogue.scale_b = nullptr;
  return epilogue;
}

std::string name_of(const DevicePlan& p) {
  const auto side = [](const Factor& f) { return std::string(name_of(f.format)) + scaling_text(f.scaling); };
  const std::string groups = p.groups == 0 ? "" : std::to_string(p.groups) + " products of on average ";
  return groups + side(p.b) + " times " + side(p.a) + " into " + std::string(name_of(p.c)) + " [" +
         std::to_string(p.n) + ", " + std::to_string(p.m) + "], K = " + std::to_string(p.k) +
         (p.accumulate ? ", accumulating" : "") + (p.fast_accumulation ? ", fast accumulation" : "") +
         (p.bias ? ", bias" : "");
}

}  // namespace fp8::gemm
