// NCCL by name: one build runs with and without it.
#include "fp8/base/error.h"
#include "fp8/device/library.h"
#include "nccl_library.h"

namespace fp8::comm::cuda {

const Nccl& Nccl::get() {
  static const Nccl functions = [] {
    const device::Library library({"libnccl.so.2"}, "install NCCL 2.18 or newer, or add its folder to LD_LIBRARY_PATH");
    Nccl n{};
#define FP8_NCCL(name) n.name = library.function<decltype(n.name)>("nccl" #name)
    FP8_NCCL(GetVersion);
    FP8_NCCL(GetUniqueId);
    FP8_NCCL(CommInitRank);
    FP8_NCCL(CommSplit);
    FP8_NCCL(CommDestroy);
    FP8_NCCL(CommAbort);
    FP8_NCCL(CommGetAsyncError);
    FP8_NCCL(GetErrorString);
    FP8_NCCL(GetLastError);
    FP8_NCCL(GroupStart);
    FP8_NCCL(GroupEnd);
    FP8_NCCL(AllReduce);
    FP8_NCCL(AllGather);
    FP8_NCCL(ReduceScatter);
    FP8_NCCL(Broadcast);
    FP8_NCCL(Reduce);
    FP8_NCCL(Send);
    FP8_NCCL(Recv);
#undef FP8_NCCL
    return n;
  }();
  return functions;
}

void Nccl::check(ncclResult_t result, const std::string& what) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const detail = GetLastError(nullptr);
  throw Error("NCCL " + what + ": " + GetErrorString(result) +
              (detail != nullptr && *detail != '\0' ? std::string(": ") + detail : std::string()));
}

}  // namespace fp8::comm::cuda
