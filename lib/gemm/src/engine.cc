// The door: everything a caller can get wrong is refused here, then the call goes to the half that knows the place.
#include <string>

#include "fp8/base/error.h"
#include "fp8/gemm/gemm.h"
#include "host.h"

namespace fp8::gemm {
namespace {

using device::Place;

[[noreturn]] void refuse(const std::string& reason) { throw Error("matrix multiply: " + reason); }

std::string shape_of(const View& v) {
  return std::string("[") + std::to_string(v.shape[0]) + ", " + std::to_string(v.shape[1]) + "]";
}

bool is_fp8(DType t) { return t == DType::e4m3 || t == DType::e5m2; }

void check_operand(const char* name, const Operand& o, std::int64_t scales) {
  const View& v = o.matrix;
  const std::string n = name;
  if (v.rank != 2) refuse(n + " has " + std::to_string(v.rank) + " dimensions, not 2");
  if (v.place != Place::host) refuse(n + " is not on the host, and this build has no CUDA");
  if (v.dtype != DType::f32 && v.dtype != DType::bf16) {
    refuse(n + " is stored as " + std::string(name_of(v.dtype)) + "; the host takes float32 and bfloat16");
  }
  const bool fits = is_fp8(o.format) || o.format == v.dtype;  // scaled FP8 values need f32, codes fit bf16
  if (!fits) {
    refuse(n + ": format " + std::string(name_of(o.format)) + " cannot be stored as " + std::string(name_of(v.dtype)));
  }
  if (v.size() > 0 && v.empty()) refuse(n + " " + shape_of(v) + " has no memory");
  if (v.size() > 0 && v.stride[0] != 1 && v.stride[1] != 1) refuse(n + " " + shape_of(v) + " has no unit stride");
  const View& s = o.inverse_scale;
  if (s.empty()) return;
  if (s.dtype != DType::f32 || s.place != Place::host || !s.contiguous()) {
    refuse(n + "'s inverse scales must be contiguous float32 on the host");
  }
  if (s.size() != 1 && s.size() != scales) {
    refuse(n + " " + shape_of(v) + " has " + std::to_string(s.size()) + " inverse scales, neither 1 nor " +
           std::to_string(scales));
  }
}

void check_result(const Operand& a, const Operand& b, const View& c, const Options& options) {
  if (c.rank != 2) refuse(std::string("C has ") + std::to_string(c.rank) + " dimensions, not 2");
  if (c.place != Place::host) refuse("C is not on the host, and this build has no CUDA");
  if (a.matrix.shape[1] != b.matrix.shape[0] || c.shape[0] != a.matrix.shape[0] || c.shape[1] != b.matrix.shape[1]) {
    refuse("A " + shape_of(a.matrix) + " times B " + shape_of(b.matrix) + " does not give C " + shape_of(c));
  }
  if (a.matrix.dtype != b.matrix.dtype) {
    refuse("A is " + std::string(name_of(a.matrix.dtype)) + " and B is " + std::string(name_of(b.matrix.dtype)));
  }
  if (c.dtype != DType::f32 && c.dtype != DType::bf16) {
    refuse("C is " + std::string(name_of(c.dtype)) + "; it must be float32 or bfloat16");
  }
  if (options.accumulate && c.dtype != DType::f32) refuse("C must be float32 to accumulate");
  if (c.size() > 0 && c.empty()) refuse("C " + shape_of(c) + " has no memory");
  const bool rows_apart = c.shape[0] <= 1 || c.stride[0] >= c.shape[1];
  if (c.size() > 0 && (!rows_apart || (c.shape[1] > 1 && c.stride[1] != 1))) {
    refuse("C " + shape_of(c) + " must be row-major");
  }
  const View& bias = options.bias;
  if (bias.empty()) return;
  if (bias.rank != 1 || bias.shape[0] != c.shape[1] || !bias.contiguous() || bias.place != Place::host ||
      (bias.dtype != DType::f32 && bias.dtype != DType::bf16)) {
    refuse(std::string("bias must be ") + std::to_string(c.shape[1]) + " contiguous float32 or bfloat16 on the host");
  }
}

}  // namespace

struct Engine::Impl {
  explicit Impl(HostBf16 bf16) : host(bf16) {}
  HostGemm host;
  Counts counts;
};

Engine::Engine(HostBf16 host_bf16) : impl_(std::make_unique<Impl>(host_bf16)) {}
Engine::~Engine() = default;

void Engine::matmul(const Context& ctx, const Operand& a, const Operand& b, const View& c, const Options& options) {
  check_operand("A", a, a.matrix.shape[0]);
  check_operand("B", b, b.matrix.shape[1]);
  check_result(a, b, c, options);
  impl_->host.run(ctx.dry, a, b, c, options);
  if (ctx.dry) return;
  Count& count =
      impl_->counts.by[static_cast<std::size_t>(options.role)][static_cast<std::size_t>(kind_of(a.format, b.format))];
  ++count.gemms;
  count.flops +=
      2.0 * static_cast<double>(c.shape[0]) * static_cast<double>(c.shape[1]) * static_cast<double>(a.matrix.shape[1]);
}

const Counts& Engine::counts() const { return impl_->counts; }

std::size_t Engine::scratch_bytes() const { return impl_->host.scratch_bytes(); }

}  // namespace fp8::gemm
