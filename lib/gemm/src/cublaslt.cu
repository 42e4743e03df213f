// GEMMs on a device: plans, scratch, calls of cuBLASLt and of the kernels of epilogue.cuh. All work runs in order on
// the stream of the context, so all calls share their scratch.
#include <algorithm>
#include <vector>

#include "cublaslt.h"
#include "cuda.h"
#include "device_dry.h"
#include "epilogue.cuh"
#include "fp8/base/error.h"
#include "fp8/device/cuda.h"
#include "fp8/gemm/note.h"
#include "group_arrays.cuh"
#include "recent_plans.h"

namespace fp8::gemm {
namespace {

using device::DeviceType;

// The library with its handle, which needs a device.
struct OpenLibrary {
  OpenLibrary() : handle(lt.destroy) { lt.check(lt.create(handle.put()), "cublasLtCreate"); }
  CublasLt lt;
  Owned<cublasLtHandle_t> handle;
};

// Addresses of one call.
struct Pointers {
  const void *a, *b, *scale_a, *scale_b, *bias;  // operands in the order of the library's A and B
  void* c;
};

class Gemm : public DeviceGemm {
 public:
  void run(const Context& ctx, const Operand& a, const Operand& b, const View& c,
           const MatmulOptions& options) override;
  bool run_together(const Context& ctx, std::span<const Product> products, const MatmulOptions& options,
                    const device::Span& recorded) override;
  std::size_t scratch_bytes() const override { return scratch_.bytes(); }

 private:
  LtPlan& find(const DevicePlan& plan, int capability);
  LtPlan& find_for(const DevicePlan& plan, GemmRole role, int capability);
  LtPlan& plan_of(DeviceCall& call, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options,
                  int capability);
  bool multiply(const Context& ctx, LtPlan& plan, const Pointers& p);
  void reserve_arrays(std::size_t groups, bool dry);
  Pointers pointers(const Context& ctx, const DeviceCall& call, const Operand& a, const Operand& b, const View& c,
                    const MatmulOptions& options);
  const void* scales_for_library(const Context& ctx, const Operand& o, std::int64_t broadcast, std::size_t at);

  std::unique_ptr<OpenLibrary> library_;
  RecentPlans<DevicePlan, LtPlan> plans_;
  DeviceScratch scratch_;
  GroupArrays arrays_;  // of GEMMs that are computed together
};

float beta_of(const DevicePlan& plan) { return plan.accumulate ? 1.0f : 0.0f; }

// What the library reads of one GEMM of a group.
GroupEntry entry_of(const DevicePlan& p, const Product& product) {
  const auto address = [](const void* data) { return reinterpret_cast<std::uint64_t>(data); };
  const auto extent = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  return {.addresses = {address(product.b.matrix.data), address(product.a.matrix.data), address(product.c.data),
                        address(product.b.inverse_scale.data), address(product.a.inverse_scale.data)},
          .extents = {extent(p.a.rows), extent(p.a.columns), extent(p.a.stride), extent(p.b.rows), extent(p.b.columns),
                      extent(p.b.stride), extent(p.m), extent(p.n), extent(p.c_stride)}};
}

LtPlan& Gemm::find(const DevicePlan& plan, int capability) {
  if (LtPlan* const found = plans_.find(plan)) return *found;
  if (!library_) library_ = std::make_unique<OpenLibrary>();
  auto made = std::make_unique<LtPlan>(library_->lt, plan, arrays_);
  if (made->refusal.empty()) made->choose(library_->handle.get(), capability);
  return plans_.add(plan, std::move(made));
}

// The plan of one GEMM, whose matrices have the extents of the call. cublasLtMatmul() checks whether a kernel that was
// proposed for other extents serves these. Source: TensorRT-LLM, cublasMMWrapper.cpp, which uses kernels so.
LtPlan& Gemm::find_for(const DevicePlan& plan, GemmRole role, int capability) {
  if (rows_vary) {
    LtPlan& rounded = find(with_rounded_rows(plan, role), capability);
    if (rounded.refusal.empty() && !rounded.own_rows_only) {
      rounded.resize(plan);
      return rounded;
    }
  }
  LtPlan& own = find(plan, capability);
  own.resize(plan);
  return own;
}

// The plan of a call. If the library has no kernel with row scales for this shape, `call` changes to scales applied to
// the sums.
LtPlan& Gemm::plan_of(DeviceCall& call, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options,
                      int capability) {
  LtPlan* plan = &find_for(call.plan, options.role, capability);
  if (!plan->refusal.empty() && call.plan.a.scaling == Scaling::outer_vec_32f) {
    note_once("row scales are applied to the sums of some GEMMs", plan->refusal);
    call = describe(a, b, c, options, capability, true);
    plan = &find_for(call.plan, options.role, capability);
  }
  if (!plan->refusal.empty()) throw Error(plan->refusal);
  return *plan;
}

// Whether the library took the call; if not, plan.refusal says why.
bool Gemm::multiply(const Context& ctx, LtPlan& plan, const Pointers& p) {
  if (plan.plan.a.scaling != Scaling::none) {
    plan.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.scale_a);
    plan.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.scale_b);
  }
  if (plan.plan.bias) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  const float host[kGroupFactors] = {1, beta_of(plan.plan)};
  const float* const factors = plan.plan.groups > 0 ? arrays_.factors() : host;
  const CublasLt& lt = plan.lt;
  const cublasStatus_t status =
      lt.matmul(library_->handle.get(), plan.desc.get(), factors, p.a, plan.a.get(), p.b, plan.b.get(), factors + 1,
                p.c, plan.c.get(), p.c, plan.c.get(), &plan.algorithm, scratch_.workspace.memory(), kWorkspace,
                device::stream_of(ctx));
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
    const std::string why =
        "matrix multiply: " + lt.name() + " refused " + name_of(plan.sized) + ": " + lt.status_string(status);
    plan.own_rows_only = plan.plan != plan.sized;
    if (plan.own_rows_only)
      note_once("each number of rows of experts has a kernel of its own", why);
    else
      plan.refusal = why;
    return false;
  }
  lt.check(status, "cublasLtMatmul");
  return true;
}

