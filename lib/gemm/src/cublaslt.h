/// cuBLASLt's functions and objects, loaded when first needed. The only header that includes the library's.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string>

#include "device_plan.h"
#include "fp8/device/library.h"

namespace fp8::gemm {

/// The library's functions. No program is linked with it.
class CublasLt {
 public:
  /// Loads the library. Throws Error saying what to install.
  CublasLt();

  decltype(&::cublasLtCreate) create;                                ///< see cublasLt.h, as all of these
  decltype(&::cublasLtDestroy) destroy;                              ///<
  decltype(&::cublasLtGetVersion) version;                           ///<
  decltype(&::cublasLtGetStatusString) status_string;                ///<
  decltype(&::cublasLtMatmul) matmul;                                ///<
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic;             ///<
  decltype(&::cublasLtMatmulDescCreate) desc_create;                 ///<
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy;               ///<
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set;              ///<
  decltype(&::cublasLtMatmulDescGetAttribute) desc_get;              ///<
  decltype(&::cublasLtMatrixLayoutCreate) layout_create;             ///<
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy;           ///<
  decltype(&::cublasLtMatrixLayoutGetAttribute) layout_get;          ///<
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create;     ///<
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy;   ///<
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set;  ///<
  decltype(&::cublasLtMatmulPreferenceGetAttribute) preference_get;  ///<

  /// Throws Error "cuBLASLt: call: reason" unless all is well.
  void check(cublasStatus_t status, const char* call) const;
  /// "cuBLASLt 13.1.0".
  std::string name() const;

 private:
  device::Library library_;
};

/// Something of the library's that is given back.
template <class T>
class Owned {
 public:
  /// Nothing yet; `give_back` is called with what will be there.
  explicit Owned(cublasStatus_t (*give_back)(T)) : give_back_(give_back) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (object_ != nullptr) (void)give_back_(object_);
  }
  /// It.
  T get() const { return object_; }
  /// Where the library puts it.
  T* put() { return &object_; }

 private:
  cublasStatus_t (*give_back_)(T);
  T object_ = nullptr;
};

/// The library's objects for one plan.
class LtPlan {
 public:
  /// Describes the multiplication; needs no device. Throws Error.
  LtPlan(const CublasLt& lt, const DevicePlan& plan);

  /// Chooses the kernel: the first that the library proposes; `refusal` says where it has none.
  void choose(cublasLtHandle_t handle, int capability);

  const CublasLt& lt;                        ///< functions
  DevicePlan plan;                           ///< what it is for
  Owned<cublasLtMatmulDesc_t> desc;          ///< the multiplication
  Owned<cublasLtMatrixLayout_t> a, b, c;     ///< matrices
  Owned<cublasLtMatmulPreference_t> wishes;  ///< workspace, alignment, order of sums
  cublasLtMatmulAlgo_t algorithm{};          ///< chosen kernel
  std::string refusal;                       ///< why there is none, naming the plan; empty where there is one

  /// Sets an attribute of the multiplication.
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    lt.check(lt.desc_set(desc.get(), attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }

 private:
  void describe_operands();
  void describe_epilogue();
  void describe_wishes();
};

/// Bytes a kernel may take beside its operands: what cuBLAS itself takes on Hopper.
/// Source: cuBLAS manual, cublasSetWorkspace(), 32 MiB for compute capability 9.0.
inline constexpr std::size_t kWorkspace = std::size_t{32} << 20;

}  // namespace fp8::gemm
