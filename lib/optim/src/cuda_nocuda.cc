// Stubs for builds without CUDA.
#include "cuda.h"

#include "fp8/base/error.h"

namespace fp8::optim::cuda {

void adamw(const Context&, const AdamwBlock&, const Settings&, const Scalars&) {
  throw Error("this build has no CUDA");
}
void add_squares(const Context&, const View&, double*) { throw Error("this build has no CUDA"); }
void add_sum(const Context&, const View&, double*) { throw Error("this build has no CUDA"); }
void set_gate(const Context&, const double*, const double*, double, Gate*) { throw Error("this build has no CUDA"); }

}  // namespace fp8::optim::cuda
