/// The log of a run: rank 0 appends each record (fp8-log(5)) to log.jsonl and passes it to the tool.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp8/base/file.h"
#include "fp8/base/lock.h"
#include "fp8/comm/comm.h"
#include "fp8/json/value.h"

namespace fp8::state {

/// Callbacks of a run or an evaluation. Called on rank 0 only, except begins and stop_requested.
struct Hooks {
  std::function<void(const json::Value&)> record;    ///< a record for standard output; log.jsonl has it already
  std::function<void(const std::string&)> note;      ///< one or more lines of information
  std::function<void(const std::string&)> warning;   ///< a line about a failure that does not end the run
  std::function<void(const std::string&)> progress;  ///< the current activity, for one line that is overwritten
  std::function<void()> begins;                      ///< called on every rank before anything is computed or written
  std::function<bool()> stop_requested;              ///< called on every rank after each step; true ends the run
};

/// Output of rank 0; on other ranks all calls do nothing. A failed write to standard output is stored, so that all
/// ranks can end together. If log.jsonl cannot be written, for example on a full disk, up to 16 MiB of records are
/// buffered and one warning is printed. Nothing is appended to it once the folder of the run is not in place, see
/// LockedFolder.
class Journal {
 public:
  Journal(const Hooks& hooks, comm::Communicator& host_comm)
      : hooks_(hooks), host_comm_(host_comm), writes_(comm::is_writer(host_comm)) {}
  /// Opens log.jsonl in the folder of a run, to append to it. `held`, the lock of that folder, outlives this object.
  void open(const std::string& run_folder, const LockedFolder& held);
  /// Writes a record to log.jsonl, with the time, and passes it to the tool.
  void emit(const json::Value& record);
  /// A {"type":"warning"} record and a warning of the tool; a record before the first other one follows it.
  void warn(std::int64_t step, const std::string& message);
  /// Warns of records that the log lacks. After the last record.
  void close();
  /// Prints information through the tool.
  void note(const std::string& text) const;
  /// Shows the current activity through the tool.
  void progress(const std::string& text) const;
  /// "TEXT  ETA 3 min 20 s": the time that `left` more units take, if `done` took `seconds`.
  void progress(const std::string& text, double seconds, std::int64_t done, std::int64_t left) const;
  /// Whether a write to standard output has failed.
  bool failed() const { return output_failure_ != nullptr; }
  /// Throws AgreedError for a failed write; a reader that went away is no error.
  void rethrow() const;

 private:
  std::optional<std::string> write_log();
  const Hooks& hooks_;
  comm::Communicator& host_comm_;  // communicator whose watchdog must not count the time of a slow reader
  bool writes_;                    // whether this is rank 0, which writes
  File log_;
  const LockedFolder* held_ = nullptr;
  std::uint64_t log_end_ = 0;       // end of its last complete record, in bytes
  std::string unwritten_;           // buffered records
  std::int64_t lost_ = 0;           // records that the buffer had no room for
  bool begun_ = false;              // whether there was a record
  std::vector<json::Value> early_;  // warnings before it
  bool log_failing_ = false;
  std::exception_ptr output_failure_;
};

/// Whether the last line of a file of `size` bytes has no newline, as a killed process leaves it.
bool ends_unfinished(const std::string& path, std::uint64_t size);

}  // namespace fp8::state
