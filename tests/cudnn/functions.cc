// The functions of the driver that driver.cc does not define: they do nothing and return CUDA_SUCCESS. Not in
// driver.cc, because cuda.h declares them with arguments.
#define FP8_FUNCTION(name) \
  extern "C" __attribute__((weak)) int name() { return 0; }
#include "functions.inc"
