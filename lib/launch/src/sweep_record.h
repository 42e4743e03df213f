/// RUN/sweep.json: the command with which fp8-sweep ran a run, and how it ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fp8::launch {

/// Content of the file.
struct SweepRecord {
  std::vector<std::string> flags{};    ///< flags of the run's side and values
  std::vector<std::string> command{};  ///< the whole command
  std::optional<int> status{};         ///< exit status; nullopt while it runs and after a kill
  std::int64_t position = 0;           ///< of the run among those of the sweep, from 0
};

/// Reads the file in the folder `run`; nullopt if there is none. Throws Error `path: reason` for a damaged file.
std::optional<SweepRecord> read_sweep_record(const std::string& run);

/// Replaces the file in the folder `run` atomically. Throws Error `path: reason`.
void write_sweep_record(const std::string& run, const SweepRecord& record);

}  // namespace fp8::launch
