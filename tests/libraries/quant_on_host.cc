// Compiles the kernels of quant for the host, like kernels_on_host.cc.
#include "../kernels/quant_on_host.cc"  // NOLINT(bugprone-suspicious-include)
