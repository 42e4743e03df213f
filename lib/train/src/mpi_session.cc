// The two threads of a watchdog (fp8/watchdog/watchdog.h) are started here, and errors end the process or the job.
#include "fp8/train/mpi_session.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/resources.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"
#include "fp8/cli/run.h"
#include "fp8/comm/hosts.h"
#include "fp8/device/runtime.h"
#include "fp8/gemm/gemm.h"
#include "fp8/gemm/note.h"
#include "fp8/h5/reader.h"
#include "fp8/settings/config.h"
#include "fp8/watchdog/watchdog.h"

namespace fp8::train {
namespace {

// Without OMP_NUM_THREADS, sets the threads of a rank to its share of the processors it may use. Ranks that share fewer
// processors than they are yield while they wait. Collective.
void share_processors(comm::Communicator& host_comm) {
  const std::vector<std::string> all = host_comm.all_gather(own_processors());
  const int count = omp_get_num_procs(), sharing = ranks_on_processors(all, static_cast<std::size_t>(host_comm.rank()));
  if (sharing > count) comm::yield_when_idle();
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;  // NOLINT(concurrency-mt-unsafe): nobody sets variables
  omp_set_num_threads(std::max(1, count / sharing));
}

// The action of a watchdog: prints the stall and ends the job.
std::function<void(const watchdog::Stall&)> end_stalled_job(const std::string& tool) {
  return [tool](const watchdog::Stall& stall) {
    cli::print_error(tool, stall.message());
    comm::abort_all(static_cast<int>(Exit::no));
  };
}

// Prints what is wrong with the number of ranks on the first process of the job; false if `body` must not run.
bool has_ranks(const Start& start, int size) {
  std::string wrong = wrong_ranks(comm::launcher(), size, start.ranks);
  if (wrong.empty()) return true;
  if (start.one_job && !start.ranks) wrong += "; " + cli::flag_name("ranks") + " 1 if each task is a run of its own";
  if (comm::job_rank() != 0) {
    if (start.one_job) let_first_rank_print();
  } else if (start.one_job) {
    cli::print_error(start.tool, wrong);
  } else {
    cli::print_note(start.tool, wrong);
  }
  return !start.one_job;
}

}  // namespace

int run_ranks(const Start& start, const std::function<int(comm::Communicator&)>& body) {
  const std::string& tool = start.tool;
  const std::int64_t timeout = start.timeout;
  std::optional<watchdog::StartupWatch> startup;
  if (comm::launched() && timeout > 0)
    startup.emplace(static_cast<double>(timeout), comm::job_rank(), comm::job_rank_text(), "MPI_Init",
                    end_stalled_job(tool));
  comm::Session session;  // outside the try block: finalizing waits for the other ranks
  comm::Communicator& host_comm = session.world();
  if (startup) startup->enter("the first exchange");
  watch_ranks(host_comm, tool, timeout);
  startup.reset();
  comm::name_hosts(host_comm);
  if (host_comm.size() > 1) share_processors(host_comm);
  start_team();
  if (!has_ranks(start, host_comm.size())) return static_cast<int>(Exit::bad);
  if (comm::is_writer(host_comm)) gemm::on_note([tool](const std::string& text) { cli::print_note(tool, text); });
  if (host_comm.size() == 1) return body(host_comm);
  const auto end_job = [&](const std::string& message, int status) {
    cli::print_error(tool, "rank " + host_comm.text_of_rank(host_comm.rank()) + ": " + message);
    comm::abort_all(status);
  };
  int status = static_cast<int>(Exit::done);
  try {
    status = body(host_comm);
  } catch (const comm::AgreedError& e) {
    if (comm::is_writer(host_comm)) cli::print_error(tool, cli::error_message(e));
    status = static_cast<int>(e.code());
  } catch (const std::exception&) {
    const Error error = current_error();
    end_job(cli::error_message(error), static_cast<int>(error.code()));
  }
  return status;
}

std::string wrong_ranks(const comm::Launcher& launcher, int size, std::optional<std::int64_t> wanted) {
  if (wanted == size) return "";
  const std::string has = "MPI has " + counted(size, "rank");
  if (launcher.tasks <= size)
    return wanted ? cli::flag_name("ranks") + ": " + std::to_string(*wanted) + ", but " + has : "";
  return launcher.name + " started " + std::to_string(launcher.tasks) + " tasks, but " + has +
         ": for one job type srun --mpi=pmix (srun --mpi=list prints what this Slurm has) or the mpirun of " +
         comm::library_version();
}

void let_first_rank_print() {
  std::this_thread::sleep_for(std::chrono::milliseconds(100) * std::min(comm::job_rank(), 20));
}

std::string own_processors() {
  constexpr std::uint64_t kMost = 1U << 16U;
  try {
    const std::string status = read_text_file("/proc/self/status", kMost);
    const std::size_t begin = status.find("\nCpus_allowed_list:");
    return read_text_file("/proc/sys/kernel/random/boot_id", kMost) +
           (begin == std::string::npos ? "" : status.substr(begin + 1, status.find('\n', begin + 1) - begin - 1));
  } catch (const Error&) {
    return "";  // then all ranks share what each may use
  }
}

int ranks_on_processors(const std::vector<std::string>& processors, std::size_t rank) {
  return static_cast<int>(std::ranges::count(processors, processors.at(rank)));
}

void watch_ranks(comm::Communicator& host_comm, const std::string& tool, std::int64_t seconds) {
  const bool can = host_comm.watch(static_cast<double>(seconds), end_stalled_job(tool));
  if (!can && seconds > 0 && comm::is_writer(host_comm))
    cli::print_note(
        tool, cli::flag_name("timeout") + ": this MPI has no MPI_THREAD_MULTIPLE, so lost ranks are not detected");
}

std::vector<std::string> library_versions() {
  std::vector<std::string> all{h5::library_version(), comm::library_version(), gemm::library_version()};
  if (!device::runtime_version().empty()) all.push_back(device::runtime_version());
  return all;
}

}  // namespace fp8::train
