// Stubs for builds without CUDA.
#include "cuda.h"

namespace fp8::optim::cuda {

using device::no_cuda;

void adamw(const Context&, const AdamwBlock&, const Settings&, const Scalars&) { no_cuda(); }
void add_squares(const Context&, const View&, double*) { no_cuda(); }
void add_sum(const Context&, const View&, double*) { no_cuda(); }
void add_in_order(const Context&, std::span<const double>, double*) { no_cuda(); }
void set_gate(const Context&, const double*, const double*, double, Gate*) { no_cuda(); }
void momentum(const Context&, const MomentumBlock&, const Scalars&) { no_cuda(); }
void muon(const Context&, const MuonBlock&, const Settings&, const Scalars&) { no_cuda(); }
void divide(const Context&, const View&, const double*) { no_cuda(); }
void combine(const Context&, const Combination&) { no_cuda(); }

}  // namespace fp8::optim::cuda
