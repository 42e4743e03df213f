/// What cuBLASLt has for grouped GEMMs, which its header calls experimental. The headers of CUDA 12.9 and 13.0 lack
/// these names, and programs that are compiled with them use newer libraries. Private to this crate. Source: cublasLt.h
/// of cuBLAS 13.4.1 and 13.10.0. The library takes 8 bytes for the three averages, although the header gives them as
/// uint32_t: read from cuBLAS 13.4.1.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <type_traits>

namespace fp8::gemm {

/// First version with grouped GEMMs for compute capability 9.0; with an FP8 scale for each, from 13.5 on.
/// Source: Transformer Engine, grouped_gemm_common.h.
inline constexpr std::size_t kGroupsFrom = 130400;

/// cublasLtGroupedMatrixLayoutCreate(): layouts of `count` matrices, whose rows, columns and strides are i32 [count] on
/// the device. Matrices of such layouts are passed as arrays of addresses on the device.
using GroupedLayoutCreate = cublasStatus_t (*)(cublasLtMatrixLayout_t* to, cudaDataType type, int count,
                                               const void* rows, const void* columns, const void* strides);

/// Scale mode: an array of addresses of one f32 scale for each matrix.
inline constexpr auto kScaleOfEach = static_cast<cublasLtMatmulMatrixScale_t>(6);
/// Preference, int64_t: average of the contracted dimension.
inline constexpr auto kAverageContraction = static_cast<cublasLtMatmulPreferenceAttributes_t>(13);
/// Preference, int64_t: average number of rows of D.
inline constexpr auto kAverageRows = static_cast<cublasLtMatmulPreferenceAttributes_t>(14);
/// Preference, int64_t: average number of columns of D.
inline constexpr auto kAverageColumns = static_cast<cublasLtMatmulPreferenceAttributes_t>(15);

#if CUBLAS_VERSION >= 130400
static_assert(std::is_same_v<GroupedLayoutCreate, decltype(&::cublasLtGroupedMatrixLayoutCreate)>);
static_assert(kScaleOfEach == CUBLASLT_MATMUL_MATRIX_SCALE_PER_BATCH_SCALAR_32F);
static_assert(kAverageContraction == CUBLASLT_MATMUL_PREF_GROUPED_AVERAGE_REDUCTION_DIM);
static_assert(kAverageRows == CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_ROWS);
static_assert(kAverageColumns == CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_COLS);
#endif

}  // namespace fp8::gemm
