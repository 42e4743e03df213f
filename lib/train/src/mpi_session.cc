// The two threads of a watchdog (fp8/watchdog/watchdog.h) are started here, and errors end the process or the job.
#include "fp8/train/mpi_session.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "fp8/base/error.h"
#include "fp8/base/resources.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"
#include "fp8/cli/run.h"
#include "fp8/device/runtime.h"
#include "fp8/gemm/gemm.h"
#include "fp8/h5/reader.h"
#include "fp8/settings/config.h"
#include "fp8/watchdog/watchdog.h"

namespace fp8::train {
namespace {

// Without OMP_NUM_THREADS, sets the threads of a rank: the cores it is bound to, or its share of all cores.
void share_cores() {
  const char* local = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");  // NOLINT(concurrency-mt-unsafe): no threads yet
  if (std::getenv("OMP_NUM_THREADS") != nullptr || local == nullptr)
    return;  // NOLINT(concurrency-mt-unsafe): no threads yet
  const auto ranks = parse_int64(local);
  const int mine = omp_get_num_procs(), all = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (!ranks || *ranks < 2 || mine < all) return;
  omp_set_num_threads(std::max(1, all / static_cast<int>(*ranks)));
}

// The action of a watchdog: prints the stall and ends the job.
std::function<void(const watchdog::Stall&)> end_stalled_job(const std::string& tool) {
  return [tool](const watchdog::Stall& stall) {
    cli::print_error(tool, stall.message());
    comm::abort_all(static_cast<int>(Exit::no));
  };
}

}  // namespace

int run_ranks(const std::string& tool, std::int64_t timeout, const std::function<int(comm::Communicator&)>& body) {
  share_cores();
  std::optional<watchdog::StartupWatch> startup;
  if (comm::launched() && timeout > 0)
    startup.emplace(static_cast<double>(timeout), comm::job_rank(), "MPI_Init", end_stalled_job(tool));
  comm::Session session;  // outside the try block: finalizing waits for the other ranks
  comm::Communicator& host_comm = session.world();
  if (startup) startup->enter("the first exchange");
  watch_ranks(host_comm, tool, timeout);
  startup.reset();
  start_team();
  if (host_comm.size() == 1) return body(host_comm);
  const auto end_job = [&](const std::string& message, int status) {
    cli::print_error(tool, "rank " + std::to_string(host_comm.rank()) + ": " + message);
    comm::abort_all(status);
  };
  int status = static_cast<int>(Exit::done);
  try {
    status = body(host_comm);
  } catch (const comm::AgreedError& e) {
    if (host_comm.rank() == 0) cli::print_error(tool, cli::error_message(e));
    status = static_cast<int>(e.code());
  } catch (const std::exception&) {
    const Error error = current_error();
    end_job(cli::error_message(error), static_cast<int>(error.code()));
  }
  return status;
}

void watch_ranks(comm::Communicator& host_comm, const std::string& tool, std::int64_t seconds) {
  const bool can = host_comm.watch(static_cast<double>(seconds), end_stalled_job(tool));
  if (!can && seconds > 0 && host_comm.rank() == 0)
    cli::print_note(
        tool, cli::flag_name("timeout") + ": this MPI has no MPI_THREAD_MULTIPLE, so lost ranks are not detected");
}

std::vector<std::string> library_versions() {
  std::vector<std::string> all{h5::library_version(), comm::library_version(), gemm::library_version()};
  if (!device::runtime_version().empty()) all.push_back(device::runtime_version());
  return all;
}

}  // namespace fp8::train
