// The frame around tools that may run under mpirun.
#include "fp8/train/main.h"

#include "fp8/base/error.h"
#include "fp8/cli/run.h"
#include "fp8/gemm/gemm.h"
#include "fp8/h5/reader.h"
#include "fp8/train/config.h"

namespace fp8::train {

int run_ranks(const std::string& tool, const std::function<int(comm::Communicator&)>& body) {
  comm::Session session;  // outside the try block: finalizing waits for the other ranks
  comm::Communicator& world = session.world();
  if (world.size() == 1) return body(world);
  const auto end_job = [&](const std::string& message, int status) {
    cli::print_error(tool, "rank " + std::to_string(world.rank()) + ": " + message);
    comm::abort_all(status);
  };
  int status = static_cast<int>(Exit::done);
  try {
    status = body(world);
  } catch (const comm::AgreedError& e) {
    if (world.rank() == 0) cli::print_error(tool, e.what());
    status = static_cast<int>(e.code());
  } catch (const Error& e) {
    end_job(e.what(), static_cast<int>(e.code()));
  } catch (const std::exception& e) {
    end_job(std::string("internal error: ") + e.what(), static_cast<int>(Exit::bad));
  }
  return status;
}

void check_same_flags(comm::Communicator& world, json::Value flags) {
  for (const char* path : {"data", "eval-data", "out"}) flags.as_object().erase(path);
  check_same_on_all_ranks(world, flags);
}

std::vector<std::string> library_versions() { return {h5::library_version(), comm::library_version(), gemm::library_version()}; }

}  // namespace fp8::train
