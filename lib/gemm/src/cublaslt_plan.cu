// The library's functions, and its objects for a DevicePlan. The constraints of FP8 are checked in device_plan.cc.
#include <algorithm>

#include "cublaslt.h"
#include "device_scratch.h"
#include "fp8/base/error.h"
#include "fp8/device/runtime.h"

namespace fp8::gemm {
namespace {

constexpr std::size_t kFirstVersion = 120900;  // that introduced row scales and blocks of 128
// An address that is never read; the heuristic uses its alignment only.
constexpr std::uintptr_t kSomewhere = std::uintptr_t{1} << 30;

cudaDataType type_of(DType t) {
  switch (t) {
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::e4m3:
      return CUDA_R_8F_E4M3;
    case DType::e5m2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

cublasOperation_t operation(const Factor& f) { return f.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

cublasLtMatmulMatrixScale_t mode(Scaling s) {
  switch (s) {
    case Scaling::outer_vec_32f:
      return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case Scaling::vec128_32f:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case Scaling::blk128x128_32f:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    case Scaling::per_batch_scalar_32f:
      return kScaleOfEach;
    case Scaling::none:
    case Scaling::scalar_32f:
      break;
  }
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

const void* somewhere(std::uint32_t alignment) { return reinterpret_cast<const void*>(kSomewhere + alignment); }

}  // namespace

CublasLt::CublasLt()
    : library_(device::cuda_libraries("libcublasLt.so"),
               "install cuBLAS of CUDA 12.9 or later, or add its folder to LD_LIBRARY_PATH") {
  const auto load = [this](auto& f, const char* name) {
    f = library_.function<std::remove_reference_t<decltype(f)>>(name);
  };
  load(create, "cublasLtCreate");
  load(destroy, "cublasLtDestroy");
  load(version, "cublasLtGetVersion");
  load(status_string, "cublasLtGetStatusString");
  load(matmul, "cublasLtMatmul");
  load(heuristic, "cublasLtMatmulAlgoGetHeuristic");
  load(desc_create, "cublasLtMatmulDescCreate");
  load(desc_destroy, "cublasLtMatmulDescDestroy");
  load(desc_set, "cublasLtMatmulDescSetAttribute");
  load(desc_get, "cublasLtMatmulDescGetAttribute");
  load(layout_create, "cublasLtMatrixLayoutCreate");
  load(layout_destroy, "cublasLtMatrixLayoutDestroy");
  load(layout_set, "cublasLtMatrixLayoutSetAttribute");
  load(layout_get, "cublasLtMatrixLayoutGetAttribute");
  load(preference_create, "cublasLtMatmulPreferenceCreate");
  load(preference_destroy, "cublasLtMatmulPreferenceDestroy");
  load(preference_set, "cublasLtMatmulPreferenceSetAttribute");
  load(preference_get, "cublasLtMatmulPreferenceGetAttribute");
  if (version() < kFirstVersion) throw Error(name() + " is too old: cuBLAS of CUDA 12.9 or later is needed");
  if (version() >= kGroupsFrom) load(grouped_layout_create, "cublasLtGroupedMatrixLayoutCreate");
}

void CublasLt::check(cublasStatus_t status, const char* call) const {
  if (status != CUBLAS_STATUS_SUCCESS) throw Error(std::string("cuBLASLt: ") + call + ": " + status_string(status));
}

std::string CublasLt::name() const {
  const std::size_t v = version();
  return "cuBLASLt " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

LtPlan::LtPlan(const CublasLt& functions, const DevicePlan& p, const GroupArrays& arrays)
    : lt(functions),
      plan(p),
      sized(p),
      desc(functions.desc_destroy),
      a(functions.layout_destroy),
      b(functions.layout_destroy),
      c(functions.layout_destroy),
      preference(functions.preference_destroy) {
  if (plan.groups > 0 && lt.grouped_layout_create == nullptr) {
    refusal = "matrix multiply: " + name_of(plan) + " needs cuBLASLt 13.4 or later, and this is " + lt.name();
    return;
  }
  describe_operands(arrays);
  describe_scales();
  describe_epilogue();
  describe_preference();
}

void LtPlan::describe_operands(const GroupArrays& arrays) {
  // Accumulation in f32, without TF32 for f32 operands.
  lt.check(lt.desc_create(desc.put(), CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  set(CUBLASLT_MATMUL_DESC_TRANSA, operation(plan.a));
  set(CUBLASLT_MATMUL_DESC_TRANSB, operation(plan.b));
  if (plan.groups > 0) set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
  const auto layout = [this](Owned<cublasLtMatrixLayout_t>& to, DType type, std::int64_t rows, std::int64_t columns,
                             std::int64_t stride) {
    lt.check(lt.layout_create(to.put(), type_of(type), static_cast<std::uint64_t>(rows),
                              static_cast<std::uint64_t>(columns), stride),
             "cublasLtMatrixLayoutCreate");
  };
  const auto layouts = [&](Owned<cublasLtMatrixLayout_t>& to, DType type, int first) {
    lt.check(lt.grouped_layout_create(to.put(), type_of(type), static_cast<int>(plan.groups), arrays.extents(first),
                                      arrays.extents(first + 1), arrays.extents(first + 2)),
             "cublasLtGroupedMatrixLayoutCreate");
  };
  if (plan.groups > 0) {
    layouts(a, plan.a.format, 0);
    layouts(b, plan.b.format, 3);
    layouts(c, plan.c, 6);
    return;
  }
  layout(a, plan.a.format, plan.a.rows, plan.a.columns, plan.a.stride);
  layout(b, plan.b.format, plan.b.rows, plan.b.columns, plan.b.stride);
  layout(c, plan.c, plan.m, plan.n, plan.c_stride);
}

void LtPlan::resize(const DevicePlan& call) {
  if (call == sized) return;
  const auto size = [this](cublasLtMatrixLayout_t of, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    for (const auto& [attribute, extent] : {std::pair{CUBLASLT_MATRIX_LAYOUT_ROWS, rows},
                                            {CUBLASLT_MATRIX_LAYOUT_COLS, columns},
                                            {CUBLASLT_MATRIX_LAYOUT_LD, stride}})
      lt.check(lt.layout_set(of, attribute, &extent, sizeof extent), "cublasLtMatrixLayoutSetAttribute");
  };
  size(a.get(), call.a.rows, call.a.columns, call.a.stride);
  size(b.get(), call.b.rows, call.b.columns, call.b.stride);
  size(c.get(), call.m, call.n, call.c_stride);
  sized = call;
}

void LtPlan::describe_scales() {
  if (plan.a.scaling == Scaling::none) return;  // "If any scale is set for a non-narrow precisions matmul": an error
  set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(plan.fast_accumulation ? 1 : 0));
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, somewhere(0));
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, somewhere(0));
  set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode(plan.a.scaling));
  set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode(plan.b.scaling));
}

void LtPlan::describe_epilogue() {
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, plan.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
  if (!plan.bias) return;
  set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(type_of(plan.bias_type)));
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, somewhere(plan.bias_alignment));
}

// Parts of a split contraction are summed in f32 in the workspace in a fixed order, not in C, whose type may be bf16
// and whose parts would be added in any order. Grouped GEMMs have the preferences and the pointer mode with which
// Transformer Engine calls them (cublaslt_grouped_gemm.cu), and no others, which might leave no kernel.
void LtPlan::describe_preference() {
  lt.check(lt.preference_create(preference.put()), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [this](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    lt.check(lt.preference_set(preference.get(), attribute, &value, sizeof value),
             "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspace});
  if (plan.groups > 0) {
    prefer(kAverageRows, plan.m);
    prefer(kAverageColumns, plan.n);
    prefer(kAverageContraction, plan.k);
    return;
  }
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, plan.a.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, plan.b.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, plan.c_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, plan.c_alignment);
}

void LtPlan::choose(cublasLtHandle_t handle, int capability) {
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status =
      lt.heuristic(handle, desc.get(), a.get(), b.get(), c.get(), c.get(), preference.get(), 1, &best, &found);
  if (status == CUBLAS_STATUS_SUCCESS && found == 1 && best.state == CUBLAS_STATUS_SUCCESS) {
    algorithm = best.algo;
    return;
  }
  const cublasStatus_t why = status != CUBLAS_STATUS_SUCCESS ? status
                             : found == 1                    ? best.state
                                                             : CUBLAS_STATUS_NOT_SUPPORTED;
  refusal = "matrix multiply: " + lt.name() + " on compute capability " + std::to_string(capability / 10) + "." +
            std::to_string(capability % 10) + " has no kernel for " + name_of(plan) + ": " + lt.status_string(why);
}

std::string device_library_version() { return CublasLt().name(); }

}  // namespace fp8::gemm
