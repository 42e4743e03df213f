/// Finds a checkpoint of a run: the newest valid one, or the valid one with the lowest evaluation loss. The run may
/// save and remove checkpoints at the same time: the folder is listed again where a checkpoint was removed before it
/// could be opened, and what is returned is held open, see Checkpoint::hold(). Listing and pruning are in run_folder.h.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/ckpt/run_folder.h"

namespace fp8::ckpt {

/// The loss of an evaluation at the step of a checkpoint, the member "evaluation" of /train. Two are comparable if data
/// and targets are equal.
struct Evaluation {
  double loss = 0;           ///< nats
  std::int64_t targets = 0;  ///< tokens that counted
  std::string data;          ///< digest of the token file
};
/// The JSON of an evaluation, as it is stored in /train.
json::Value to_json(const Evaluation& evaluation);
/// The evaluation in a document /train; nothing if it has none. Throws Error if it has an invalid one.
std::optional<Evaluation> evaluation_of(const json::Value& train);
/// The step of the lowest finite loss among those comparable with the newest one's, the earliest of equals; nothing if
/// there is none.
std::optional<std::int64_t> best_step(const std::map<std::int64_t, Evaluation>& by_step);

/// A choice among the checkpoints of a run.
enum class Which : std::uint8_t { last, best };

/// Warning for a damaged checkpoint that is skipped in the search for `which`.
std::string passed_over(Which which, const std::string& path, const std::string& reason);

/// Opens checkpoints of a run one after another, the most wanted first, until the caller finds one without damage.
class Finder {
 public:
  /// Called with each damaged checkpoint that is skipped, and the reason; may be empty.
  using Report = std::function<void(const std::string& path, const std::string& reason)>;
  /// For the checkpoints in the folder `run`, which may be missing.
  Finder(std::string run, Which which, Report report);
  /// The newest or best one that open_step() accepts, less those passed over; held open, its weights not read. Nothing
  /// if there is none. Throws Error if checkpoints are removed faster than they can be opened.
  std::optional<Checkpoint> next();
  /// Excludes a checkpoint, damaged for `reason`, from next(), and reports it; does nothing if it has been removed.
  void pass_over(const std::string& path, const std::string& reason);

 private:
  std::optional<Checkpoint> open(const StepFolder& folder);
  std::vector<StepFolder> best_of(const std::vector<StepFolder>& steps);

  std::string run_;
  Which which_;
  Report report_;
  std::set<std::string> damaged_;  // paths
  int listings_ = 0;               // listings of the folder so far
  bool removed_ = false;           // whether a checkpoint in the last listing was removed before it was opened
};

/// The first checkpoint of a Finder that verify() accepts.
std::optional<Checkpoint> find_valid(const std::string& run, Which which, const Finder::Report& report = {});

/// A checkpoint of a run, held open.
struct OfRun {
  Checkpoint checkpoint;
  bool verified = false;  ///< verify() has accepted it
};

/// The checkpoint that an argument names by its run: `RUN`, the folder of a run, and `RUN@last` are its newest valid
/// checkpoint, `RUN@best` the valid one with the lowest evaluation loss, `RUN@N` that of step N, which is not verified.
/// A path that exists wins. Nothing if the argument names no run. Checkpoint::passed_over() says which damaged ones
/// were newer or better. Throws Error if the run has no such checkpoint.
std::optional<OfRun> open_of_run(const std::string& argument);

}  // namespace fp8::ckpt
