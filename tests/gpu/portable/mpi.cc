// MPI for programs of the device bundle, which are linked with this file instead of libmpi: each function calls the one
// of the machine's own Open MPI, which MPI_Init_thread loads. A process that mpirun or srun did not start needs no MPI.
// Open MPI 4 and 5 have one file name and one binary interface: predefined handles are addresses of variables.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../../lib/comm/src/mpi_c.h"
#include "fp8/base/text.h"
#include "fp8/device/library.h"

// The variables of predefined handles that the suite uses. They hold nothing: actual() replaces their addresses.
struct ompi_predefined_communicator_t {
  char none = 0;
};
struct ompi_predefined_group_t : ompi_predefined_communicator_t {};
struct ompi_predefined_request_t : ompi_predefined_communicator_t {};
struct ompi_predefined_op_t : ompi_predefined_communicator_t {};
struct ompi_predefined_datatype_t : ompi_predefined_communicator_t {};
struct ompi_predefined_errhandler_t : ompi_predefined_communicator_t {};
ompi_predefined_communicator_t ompi_mpi_comm_world, ompi_mpi_comm_null;
ompi_predefined_group_t ompi_mpi_group_null;
ompi_predefined_request_t ompi_request_null;
ompi_predefined_op_t ompi_mpi_op_min, ompi_mpi_op_max, ompi_mpi_op_sum;
ompi_predefined_datatype_t ompi_mpi_byte, ompi_mpi_float, ompi_mpi_double, ompi_mpi_int32_t, ompi_mpi_int64_t;
ompi_predefined_errhandler_t ompi_mpi_errors_return;

namespace fp8::comm {
namespace {

/// libmpi.so.40 where the dynamic linker finds it, else beside the mpirun of PATH.
std::vector<std::string> places() {
  std::vector<std::string> all{"libmpi.so.40"};
  const char* const path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nobody sets variables
  for (std::string_view rest = path != nullptr ? path : ""; !rest.empty();) {
    const std::size_t end = std::min(rest.size(), rest.find(':'));
    std::error_code none;
    const auto mpirun = std::filesystem::canonical(std::filesystem::path(rest.substr(0, end)) / "mpirun", none);
    rest.remove_prefix(std::min(rest.size(), end + 1));
    if (none) continue;
    for (const char* folder : {"lib", "lib64"})
      all.push_back((mpirun.parent_path().parent_path() / folder / all.front()).string());
  }
  return all;
}

/// Open MPI of this machine and its handles.
struct OpenMpi {
  // The plug-ins of Open MPI use its functions without naming its libraries, hence Symbols::global.
  const device::Library library{places(), "install Open MPI 4 or 5, or add its folder to LD_LIBRARY_PATH",
                                device::Symbols::global};
  // Addresses of the variables above, and of those of the library.
#define FP8_HANDLE(name) std::pair<const void*, void*>(&(name), library.function<void*>(#name))
  const std::array<std::pair<const void*, void*>, 13> handles{
      FP8_HANDLE(ompi_mpi_comm_world),   FP8_HANDLE(ompi_mpi_comm_null), FP8_HANDLE(ompi_mpi_group_null),
      FP8_HANDLE(ompi_request_null),     FP8_HANDLE(ompi_mpi_op_min),    FP8_HANDLE(ompi_mpi_op_max),
      FP8_HANDLE(ompi_mpi_op_sum),       FP8_HANDLE(ompi_mpi_byte),      FP8_HANDLE(ompi_mpi_float),
      FP8_HANDLE(ompi_mpi_double),       FP8_HANDLE(ompi_mpi_int32_t),   FP8_HANDLE(ompi_mpi_int64_t),
      FP8_HANDLE(ompi_mpi_errors_return)};
#undef FP8_HANDLE
};

/// Null until load_library(), which MPI_Init_thread calls first.
std::atomic<const OpenMpi*> loaded = nullptr;

/// An argument as Open MPI of this machine has it.
template <class T>
T actual(T value) {
  return value;
}
template <class T>
T* actual(T* value) {
  for (const auto& [here, there] : loaded.load()->handles)
    if (value == here) return static_cast<T*>(there);
  return value;
}
// The request to start, test or free, or the first of an array, which is null if there are none. Requests of an array
// have been started, so only single ones may be the null request.
MPI_Request* actual(MPI_Request* request) {
  if (request != nullptr) *request = actual<ompi_request_t>(*request);
  return request;
}

/// Calls `function`, which Open MPI of this machine has by this name.
template <class F, class... A>
int call(F* function, A... arguments) {
  return function(actual(arguments)...);
}

}  // namespace

void load_library() {
  static const OpenMpi here;
  loaded = &here;
}

}  // namespace fp8::comm

