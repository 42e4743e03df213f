/// Whether the machines of a job see the same folder.
#pragma once

#include <string>
#include <vector>

#include "fp8/comm/comm.h"

namespace fp8::comm {

/// What the ranks of a job see of a folder.
struct FolderView {
  std::string folder{};               ///< the folder, or the nearest one above it that exists on rank 0
  std::string unwritable{};           ///< why rank 0 cannot write there; empty if it can
  std::vector<std::string> unseen{};  ///< by rank: why it does not see what rank 0 writes there; empty if it does
};

/// `path`, or the nearest folder above it that exists.
std::string nearest_folder(std::string path);

/// Rank 0 writes a file with a random name and content in the nearest_folder() of `folder`, and every rank looks for
/// it; the file is removed. The result is the same on all ranks. Collective.
FolderView view_folder(Communicator& world, const std::string& folder);

/// Throws AgreedError with Exit::bad that names the host of the lowest rank that does not see what rank 0 writes in
/// view_folder(). Does nothing if all ranks are on one host, or rank 0 cannot write there, which is an error of what
/// writes later. Collective.
void check_shared(Communicator& world, const std::string& folder);

}  // namespace fp8::comm
