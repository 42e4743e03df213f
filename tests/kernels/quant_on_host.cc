// Compiles kernels of quant for the host, like device_on_host.cc, because their names clash with others in one source.
#include "fp8/device/cuda.h"  // the header of this folder must come before all others
//
#include "../../lib/quant/src/cuda.cu"