// NOLINTBEGIN(bugprone-macro-parentheses): parameters in parentheses
/// Defines a function of MPI that calls that of this machine.
#define FP8_MPI(name, parameters, ...)                                                  \
  int name parameters {                                                                 \
    using namespace fp8::comm;                                                          \
    static auto* const there = loaded.load()->library.function<decltype(&name)>(#name); \
    return call(there, __VA_ARGS__);                                                    \
  }
// NOLINTEND(bugprone-macro-parentheses)

FP8_MPI(MPI_Abort, (MPI_Comm c, int status), c, status)
FP8_MPI(MPI_Allgather, (const void* a, int n, MPI_Datatype s, void* b, int m, MPI_Datatype t, MPI_Comm c), a, n, s, b,
        m, t, c)
FP8_MPI(MPI_Barrier, (MPI_Comm c), c)
FP8_MPI(MPI_Bcast, (void* b, int n, MPI_Datatype t, int root, MPI_Comm c), b, n, t, root, c)
FP8_MPI(MPI_Comm_dup, (MPI_Comm c, MPI_Comm* out), c, out)
FP8_MPI(MPI_Comm_free, (MPI_Comm * c), c)
FP8_MPI(MPI_Comm_group, (MPI_Comm c, MPI_Group* out), c, out)
FP8_MPI(MPI_Comm_rank, (MPI_Comm c, int* out), c, out)
FP8_MPI(MPI_Comm_set_errhandler, (MPI_Comm c, MPI_Errhandler h), c, h)
FP8_MPI(MPI_Comm_size, (MPI_Comm c, int* out), c, out)
FP8_MPI(MPI_Comm_split, (MPI_Comm c, int color, int key, MPI_Comm* out), c, color, key, out)
FP8_MPI(MPI_Error_string, (int status, char* text, int* length), status, text, length)
FP8_MPI(MPI_Group_free, (MPI_Group * g), g)
FP8_MPI(MPI_Group_translate_ranks, (MPI_Group g, int n, const int* a, MPI_Group h, int* b), g, n, a, h, b)
FP8_MPI(MPI_Iallgatherv,
        (const void* a, int n, MPI_Datatype s, void* b, const int* counts, const int* starts, MPI_Datatype t,
         MPI_Comm c, MPI_Request* r),
        a, n, s, b, counts, starts, t, c, r)
FP8_MPI(MPI_Ibcast, (void* b, int n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request* r), b, n, t, root, c, r)
FP8_MPI(MPI_Iprobe, (int from, int tag, MPI_Comm c, int* flag, MPI_Status* s), from, tag, c, flag, s)
FP8_MPI(MPI_Irecv, (void* b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request* r), b, n, t, from, tag,
        c, r)
FP8_MPI(MPI_Isend, (const void* b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request* r), b, n, t, to,
        tag, c, r)
FP8_MPI(MPI_Query_thread, (int* out), out)
FP8_MPI(MPI_Recv, (void* b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status* s), b, n, t, from, tag, c,
        s)
FP8_MPI(MPI_Reduce, (const void* a, void* b, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c), a, b, n, t, op,
        root, c)
FP8_MPI(MPI_Request_free, (MPI_Request * r), r)
FP8_MPI(MPI_Test, (MPI_Request * r, int* flag, MPI_Status* s), r, flag, s)
FP8_MPI(MPI_Testall, (int n, MPI_Request* all, int* flag, MPI_Status* s), n, all, flag, s)
FP8_MPI(MPI_Waitall, (int n, MPI_Request* all, MPI_Status* s), n, all, s)

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  using namespace fp8::comm;
  load_library();
  return call(loaded.load()->library.function<decltype(&MPI_Init_thread)>("MPI_Init_thread"), argc, argv, required,
              provided);
}

// These may be called without MPI_Init_thread before them.
int MPI_Initialized(int* flag) {
  using namespace fp8::comm;
  *flag = 0;
  const OpenMpi* const here = loaded;
  return here == nullptr ? MPI_SUCCESS : here->library.function<decltype(&MPI_Initialized)>("MPI_Initialized")(flag);
}

int MPI_Finalized(int* flag) {
  using namespace fp8::comm;
  *flag = 0;
  const OpenMpi* const here = loaded;
  return here == nullptr ? MPI_SUCCESS : here->library.function<decltype(&MPI_Finalized)>("MPI_Finalized")(flag);
}

int MPI_Finalize() { return fp8::comm::loaded.load()->library.function<decltype(&MPI_Finalize)>("MPI_Finalize")(); }

int MPI_Get_library_version(char* text, int* length) {
  using namespace fp8::comm;
  const OpenMpi* const here = loaded;
  if (here != nullptr)
    return here->library.function<decltype(&MPI_Get_library_version)>("MPI_Get_library_version")(text, length);
  constexpr std::string_view kNone = "no MPI of its own";
  *length = static_cast<int>(kNone.copy(text, kNone.size()));
  return MPI_SUCCESS;
}
