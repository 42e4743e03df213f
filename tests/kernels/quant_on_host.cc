// Compiles kernels of quant for the host, like kernels_on_host.cc, because their names clash with others in one source.
#include "fp8/device/cuda.h"  // the header of the program must come before all others
//
#include "../../lib/quant/src/cuda.cu"
