// Ranks by the environment of mpirun or srun, the life of MPI, and the end of a job.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "fp8/base/host.h"
#include "fp8/base/text.h"
#include "fp8/comm/comm.h"
#include "mpi_c.h"
#include "mpi_communicator.h"

namespace fp8::comm {
namespace {

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

/// The rank or number of processes in a variable; nothing if it is not set or holds something else.
std::optional<int> number_in(const char* name) {
  const char* const value = std::getenv(name);
  const auto number = parse_int64(value != nullptr ? value : "");
  if (!number || *number < 0 || *number >= 1 << 20) return std::nullopt;
  return static_cast<int>(*number);
}

/// The first of these variables that holds a rank; 0 where none does.
int first_number(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto rank = number_in(name)) return *rank;
  return 0;
}

/// Whether the job of this process has processes on other machines too.
bool has_other_machines() {
  if (const auto here = number_in("OMPI_COMM_WORLD_LOCAL_SIZE")) return *here < launcher().tasks;
  return number_in("SLURM_STEP_NUM_NODES").value_or(1) > 1;
}

/// Whether MPI is between initialization and finalization.
bool running() {
  int initialized = 0, finalized = 0;
  check_mpi(MPI_Initialized(&initialized), "initialized");
  check_mpi(MPI_Finalized(&finalized), "finalized");
  return initialized && !finalized;
}

}  // namespace

Launcher launcher() {
  if (const auto tasks = number_in("OMPI_COMM_WORLD_SIZE")) return {"mpirun", *tasks};
  if (const auto tasks = number_in("SLURM_STEP_NUM_TASKS")) return {"srun", *tasks};
  if (const auto tasks = number_in("PMI_SIZE")) return {"mpiexec", *tasks};
  return {};
}

bool launched() {
  if (is_set("OMPI_COMM_WORLD_SIZE")) return number_in("OMPI_COMM_WORLD_SIZE") != 1;
  // An allocation's shell and batch script have SLURM_PROCID too; only srun adds a way to reach the other tasks.
  const bool srun = is_set("SLURM_PROCID") && (is_set("PMI_RANK") || is_set("PMI_FD") || is_set("PMI2_RANK"));
  return (is_set("PMIX_RANK") || srun) && number_in("SLURM_STEP_NUM_TASKS") != 1;
}

int job_rank() { return first_number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}); }

int local_rank() { return first_number({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}); }

std::string job_rank_text() {
  return "rank " + std::to_string(job_rank()) + (has_other_machines() ? " (" + host_name() + ")" : "");
}

Session::Session() {
  if (!launched()) {
    world_ = solo();
    return;
  }
  int initialized = 0;
  check_mpi(MPI_Initialized(&initialized), "initialized");
  if (initialized) throw Error("MPI: one session in a process");
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "initialization");
  if (provided < MPI_THREAD_FUNNELED) throw Error("MPI: built without support for threads");
  world_ = mpi_world();
  mpi_ = true;
}

Session::~Session() {
  const double watched = watched_seconds(*world_);
  world_.reset();
  if (!mpi_) return;
  // The watchdog uses MPI, so it has ended. A rank that is lost from here on would make the others wait forever; the
  // alarm ends them.
  if (watched > 0) ::alarm(static_cast<unsigned>(std::min(1e9, std::ceil(watched))));
  // A destructor cannot report; a rank that is lost here makes mpirun end the job with a status of its own.
  MPI_Finalize();
  ::alarm(0);
}

Communicator& Session::world() { return *world_; }

void yield_when_idle() {
  if (is_set("OMPI_MCA_mpi_yield_when_idle")) return;
  // MPI has no call for this. Open MPI 4 and 5 export the function that MPI_Init calls with the parameter's value.
  void* const set = ::dlsym(RTLD_DEFAULT, "opal_progress_set_yield_when_idle");
  if (set != nullptr) (void)reinterpret_cast<bool (*)(bool)>(set)(true);
}

std::string library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "version");
  std::string name(text.data(), static_cast<std::size_t>(length));
  name.resize(std::min(name.size(), name.find_first_of(",\n")));
  if (const std::size_t v = name.find(" v"); v != std::string::npos) name.erase(v + 1, 1);
  return name;
}

std::string found_library_version() {
  if (load_library != nullptr) load_library();
  return library_version();
}

void abort_all(int status) {
  if (running()) MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

}  // namespace fp8::comm
