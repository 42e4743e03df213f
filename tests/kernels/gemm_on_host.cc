// cuBLASLt's part of GEMMs, on the host: operands of codes become bf16 values, and the host's engine multiplies.
#include "fp8/device/cuda.h"  // the header of this folder must come before all others
//
#include "../../lib/gemm/src/cuda.h"
#include "../../lib/gemm/src/device_plan.h"
#include "../../lib/gemm/src/epilogue.cuh"
#include "gemms.h"

namespace fp8::kernels {

std::map<std::string, Gemms>& gemms() {
  static std::map<std::string, Gemms> all;
  return all;
}

bool counts_bytes() { return shim::kChecksMemory; }

}  // namespace fp8::kernels

namespace fp8::gemm {
namespace {

using device::DeviceType;

View on_host(View v) {
  v.device = DeviceType::host;
  return v;
}

// The values of an operand for the host's engine; `memory` holds those of codes.
Operand values_of(const Operand& o, std::vector<dtype::Bf16>& memory) {
  Operand out = o;
  out.matrix = on_host(o.matrix);
  out.inverse_scale = on_host(o.inverse_scale);
  if (!is_codes(o)) return out;
  const View& v = o.matrix;
  const std::int64_t span = (v.shape[0] - 1) * v.stride[0] + (v.shape[1] - 1) * v.stride[1] + 1;
  memory.resize(static_cast<std::size_t>(span));
  const auto* const codes = v.as<std::uint8_t>();
  for (std::size_t i = 0; i < memory.size(); ++i)
    memory[i] = dtype::from_float<dtype::Bf16>(o.format == DType::e4m3 ? dtype::from_e4m3(codes[i])
                                                                       : dtype::from_e5m2(codes[i]));
  out.matrix.data = memory.data();
  out.matrix.dtype = DType::bf16;
  return out;
}

std::string name_of(GemmRole role, OperandKind kind) {
  constexpr std::array kRoles{"forward ", "dgrad ", "wgrad ", "other "};
  constexpr std::array kKinds{"f32", "bf16", "fp8"};
  return std::string(kRoles[static_cast<std::size_t>(role)]) + kKinds[static_cast<std::size_t>(kind)];
}

class HostGemms final : public DeviceGemm {
 public:
  void run(const Context& ctx, const Operand& a, const Operand& b, const View& c,
           const MatmulOptions& options) override {
    if (c.size() == 0) return;
    const DeviceCall call = describe(a, b, c, options, 90);
    if (ctx.dry) return;
    count(a, b, c, options, call);
    Context host = ctx;
    host.device = DeviceType::host;
    host.stream = nullptr;
    MatmulOptions on = options;
    on.bias = on_host(options.bias);
    engine_.matmul(host, values_of(a, a_), values_of(b, b_), on_host(c), on);
  }
  bool run_together(const Context&, std::span<const Product>, const MatmulOptions&, const device::Span&) override {
    return false;
  }
  std::size_t scratch_bytes() const override { return 0; }

 private:
  static void count(const Operand& a, const Operand& b, const View& c, const MatmulOptions& options,
                    const DeviceCall& call) {
    kernels::Gemms& g = kernels::gemms()[name_of(options.role, kind_of(a.format, b.format))];
    ++g.calls;
    const auto m = static_cast<double>(c.shape[0]), n = static_cast<double>(c.shape[1]),
               k = static_cast<double>(a.matrix.shape[1]);
    g.flops += 2 * m * n * k;
    const double result = m * n * static_cast<double>(dtype::size_of(c.dtype));
    g.read += m * k * static_cast<double>(dtype::size_of(a.matrix.dtype)) +
              k * n * static_cast<double>(dtype::size_of(b.matrix.dtype)) + (options.accumulate ? result : 0);
    g.written += result;
    if (call.finish) ++shim::work()["gemm finish"].launches;
    shim::work()["gemm broadcast"].launches += (call.broadcast_a > 0 ? 1 : 0) + (call.broadcast_b > 0 ? 1 : 0);
  }
  Engine engine_;
  std::vector<dtype::Bf16> a_, b_;
};

}  // namespace

std::unique_ptr<DeviceGemm> make_device_gemm() { return std::make_unique<HostGemms>(); }
std::string device_library_version() { return "the host's GEMM"; }

}  // namespace fp8::gemm
