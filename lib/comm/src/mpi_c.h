/// mpi.h as C: without the C++ classes that MPI 3 took out and that would need a library of their own. Private to comm.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

namespace fp8::comm {

/// Loads MPI in a program of the device bundle, which has none of its own; null in other programs. Throws Error if
/// there is none. Defined in tests/gpu/portable/mpi.cc.
[[gnu::weak]] void load_library();

}  // namespace fp8::comm