// The inverse scales of an operand for the library, broadcast in scratch if it has one and the other operand many.
const void* Gemm::scales_for_library(const Context& ctx, const Operand& o, std::int64_t broadcast, std::size_t at) {
  if (broadcast == 0) return o.inverse_scale.data;
  auto* to = reinterpret_cast<float*>(scratch_.broadcast.memory() + at);
  broadcast_cuda(device::CudaLauncher(ctx), static_cast<const float*>(o.inverse_scale.data), broadcast, to);
  return to;
}

// Has arrays for `groups` GEMMs. Plans refer to the arrays, and are discarded when these move.
void Gemm::reserve_arrays(std::size_t groups, bool dry) {
  scratch_.need_together(groups);
  if (dry || (scratch_.capacity == arrays_.capacity && arrays_.memory != nullptr)) return;
  arrays_ = {scratch_.arrays.memory(), scratch_.capacity};
  plans_.erase_if([](const DevicePlan& plan) { return plan.groups > 0; });
}

bool Gemm::run_together(const Context& ctx, std::span<const Product> products, const MatmulOptions& options,
                        const device::Span& recorded) {
  const int capability = ctx.stream == nullptr ? 0 : ctx.stream->compute_capability;
  const TogetherCalls all(products, options, capability);
  if (!all.plan) return false;
  reserve_arrays(products.size(), ctx.dry);
  if (ctx.dry || ctx.stream == nullptr) return false;
  LtPlan& plan = find(*all.plan, capability);
  if (plan.refusal.empty()) {
    std::vector<GroupEntry> entries;
    for (std::size_t i = 0; i < products.size(); ++i) entries.push_back(entry_of(all.calls[i].plan, products[i]));
    const device::Timer timer(ctx, recorded);
    write_group_arrays(device::CudaLauncher(ctx), entries, beta_of(plan.plan), arrays_);
    if (multiply(ctx, plan,
                 {arrays_.addresses(0), arrays_.addresses(1), arrays_.addresses(3), arrays_.addresses(4), nullptr,
                  arrays_.addresses(2)}))
      return true;
  }
  note_once("some GEMMs of experts run one after the other", plan.refusal);
  return false;
}

Pointers Gemm::pointers(const Context& ctx, const DeviceCall& call, const Operand& a, const Operand& b, const View& c,
                        const MatmulOptions& options) {
  return {.a = b.matrix.data,
          .b = a.matrix.data,
          .scale_a = call.after ? nullptr : scales_for_library(ctx, b, call.broadcast_b, call.broadcast_b_at()),
          .scale_b = call.after ? nullptr : scales_for_library(ctx, a, call.broadcast_a, 0),
          .bias = options.bias.data,
          .c = call.finish ? scratch_.sums.memory() : c.data};
}

void Gemm::run(const Context& ctx, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options) {
  if (c.size() == 0) return;
  if (ctx.stream == nullptr) throw Error("matrix multiply: the context has no GPU stream");
  const int capability = ctx.stream->compute_capability;
  DeviceCall call = describe(a, b, c, options, capability);
  const bool calls_library = call.plan.k > 0;
  // Again if the library refuses the kernel for rounded rows, and then row scales; plan_of() throws if it refuses the
  // call without them.
  for (bool done = false; !done;) {
    LtPlan* const plan = calls_library ? &plan_of(call, a, b, c, options, capability) : nullptr;
    scratch_.need(call);
    done = plan == nullptr || ctx.dry || multiply(ctx, *plan, pointers(ctx, call, a, b, c, options));
  }
  if (ctx.dry || !call.finish) return;
  const void* const sums = calls_library ? scratch_.sums.memory() : nullptr;
  finish_cuda(device::CudaLauncher(ctx), static_cast<const float*>(sums), epilogue_of(call, a, b, options), c);
}

}  // namespace

std::unique_ptr<DeviceGemm> make_device_gemm() { return std::make_unique<Gemm>(); }

}  // namespace fp8::gemm
