// The device half of the engine: plans found or made, scratch, and the calls of the library and of our own kernels. All
// work goes to the stream of the context, in order; scratch is shared by all calls for that reason.
#include <map>

#include "cublaslt.h"
#include "cuda.h"
#include "finish.cuh"
#include "fp8/base/error.h"
#include "fp8/device/cuda.h"
#include "scratch.h"

namespace fp8::gemm {
namespace {

using device::DeviceType;

constexpr std::size_t kMostPlans = 4096;  // beyond it all are made again: shapes that never return must not pile up

// The library with its handle, which needs a device.
struct OpenLibrary {
  OpenLibrary() : handle(lt.destroy) { lt.check(lt.create(handle.put()), "cublasLtCreate"); }
  CublasLt lt;
  Owned<cublasLtHandle_t> handle;
};

// Addresses of one call.
struct Pointers {
  const void *a, *b, *scale_a, *scale_b, *bias;  // of the library's A and B
  void* c;
};

class Gemm : public DeviceGemm {
 public:
  void run(const Context& ctx, const Operand& a, const Operand& b, const View& c,
           const MatmulOptions& options) override;
  std::size_t scratch_bytes() const override { return workspace_.bytes() + sums_.bytes() + broadcast_.bytes(); }

 private:
  LtPlan& find(const DevicePlan& plan, int capability);
  LtPlan& settle(DeviceCall& call, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options,
                 int capability);
  void multiply(const Context& ctx, LtPlan& plan, const Pointers& p);
  const void* vector_of(const Context& ctx, const Operand& o, std::int64_t broadcast, std::size_t at);

  std::unique_ptr<OpenLibrary> library_;
  std::map<DevicePlan, std::unique_ptr<LtPlan>> plans_;
  Scratch workspace_{DeviceType::cuda}, sums_{DeviceType::cuda}, broadcast_{DeviceType::cuda};
};

LtPlan& Gemm::find(const DevicePlan& plan, int capability) {
  if (const auto found = plans_.find(plan); found != plans_.end()) return *found->second;
  if (!library_) library_ = std::make_unique<OpenLibrary>();
  auto made = std::make_unique<LtPlan>(library_->lt, plan);
  made->choose(library_->handle.get(), capability);
  if (plans_.size() >= kMostPlans) plans_.clear();
  return *(plans_[plan] = std::move(made));
}

// The plan of a call, which becomes one with scales applied after the product where the library has no kernel with them
// at this shape.
LtPlan& Gemm::settle(DeviceCall& call, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options,
                     int capability) {
  LtPlan* plan = &find(call.plan, capability);
  if (!plan->refusal.empty() && call.plan.a.scaling == Scaling::outer_vec_32f) {
    call = describe(a, b, c, options, capability, true);
    plan = &find(call.plan, capability);
  }
  if (!plan->refusal.empty()) throw Error(plan->refusal);
  return *plan;
}

void Gemm::multiply(const Context& ctx, LtPlan& plan, const Pointers& p) {
  if (plan.plan.a.scaling != Scaling::none) {
    plan.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.scale_a);
    plan.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.scale_b);
  }
  if (plan.plan.bias) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  const float one = 1, beta = plan.plan.accumulate ? 1.0f : 0.0f;
  const CublasLt& lt = plan.lt;
  lt.check(lt.matmul(library_->handle.get(), plan.desc.get(), &one, p.a, plan.a.get(), p.b, plan.b.get(), &beta, p.c,
                     plan.c.get(), p.c, plan.c.get(), &plan.algorithm, workspace_.memory(), kWorkspace,
                     device::stream_of(ctx)),
           "cublasLtMatmul");
}

// An operand's inverse scales as the library wants them, repeated in scratch where it has one and the other has many.
const void* Gemm::vector_of(const Context& ctx, const Operand& o, std::int64_t broadcast, std::size_t at) {
  if (broadcast == 0) return o.inverse_scale.data;
  auto* to = reinterpret_cast<float*>(broadcast_.memory() + at);
  broadcast_cuda(device::CudaLauncher(ctx), static_cast<const float*>(o.inverse_scale.data), broadcast, to);
  return to;
}

void Gemm::run(const Context& ctx, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options) {
  if (c.size() == 0) return;
  const int capability = ctx.stream == nullptr ? 0 : ctx.stream->compute_capability;
  DeviceCall call = describe(a, b, c, options, capability);
  const bool asked = call.plan.k > 0;
  LtPlan* const plan = asked && ctx.stream != nullptr ? &settle(call, a, b, c, options, capability) : nullptr;
  if (asked) workspace_.need(kWorkspace);
  sums_.need(call.sums_bytes());
  broadcast_.need(call.broadcast_bytes());
  if (ctx.stream == nullptr) {
    if (ctx.dry) return;  // a plan for a machine that is not this one
    throw Error("matrix multiply: work on a GPU needs a context on it");
  }
  if (ctx.dry) return;
  void* const sums = call.finish && asked ? sums_.memory() : nullptr;
  if (asked) {
    multiply(ctx, *plan,
             {.a = b.matrix.data,
              .b = a.matrix.data,
              .scale_a = call.after ? nullptr : vector_of(ctx, b, call.broadcast_b, call.broadcast_b_at()),
              .scale_b = call.after ? nullptr : vector_of(ctx, a, call.broadcast_a, 0),
              .bias = options.bias.data,
              .c = call.finish ? sums : c.data});
  }
  if (!call.finish) return;
  finish_cuda(device::CudaLauncher(ctx), static_cast<const float*>(sums), epilogue_of(call, a, b, options), c);
}

}  // namespace

std::unique_ptr<DeviceGemm> make_device_gemm() { return std::make_unique<Gemm>(); }

}  // namespace fp8::gemm
