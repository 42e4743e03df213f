// The real calls of NCCL, compiled for the host.
#include "fp8/device/cuda.h"  // the header of this folder must come before all others
//
#include "../../lib/comm/src/nccl_communicator.cu"
