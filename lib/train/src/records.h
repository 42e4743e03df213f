// The records of a run (fp8-log(5)). Rank 0 appends each to log.jsonl and passes it to the tool. Private to the crate.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "device_setup.h"
#include "fp8/base/file.h"
#include "fp8/train/run.h"
#include "sample.h"
#include "step.h"

namespace fp8::train {

// Output of rank 0; on other ranks all calls do nothing. A failed write to standard output is stored, so that all ranks
// can end together. If log.jsonl cannot be written, for example on a full disk, up to 16 MiB of records are buffered
// and one warning is printed.
class Journal {
 public:
  Journal(const Hooks& hooks, comm::Communicator& host_comm)
      : hooks_(hooks), host_comm_(host_comm), writes_(host_comm.rank() == 0) {}
  void open(const std::string& run_folder);
  void emit(const json::Value& record);
  // A {"type":"warning"} record and a warning of the tool; a record before the first other one follows it.
  void warn(std::int64_t step, const std::string& message);
  // Warns of records that the log lacks. After the last record.
  void close();
  void note(const std::string& text) const;
  void progress(const std::string& text) const;
  // "TEXT  ETA 3 min 20 s": the time that `left` more units take, if `done` took `seconds`.
  void progress(const std::string& text, double seconds, std::int64_t done, std::int64_t left) const;
  bool failed() const { return output_failure_ != nullptr; }
  // Throws AgreedError for a failed write; a reader that went away is no error.
  void rethrow() const;

 private:
  std::optional<std::string> write_log();
  const Hooks& hooks_;
  comm::Communicator& host_comm_;  // its watchdog must not count the time of a slow reader
  bool writes_;                    // on rank 0
  File log_;
  std::uint64_t log_end_ = 0;       // end of its last complete record, in bytes
  std::string unwritten_;           // buffered records
  std::int64_t lost_ = 0;           // records that the buffer had no room for
  bool begun_ = false;              // whether there was a record
  std::vector<json::Value> early_;  // warnings before it
  bool log_failing_ = false;
  std::exception_ptr output_failure_;
};

// Whether the last line of a file of `size` bytes has no newline, as a killed process leaves it.
bool ends_unfinished(const std::string& path, std::uint64_t size);

// {"type":"run"}, the first record of a start.
json::Value run_record(const RunConfig& config, const hf::ModelConfig& model,
                       const std::vector<model::Parameter>& table, const MemoryPlan& plan, const DeviceSetup& work,
                       const json::Value& mesh, const json::Value& settings, std::int64_t tokens_per_step,
                       std::int64_t first_step);

// {"type":"step"}.
json::Value step_record(const RunConfig& config, device::DeviceType device, const StepResult& r, const Position& after,
                        std::int64_t tokens_per_step, double flops_per_token, std::int64_t memory_peak_bytes);

// {"type":"eval"}; with `step` -1 that of an evaluation outside of a run, which has no run record to name the
// attention.
json::Value eval_record(std::int64_t step, const LossSum& sum, const PrecisionConfig& precision,
                        device::DeviceType device);

// {"type":"sample"}.
json::Value sample_record(std::int64_t step, const std::string& prompt, const SampledText& text, double seconds);

// A table of the linears by precision, in a run of `precision`, and reason or fusion, with a tied LM head.
std::string precision_table(const hf::ModelConfig& model, const std::vector<model::Parameter>& table,
                            Precision precision);

// Peak memory of this rank so far, in bytes: on the host, the largest resident set of the process; on a GPU, its memory
// for the arena at its peak and for the scratch of GEMMs.
std::int64_t peak_memory(const ShardedModel& model);

// Resident set of this process, in bytes; 0 if the kernel does not report it.
std::int64_t resident_memory();

}  // namespace fp8::train
