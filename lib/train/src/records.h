// The records of a run (fp8-log(5)) and where they go: rank 0 appends each to log.jsonl and hands it to the tool.
// Private to the crate.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "device_setup.h"
#include "fp8/base/file.h"
#include "fp8/train/run.h"
#include "plan.h"
#include "step.h"

namespace fp8::train {

// Rank 0's way out; on other ranks nothing happens. A failed write to standard output is kept, so that all ranks can
// end together. Records that log.jsonl does not take, as on a full disk, wait in memory and are written when it does:
// that is a warning and no more.
class Journal {
 public:
  Journal(const Hooks& hooks, comm::Communicator& world) : hooks_(hooks), world_(world), speaks_(world.rank() == 0) {}
  void open(const std::string& run_folder);
  void emit(const json::Value& record);
  // A {"type":"warning"} record and a line for people.
  void warn(std::int64_t step, const std::string& message);
  // Says what the log lacks, if it does. After the last record.
  void close();
  void note(const std::string& text) const;
  void progress(const std::string& text) const;
  bool failed() const { return output_failure_ != nullptr; }
  // Throws AgreedError for a failed write; a reader that went away is no error.
  void rethrow() const;

 private:
  std::optional<std::string> write_log();
  const Hooks& hooks_;
  comm::Communicator& world_;  // whose other ranks wait while a reader is slow
  bool speaks_;
  File log_;
  std::uint64_t log_end_ = 0;  // where its last whole record ends
  std::string unwritten_;      // records that it did not take
  std::int64_t lost_ = 0;      // records that even memory did not
  bool log_failing_ = false;
  std::exception_ptr output_failure_;
};

// {"type":"run"}: what is about to run.
json::Value run_record(const RunConfig& config, const hf::ModelConfig& model,
                       const std::vector<model::Parameter>& table, const MemoryPlan& plan, const DeviceSetup& work,
                       const json::Value& mesh, std::int64_t tokens_per_step, std::int64_t first_step);

// {"type":"step"}.
json::Value step_record(const RunConfig& config, device::DeviceType device, const StepResult& r, const Position& after,
                        std::int64_t tokens_per_step, double matmul_parameters, std::int64_t memory_peak_bytes);

// {"type":"eval"}.
json::Value eval_record(std::int64_t step, const LossSum& sum, const PrecisionConfig& precision,
                        device::DeviceType device);

// The linears by precision and reason, as a table for people. A tied LM head is one of them.
std::string precision_table(const hf::ModelConfig& model, const std::vector<model::Parameter>& table);

// Largest resident set of this process so far, bytes.
std::int64_t peak_memory();

// Resident set of this process now, bytes; 0 where the kernel does not say.
std::int64_t resident_memory();

}  // namespace fp8::train
