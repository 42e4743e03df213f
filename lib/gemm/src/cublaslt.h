/// cuBLASLt's functions and objects, loaded when first needed. The only header that includes cublasLt.h. Private to
/// this crate.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string>

#include "cublaslt_names.h"
#include "device_plan.h"
#include "fp8/device/library.h"
#include "group_arrays.h"

namespace fp8::gemm {

/// The library's functions. Programs load the library and are not linked with it.
class CublasLt {
 public:
  /// Loads the library. Throws Error that names the package to install, or if it is older than 12.9.
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
  decltype(&::cublasLtMatrixLayoutSetAttribute) layout_set;          ///<
  decltype(&::cublasLtMatrixLayoutGetAttribute) layout_get;          ///<
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create;     ///<
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy;   ///<
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set;  ///<
  decltype(&::cublasLtMatmulPreferenceGetAttribute) preference_get;  ///<
  GroupedLayoutCreate grouped_layout_create = nullptr;               ///< null in libraries before kGroupsFrom

  /// Throws Error "cuBLASLt: call: reason" unless `status` is success.
  void check(cublasStatus_t status, const char* call) const;
  /// Name and version, such as "cuBLASLt 13.1.0".
  std::string name() const;

 private:
  device::Library library_;
};

/// Owner of an object of the library.
template <class T>
class Owned {
 public:
  /// Empty; `destroy` is called with the object.
  explicit Owned(cublasStatus_t (*destroy)(T)) : destroy_(destroy) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (object_ != nullptr) (void)destroy_(object_);
  }
  /// The object.
  T get() const { return object_; }
  /// Where the library stores the object.
  T* put() { return &object_; }

 private:
  cublasStatus_t (*destroy_)(T);
  T object_ = nullptr;
};

/// The library's objects for one plan.
class LtPlan {
 public:
  /// Creates the objects; needs no device. Sets `refusal` if the library is too old. A plan of several GEMMs refers to
  /// `arrays`, whose extents are written before a call. Throws Error.
  LtPlan(const CublasLt& lt, const DevicePlan& plan, const GroupArrays& arrays = {});

  /// Selects the first kernel that the library proposes; if there is none, sets `refusal`.
  void choose(cublasLtHandle_t handle, int capability);

  /// Sets the extents of the matrices to those of a plan that differs from the key in numbers of rows only.
  void resize(const DevicePlan& call);

  const CublasLt& lt;                            ///< functions
  DevicePlan plan;                               ///< the key
  DevicePlan sized;                              ///< the plan whose extents the matrices have
  bool own_rows_only = false;                    ///< the library refuses the kernel for the rows of other calls
  Owned<cublasLtMatmulDesc_t> desc;              ///< the operation
  Owned<cublasLtMatrixLayout_t> a, b, c;         ///< matrices
  Owned<cublasLtMatmulPreference_t> preference;  ///< workspace, alignment, reductions
  cublasLtMatmulAlgo_t algorithm{};              ///< selected kernel
  std::string refusal;                           ///< why there is no kernel, naming the plan; empty if there is one

  /// Sets an attribute of the operation.
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    lt.check(lt.desc_set(desc.get(), attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }

 private:
  void describe_operands(const GroupArrays& arrays);
  void describe_scales();
  void describe_epilogue();
  void describe_preference();
};

}  // namespace fp8::gemm
