/// Threads and memory that the system may refuse. Libraries that end the process without them (libgomp) or crash
/// (the code generator of oneDNN) are called after a check here.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>

namespace fp8 {

/// Starts a thread. Throws Error `out of memory: ...` if the system cannot.
std::thread start_thread(std::function<void()> body);

/// Starts the threads of OpenMP that parallel regions of the calling thread use, so that a later region needs none.
/// Throws Error `out of memory: ...` if the system cannot. Does nothing without OpenMP.
void start_team();

/// Ends the threads of start_team(). Call it before a fork: the new process does not have these threads, and its first
/// parallel region would wait for them for ever. A later region starts new ones. Does nothing without OpenMP.
void end_team();

/// Throws Error `out of memory: what` unless `bytes` more bytes of addresses can be mapped now; touches no memory.
void check_room(std::size_t bytes, const char* what);

}  // namespace fp8
