/// NCCL's functions, loaded when first needed. Private to comm's CUDA side.
#pragma once

#include <nccl.h>

#include <string>

namespace fp8::comm::cuda {

/// The functions that are used, by NCCL's names without the prefix.
struct Nccl {
  decltype(&ncclGetVersion) GetVersion;
  decltype(&ncclGetUniqueId) GetUniqueId;
  decltype(&ncclCommInitRank) CommInitRank;
  decltype(&ncclCommSplit) CommSplit;
  decltype(&ncclCommDestroy) CommDestroy;
  decltype(&ncclCommAbort) CommAbort;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError;
  decltype(&ncclGetErrorString) GetErrorString;
  decltype(&ncclGetLastError) GetLastError;
  decltype(&ncclGroupStart) GroupStart;
  decltype(&ncclGroupEnd) GroupEnd;
  decltype(&ncclAllReduce) AllReduce;
  decltype(&ncclAllGather) AllGather;
  decltype(&ncclReduceScatter) ReduceScatter;
  decltype(&ncclBroadcast) Broadcast;
  decltype(&ncclReduce) Reduce;
  decltype(&ncclSend) Send;
  decltype(&ncclRecv) Recv;

  /// Loads them on the first call; throws Error that names what to install.
  static const Nccl& get();
  /// Throws Error "NCCL all-gather: message of NCCL" unless the result is success.
  void check(ncclResult_t result, const std::string& what) const;
};

}  // namespace fp8::comm::cuda
