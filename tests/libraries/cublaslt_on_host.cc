// The real calls of cuBLASLt, compiled for the host.
#include "fp8/device/cuda.h"  // the header of this folder must come before all others
//
#include "../../lib/gemm/src/cublaslt.cu"
