// Stand-ins for builds without CUDA.
#include "cuda.h"

namespace fp8::comm::cuda {

std::unique_ptr<Communicator> nccl(Communicator&, const device::Context&, bool) {
  throw Error("this build has no CUDA");
}
std::unique_ptr<Communicator> solo(Communicator&, const device::Context&) { throw Error("this build has no CUDA"); }
bool orders_groups() { throw Error("this build has no CUDA"); }
std::string version() { throw Error("this build has no CUDA"); }

}  // namespace fp8::comm::cuda
