// As device_on_host.cc, for quant, whose names would be those of others in one source.
#include "fp8/device/cuda.h"  // of this folder, before all others
//
#include "../../lib/quant/src/cuda.cu"
