/// mpi.h as C: without the C++ classes that MPI 3 took out and that would need a library of their own. Private to comm.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
