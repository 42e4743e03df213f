// The tests of communicators on a GPU, with the stand-ins.
#include "../gpu/comm_gpu_test.cc"  // NOLINT(bugprone-suspicious-include)
