// Stand-ins for builds without CUDA.
#include "cuda.h"

#include "fp8/base/error.h"

namespace fp8::optim::cuda {

void adamw(const Context&, const Block&, const Settings&, const Scalars&) { throw Error("this build has no CUDA"); }
double sum_of_squares(const Context&, const View&) { throw Error("this build has no CUDA"); }

}  // namespace fp8::optim::cuda
