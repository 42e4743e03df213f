/// The messages of watchdogs over MPI. Private to comm.
#pragma once

#include <memory>

#include "fp8/watchdog/stall_detector.h"
#include "mpi_c.h"

namespace fp8::comm {

/// A channel between the ranks of `comm`, of which it makes a duplicate; collective. It needs MPI_THREAD_MULTIPLE,
/// because messages are sent while another thread is blocked in a collective.
std::unique_ptr<watchdog::Channel> mpi_channel(MPI_Comm comm);

}  // namespace fp8::comm
