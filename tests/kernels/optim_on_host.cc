// Compiles the kernels of optim for the host, like kernels_on_host.cc.
#include "fp8/device/cuda.h"  // the header of the program must come before all others
//
#include "../../lib/optim/src/cuda.cu"
