// The kernels of tests/kernels with launches on the streams of this folder.
#include "../kernels/kernels_on_host.cc"  // NOLINT(bugprone-suspicious-include)

#include "../kernels/ops_on_host.cc"    // NOLINT(bugprone-suspicious-include)
#include "../kernels/optim_on_host.cc"  // NOLINT(bugprone-suspicious-include)
