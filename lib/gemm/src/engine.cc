// Validates operands, then dispatches to oneDNN (host.cc) or cuBLASLt (cublaslt.cu), and counts.
#include <algorithm>
#include <string>

#include "blocks.h"
#include "cuda.h"
#include "device_dry.h"
#include "device_plan.h"
#include "fp8/base/error.h"
#include "fp8/base/round.h"
#include "fp8/device/profile.h"
#include "fp8/dtype/e2m1.h"
#include "fp8/gemm/gemm.h"
#include "host.h"

namespace fp8::gemm {
namespace {

using device::DeviceType;

std::string place_name(DeviceType device) { return device == DeviceType::host ? "the host" : "the GPU"; }

// Scales for blocks on the host; device_plan.cc checks those on a device. `outer` is the dimension not contracted.
void check_host_blocks(const std::string& n, const Operand& o, std::int64_t outer) {
  const View& s = o.inverse_scale;
  const BlockSides sides = sides_of(o.blocks);
  const std::int64_t k = o.matrix.shape[0] * o.matrix.shape[1] / std::max<std::int64_t>(outer, 1);
  if (!is_fp8(o.format) || o.matrix.dtype != DType::bf16) refuse(n + ": scales for blocks need FP8 values as bfloat16");
  const bool fits = s.dtype == DType::f32 && s.rank == 2 && s.shape[0] == divide_up(outer, sides.across) &&
                    (outer == 0 || s.shape[1] == divide_up(k, sides.along));
  if (!fits || (s.empty() && o.matrix.size() > 0))
    refuse(n + " " + shape_of(o.matrix) + ": scales for blocks have a wrong type or shape");
}

void check_scales(const std::string& n, const Operand& o, DeviceType device, std::int64_t scales) {
  const View& s = o.inverse_scale;
  const bool blocks = o.blocks != ScaleBlocks::none;
  if (blocks && device == DeviceType::cuda && !is_codes(o)) refuse(n + ": block scales need FP8 codes on a GPU");
  if (!s.empty() && s.device != device) refuse(n + "'s inverse scales are not on " + place_name(device));
  if (blocks && device == DeviceType::host) check_host_blocks(n, o, scales);
  if (blocks || s.empty()) return;
  if (s.dtype != DType::f32 || !s.contiguous()) refuse(n + "'s inverse scales must be contiguous float32");
  if (s.size() != 1 && s.size() != scales) {
    refuse(n + " " + shape_of(o.matrix) + " has " + std::to_string(s.size()) + " inverse scales, neither 1 nor " +
           std::to_string(scales));
  }
}

void check_operand(const char* name, const Operand& o, DeviceType device, std::int64_t scales) {
  const View& v = o.matrix;
  const std::string n = name;
  if (v.rank != 2) refuse(n + " has " + std::to_string(v.rank) + " dimensions, not 2");
  if (v.device != device) refuse(n + " is not on " + place_name(device));
  const bool codes = is_codes(o) && device == DeviceType::cuda;
  if (!codes && v.dtype != DType::f32 && v.dtype != DType::bf16) {
    refuse(n + " is stored as " + std::string(name_of(v.dtype)) + "; " + place_name(device) +
           " supports float32 and bfloat16" + (device == DeviceType::cuda ? " and FP8 codes" : ""));
  }
  const bool fits = is_fp8(o.format) || (is_fp4(o.format) && v.dtype == DType::bf16 && device == DeviceType::host) ||
                    o.format == v.dtype;  // FP8 values may be stored as bf16, or scaled as f32
  if (!fits) {
    refuse(n + ": format " + std::string(name_of(o.format)) + " cannot be stored as " + std::string(name_of(v.dtype)));
  }
  if (v.size() > 0 && v.empty()) refuse(n + " " + shape_of(v) + " has no memory");
  if (v.size() > 0 && v.stride[0] != 1 && v.stride[1] != 1) refuse(n + " " + shape_of(v) + " has no unit stride");
  check_scales(n, o, device, scales);
}

void check_bias(const View& bias, const View& c, DeviceType device) {
  if (bias.empty()) return;
  if (bias.device != device) refuse("bias is not on " + place_name(device));
  if (bias.rank != 1 || bias.shape[0] != c.shape[1] || !bias.contiguous() ||
      (bias.dtype != DType::f32 && bias.dtype != DType::bf16)) {
    refuse("bias must be " + std::to_string(c.shape[1]) + " contiguous float32 or bfloat16");
  }
}

void check_result(const Operand& a, const Operand& b, const View& c, const MatmulOptions& options, DeviceType device) {
  if (c.rank != 2) refuse("C has " + std::to_string(c.rank) + " dimensions, not 2");
  if (c.device != device) refuse("C is not on " + place_name(device));
  if (a.matrix.shape[1] != b.matrix.shape[0] || c.shape[0] != a.matrix.shape[0] || c.shape[1] != b.matrix.shape[1]) {
    refuse("A " + shape_of(a.matrix) + " times B " + shape_of(b.matrix) + " does not give C " + shape_of(c));
  }
  if (is_codes(a) != is_codes(b) || (!is_codes(a) && a.matrix.dtype != b.matrix.dtype)) {
    refuse("A is " + std::string(name_of(a.matrix.dtype)) + " and B is " + std::string(name_of(b.matrix.dtype)));
  }
  const auto lacks_amax = [](const Operand& o) { return is_fp4(o.format) && o.inverse_scale.size() != 1; };
  if (is_fp4(a.format) != is_fp4(b.format) || lacks_amax(a) || lacks_amax(b))
    refuse("both operands must be FP4, each with the amax of its tensor, or neither");
  if (c.dtype != DType::f32 && c.dtype != DType::bf16) {
    refuse("C is " + std::string(name_of(c.dtype)) + "; it must be float32 or bfloat16");
  }
  if (options.accumulate && c.dtype != DType::f32) refuse("C must be float32 to accumulate");
  if (c.size() > 0 && c.empty()) refuse("C " + shape_of(c) + " has no memory");
  const bool rows_apart = c.shape[0] <= 1 || c.stride[0] >= c.shape[1];
  if (c.size() > 0 && (!rows_apart || (c.shape[1] > 1 && c.stride[1] != 1))) {
    refuse("C " + shape_of(c) + " must be row-major");
  }
  check_bias(options.bias, c, device);
  if (options.accumulation == Accumulation::f32) return;
  if (device == DeviceType::cuda) refuse("emulated accumulation of a tensor core is available on the host only");
  if (is_fp4(a.format)) refuse("emulated accumulation of a tensor core: those of FP4 products are not known");
  if (kind_of(a.format, b.format) == OperandKind::fp8 && a.matrix.dtype != DType::bf16)
    refuse("emulated accumulation of a tensor core needs FP8 codes, stored as bfloat16");
  if (a.blocks == ScaleBlocks::block1x32 || b.blocks == ScaleBlocks::block1x32)
    refuse("emulated accumulation of a tensor core: this chip has no GEMM with scales for 1x32");
  if ((a.blocks == ScaleBlocks::none) != (b.blocks == ScaleBlocks::none))
    refuse("emulated accumulation of a tensor core needs scales for blocks of both operands, or of none");
  if (a.blocks != ScaleBlocks::none && options.fast_accumulation)
    refuse("fast accumulation is not supported with scales for blocks of 128");
}

// The kind of work of a GEMM in profiles.
device::Work work_of(GemmRole role) {
  constexpr std::array kWorks{device::Work::matmul_forward, device::Work::matmul_dgrad, device::Work::matmul_wgrad,
                              device::Work::matmul_other};
  return kWorks[static_cast<std::size_t>(role)];
}

std::string_view matmul_name(OperandKind kind) {
  constexpr std::array<std::string_view, 4> kNames{"f32 matmul", "bf16 matmul", "fp8 matmul", "fp4 matmul"};
  return kNames[static_cast<std::size_t>(kind)];
}

void check_call(const Operand& a, const Operand& b, const View& c, const MatmulOptions& options, DeviceType device) {
  check_operand("A", a, device, a.matrix.shape[0]);
  check_operand("B", b, device, b.matrix.shape[1]);
  check_result(a, b, c, options, device);
}

double flops_of(const Product& p) {
  return 2.0 * static_cast<double>(p.c.shape[0]) * static_cast<double>(p.c.shape[1]) *
         static_cast<double>(p.a.matrix.shape[1] - p.padding);
}

// Bytes of an operand; packed FP4 codes are read with their block scales.
double bytes_of(const Operand& o) {
  if (is_fp4(o.matrix.dtype)) return dtype::kFp4BytesOfElement * static_cast<double>(o.matrix.size());
  return tensor::bytes_of(o.matrix);
}

// Bytes that a GEMM reads and writes.
double bytes_of(const Operand& a, const Operand& b, const View& c, const MatmulOptions& options) {
  return bytes_of(a) + bytes_of(b) + (options.accumulate ? 2 : 1) * tensor::bytes_of(c);
}

device::Scaling scaling_of(const Operand& a, const Operand& b) {
  using device::Scaling;
  const auto any = [&](ScaleBlocks blocks) { return a.blocks == blocks || b.blocks == blocks; };
  if (is_fp4(a.format)) return Scaling::nvfp4;
  if (any(ScaleBlocks::block1x32)) return Scaling::mx;
  if (any(ScaleBlocks::block128x128)) return Scaling::block128x128;
  if (any(ScaleBlocks::block1x128)) return Scaling::block1x128;
  if (a.inverse_scale.size() > 1 || b.inverse_scale.size() > 1) return Scaling::row;
  return a.inverse_scale.empty() && b.inverse_scale.empty() ? Scaling::none : Scaling::tensor;
}

// What a profile records of one GEMM.
device::Span span_of(const Product& p, const MatmulOptions& options) {
  const OperandKind kind = kind_of(p.a.format, p.b.format);
  return {.work = work_of(options.role),
          .name = matmul_name(kind),
          .bytes = bytes_of(p.a, p.b, p.c, options),
          .flops = flops_of(p),
          .mnk = {p.c.shape[0], p.c.shape[1], p.a.matrix.shape[1]},
          .gemms = 1,
          .operands = kind,
          .scaling = scaling_of(p.a, p.b),
          .accumulate = options.accumulate};
}

}  // namespace

std::string_view name_of(Accumulation accumulation) {
  constexpr std::array<std::string_view, 3> kNames{"f32", "hopper", "ada"};
  return kNames[static_cast<std::size_t>(accumulation)];
}

struct Engine::Impl {
  Impl(HostBf16 bf16, HostSums sums) : host(bf16, sums) {}
  void run(const Context& ctx, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options);
  bool run_together(const Context& ctx, std::span<const Product> products, const MatmulOptions& options);
  void multiply(const Context& ctx, const Product& product, const MatmulOptions& options);
  void count(const Product& p, GemmRole role);
  void vary_rows(bool vary) {
    host.vary_rows(vary);
    rows_vary = vary;
  }
  HostGemm host;
  DryGemm dry;
  std::unique_ptr<DeviceGemm> device;  // created by the first call on a device
  bool rows_vary = false;              // see VaryingRows
  Counts counts;
};

Engine::Engine(HostBf16 host_bf16, HostSums host_sums) : impl_(std::make_unique<Impl>(host_bf16, host_sums)) {}
Engine::~Engine() = default;

void Engine::Impl::run(const Context& ctx, const Operand& a, const Operand& b, const View& c,
                       const MatmulOptions& options) {
  check_call(a, b, c, options, ctx.device);
  if (ctx.device == DeviceType::host) {
    if (!device::planned(ctx)) host.run(ctx.dry, a, b, c, options);  // plans of large GEMMs take time
    return;
  }
  if (runs_without_device(ctx)) return dry.run(ctx, a, b, c, options);
  if (!device) device = make_device_gemm();
  device->rows_vary = rows_vary;
  device->run(ctx, a, b, c, options);
}

// Whether all products were computed by one call of the device's library.
bool Engine::Impl::run_together(const Context& ctx, std::span<const Product> products, const MatmulOptions& options) {
  device::Span recorded = span_of(products[0], options);
  for (const Product& p : products) {
    check_call(p.a, p.b, p.c, with_bias(options, p), ctx.device);
    if (&p == products.data()) continue;
    const device::Span next = span_of(p, options);
    recorded.bytes += next.bytes;
    recorded.flops += next.flops;
    recorded.mnk[0] += next.mnk[0];
    recorded.mnk[2] += next.mnk[2];
    ++recorded.gemms;
  }
  recorded.mnk[2] /= recorded.gemms;
  if (runs_without_device(ctx)) return dry.run_together(ctx, products, options, recorded);
  if (!device) device = make_device_gemm();
  return device->run_together(ctx, products, options, recorded);
}

void Engine::Impl::count(const Product& p, GemmRole role) {
  Count& count = counts.by[static_cast<std::size_t>(role)][static_cast<std::size_t>(kind_of(p.a.format, p.b.format))];
  ++count.gemms;
  count.flops += flops_of(p);
}

// One product, whose bias is that of the options.
void Engine::Impl::multiply(const Context& ctx, const Product& product, const MatmulOptions& options) {
  const auto& [a, b, c, bias, padding] = product;
  device::Span span = span_of(product, options);
  if (device::planned(ctx) && ctx.device == DeviceType::cuda) {
    check_call(a, b, c, options, ctx.device);
    DryGemm::add_kernels(ctx, product, options, span);
  }
  const device::Timer timer(ctx, span);
  run(ctx, a, b, c, options);
  if (!ctx.dry) count(product, options.role);
}

void Engine::matmul(const Context& ctx, const Operand& a, const Operand& b, const View& c,
                    const MatmulOptions& options) {
  impl_->multiply(ctx, {a, b, c}, options);
}

void Engine::matmul(const Context& ctx, std::span<const Product> products, const MatmulOptions& options) {
  if (products.size() > 1 && ctx.device == DeviceType::cuda && impl_->run_together(ctx, products, options)) {
    for (const Product& p : products)
      if (!ctx.dry) impl_->count(p, options.role);
    return;
  }
  for (const Product& p : products) impl_->multiply(ctx, p, with_bias(options, p));
}

void Engine::count_other(OperandKind kind, double flops) {
  impl_->counts.by[static_cast<std::size_t>(GemmRole::other)][static_cast<std::size_t>(kind)].flops += flops;
}

VaryingRows::VaryingRows(Engine& engine) : engine_(engine) { engine_.impl_->vary_rows(true); }
VaryingRows::~VaryingRows() { engine_.impl_->vary_rows(false); }

Uncounted::Uncounted(Engine& engine) : engine_(engine), before_(engine.counts()) {}
Uncounted::~Uncounted() { engine_.impl_->counts = before_; }

FurtherRows::FurtherRows(Engine& engine) : engine_(engine), before_(engine.counts()) {}
FurtherRows::~FurtherRows() {
  Counts& now = engine_.impl_->counts;
  for (std::size_t role = 0; role < now.by.size(); ++role)
    for (std::size_t kind = 0; kind < now.by[role].size(); ++kind)
      now.by[role][kind].gemms = before_.by[role][kind].gemms;
}

const Counts& Engine::counts() const { return impl_->counts; }

std::size_t Engine::scratch_bytes() const {
  return impl_->host.scratch_bytes() + impl_->dry.scratch_bytes() +
         (impl_->device ? impl_->device->scratch_bytes() : 0);
}

}  // namespace fp8::gemm
