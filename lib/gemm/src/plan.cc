// The only file that calls oneDNN. Operands are not packed beforehand: on AVX-512 BF16, kernels that pack during the
// call reach 90 to 95 % of their speed on packed operands, and packing takes the time that it saves.
#include "plan.h"

#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "fp8/base/cpu.h"
#include "fp8/base/error.h"
#include "fp8/base/resources.h"
#include "fp8/gemm/gemm.h"

namespace fp8::gemm {
namespace {

// More than the code of one plan: oneDNN maps 256 KiB for each of its kernels, and uses the address of a mapping that
// failed. A check of this size, which touches no memory, makes that an error.
constexpr std::size_t kRoom = std::size_t{32} << 20U;

dnnl::memory::data_type format_of(DType t) {
  return t == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

[[noreturn]] void throw_dnnl(const dnnl::error& e) {
  if (e.status == dnnl_out_of_memory) throw Error("out of memory: matrix multiply");
  throw Error(std::string("matrix multiply: oneDNN: ") + e.what());
}

// Limits oneDNN to FP8_CPU_ISA if that is lower than the CPU. oneDNN accepts a limit only before its first use.
void limit_isa() {
  static const bool done = [] {
    const Isa isa = cpu_isa();
    if (isa == supported_isa()) return true;
    const auto most = isa == Isa::baseline ? dnnl::cpu_isa::avx2 : dnnl::cpu_isa::avx512_core;
    if (dnnl::set_max_cpu_isa(most) != dnnl::status::success)
      throw Error("FP8_CPU_ISA: oneDNN was already in use and cannot be limited");
    return true;
  }();
  static_cast<void>(done);
}

// Strides of an [r, c] operand for oneDNN: the stride of a dimension of extent 1 is arbitrary, and most kernels
// recognize the stride of a dense row-major matrix.
std::array<std::int64_t, 2> plain_strides(const View& v) {
  std::array<std::int64_t, 2> s{v.stride[0], v.stride[1]};
  if (v.shape[1] == 1) s = {v.stride[0], 1};
  if (v.shape[0] == 1)
    s = v.stride[1] == 1 ? std::array<std::int64_t, 2>{v.shape[1], 1} : std::array{std::int64_t{1}, s[1]};
  return s;
}

// oneDNN 3 makes a matmul description in one step, oneDNN 2 in two.
#if DNNL_VERSION_MAJOR >= 3
using Description = dnnl::matmul::primitive_desc;
#else
struct Description : dnnl::matmul::primitive_desc {
  Description(const dnnl::engine& engine, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
              const dnnl::memory::desc& c, const dnnl::primitive_attr& attributes)
      : primitive_desc(dnnl::matmul::desc(a, b, c), attributes, engine) {}
};
#endif

struct Layouts {
  dnnl::memory::desc a, b, c;
};

// The layouts of a key, with m and k of a call if these are kAnyExtent there.
Layouts layouts_of(const PlanKey& key, std::int64_t m, std::int64_t k) {
  const auto in = format_of(key.operands);
  return {{{m, k}, in, {key.stride_a[0], key.stride_a[1]}},
          {{k, key.n}, in, {key.stride_b[0], key.stride_b[1]}},
          {{m, key.n}, format_of(key.c), {key.stride_c, 1}}};
}

std::int64_t in_advance(std::int64_t extent) { return extent == kAnyExtent ? DNNL_RUNTIME_DIM_VAL : extent; }

}  // namespace

struct MatmulPlan::Impl {
  PlanKey key;
  dnnl::matmul primitive;
  dnnl::stream stream;
  dnnl::memory a, b, c, scratchpad;
  std::vector<dnnl_exec_arg_t> arguments;
  std::size_t scratchpad_bytes = 0;
  std::string implementation;

