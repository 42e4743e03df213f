// Whole models through the CUDA kernels, which run on the host: the golden models against their reference values, and
// FP8 recipes against the host's code. The tests are those for a GPU.
#include "../gpu/models_gpu_test.cc"  // NOLINT(bugprone-suspicious-include)
