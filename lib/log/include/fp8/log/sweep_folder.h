/// The sides of a sweep, from the names that fp8-sweep(5) gives the folders of its runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fp8::log {

/// Name by which the runs of a sweep are grouped unless another is given.
inline constexpr std::string_view kBySide = "side";

/// The runs of a sweep that have the same side, or the same value of a setting.
struct SweptSide {
  std::string name{};                ///< the side, or "lr=1e-3"
  std::vector<std::string> paths{};  ///< folders of its runs
  std::vector<std::string>
      keys{};  ///< the rest of the name of each, "seed=1": runs of two sides with one key are a pair
};

/// The sides of a sweep.
struct SweptSides {
  std::vector<SweptSide> sides{};       ///< at least two
  std::vector<std::string> left_out{};  ///< folders of runs without the setting
};

/// Whether `path` is the folder of a sweep: it has no log.jsonl, and a folder in it has one.
bool is_sweep_folder(const std::string& path);

/// Groups the runs of the sweep in `folder` that have a log by `by`, kBySide or the name of a setting. The sides are in
/// the order of the sweep, which sweep.json of each run has; those without it come last, by value. Throws Error
/// `folder: reason`, which lists the names, when no run has a setting `by` or the runs do not differ in it, and for
/// "seed", by which runs are paired.
SweptSides sides_of_sweep(const std::string& folder, const std::string& by);

}  // namespace fp8::log