  void name_arguments() {
    arguments = {{DNNL_ARG_SRC, a.get()},
                 {DNNL_ARG_WEIGHTS, b.get()},
                 {DNNL_ARG_DST, c.get()},
                 {DNNL_ARG_SCRATCHPAD, scratchpad.get()}};
  }
};

struct PlanCache::Library {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

PlanKey key_of(const View& a, const View& b, const View& c, bool accumulate) {
  PlanKey key{.m = a.shape[0],
              .n = b.shape[1],
              .k = a.shape[1],
              .stride_a = plain_strides(a),
              .stride_b = plain_strides(b),
              .stride_c = c.shape[0] == 1 ? c.shape[1] : c.stride[0],
              .operands = a.dtype,
              .c = c.dtype,
              .accumulate = accumulate,
              .threads = omp_get_max_threads()};
  return key;
}

MatmulPlan::MatmulPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MatmulPlan::~MatmulPlan() = default;

std::size_t MatmulPlan::scratchpad_bytes() const { return impl_->scratchpad_bytes; }

std::string MatmulPlan::implementation() const { return impl_->implementation; }

void MatmulPlan::run_any(std::int64_t m, std::int64_t k, void* a, void* b, void* c, void* scratchpad) {
  try {
    const Layouts now = layouts_of(impl_->key, m, k);
    impl_->a = dnnl::memory(now.a, impl_->a.get_engine(), DNNL_MEMORY_NONE);
    impl_->b = dnnl::memory(now.b, impl_->a.get_engine(), DNNL_MEMORY_NONE);
    impl_->c = dnnl::memory(now.c, impl_->a.get_engine(), DNNL_MEMORY_NONE);
    impl_->name_arguments();
  } catch (const dnnl::error& e) {
    throw_dnnl(e);
  }
  run(a, b, c, scratchpad);
}

void MatmulPlan::run(void* a, void* b, void* c, void* scratchpad) {
  try {
    impl_->a.set_data_handle(a);
    impl_->b.set_data_handle(b);
    impl_->c.set_data_handle(c);
    impl_->scratchpad.set_data_handle(scratchpad);
    const dnnl_status_t status =
        dnnl_primitive_execute(impl_->primitive.get(), impl_->stream.get(), static_cast<int>(impl_->arguments.size()),
                               impl_->arguments.data());
    dnnl::error::wrap_c_api(status, "could not run");
    impl_->stream.wait();
  } catch (const dnnl::error& e) {
    throw_dnnl(e);
  }
}

PlanCache::PlanCache() {
  limit_isa();
  check_room(kRoom, "matrix multiply");
  try {
    library_ = std::make_unique<Library>();
  } catch (const dnnl::error& e) {
    throw_dnnl(e);
  }
}

PlanCache::~PlanCache() = default;

MatmulPlan& PlanCache::find(const PlanKey& key) {
  if (MatmulPlan* const found = plans_.find(key)) return *found;
  check_room(kRoom, "matrix multiply");
  try {
    const auto [a, b, c] = layouts_of(key, in_advance(key.m), in_advance(key.k));
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (key.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const Description description(library_->engine, a, b, c, attributes);
    auto impl = std::make_unique<MatmulPlan::Impl>();
    impl->key = key;
    impl->primitive = dnnl::matmul(description);
    impl->stream = library_->stream;
    const bool any = key.m == kAnyExtent || key.k == kAnyExtent;  // then run_any() makes the memory objects
    const Layouts now = layouts_of(key, any ? 1 : key.m, any ? 1 : key.k);
    impl->a = dnnl::memory(now.a, library_->engine, DNNL_MEMORY_NONE);
    impl->b = dnnl::memory(now.b, library_->engine, DNNL_MEMORY_NONE);
    impl->c = dnnl::memory(now.c, library_->engine, DNNL_MEMORY_NONE);
    impl->scratchpad = dnnl::memory(description.scratchpad_desc(), library_->engine, DNNL_MEMORY_NONE);
    impl->name_arguments();
    impl->scratchpad_bytes = description.scratchpad_desc().get_size();
    impl->implementation = description.impl_info_str();
    return plans_.add(key, std::unique_ptr<MatmulPlan>(new MatmulPlan(std::move(impl))));
  } catch (const dnnl::error& e) {
    throw_dnnl(e);
  }
}

bool PlanCache::fast_bf16() {
  limit_isa();
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & wanted) == wanted;
}

bool native_host_bf16() { return PlanCache::fast_bf16(); }

std::string library_version() {
  const dnnl_version_t* v = dnnl_version();
  return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

HostLibrary host_library() {
  limit_isa();
  const dnnl_version_t* v = dnnl_version();
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());  // 0 on other CPUs than x86
  const auto avx512 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return {{v->major, v->minor, v->patch}, isa != 0 && (isa & avx512) != avx512};
}

}  // namespace fp8::gemm
