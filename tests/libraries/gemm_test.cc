// The tests of GEMMs on a GPU, and of cuBLASLt's objects, with the stand-in.
#include "../../lib/gemm/tests/cublaslt_test.cu"  // NOLINT(bugprone-suspicious-include)
#include "../gpu/gemm_gpu_test.cc"                // NOLINT(bugprone-suspicious-include)
