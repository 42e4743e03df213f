/// Cores of the machine, and their division among jobs that run at the same time.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace fp8::launch {

/// A hardware thread, which Linux calls a CPU.
struct HardwareThread {
  int cpu = 0;      ///< its number
  int core = 0;     ///< lowest number among the hardware threads of its core
  int package = 0;  ///< number of its socket

  /// Compares all fields.
  bool operator==(const HardwareThread&) const = default;
};

/// The hardware threads that this process may use, in the order of their numbers. A thread whose core or socket the
/// system does not name counts as a core of its own, in socket 0. Throws Error when the system call fails.
std::vector<HardwareThread> usable_threads();

/// Divides cores into `jobs` (from 1) parts whose sizes differ by at most one core, as hardware threads in increasing
/// order; cores of a socket stay together. With more jobs than cores, hardware threads are divided instead. Throws
/// Error when there are fewer hardware threads than jobs.
std::vector<std::vector<int>> share_cores(std::span<const HardwareThread> threads, std::size_t jobs);

/// Restricts this process and its future children to the hardware threads `cpus`, not empty. Throws Error when the
/// system call fails.
void run_on(std::span<const int> cpus);

/// "3", or "0-2,8": numbers in increasing order as Linux writes them.
std::string cpu_list(std::span<const int> cpus);

}  // namespace fp8::launch
