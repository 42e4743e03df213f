/// Compares runs at the same number of tokens seen: two runs, or several pairs of runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fp8/json/value.h"
#include "fp8/log/run.h"
#include "fp8/log/settings.h"
#include "fp8/log/summary.h"

namespace fp8::log {

/// How B differs from A. Losses are in nats per token.
struct Comparison {
  Summary a{};                     ///< the run compared against
  Summary b{};                     ///< the run compared
  std::size_t points = 0;          ///< matched points
  std::int64_t first_tokens = 0;   ///< tokens seen at the first matched point
  std::int64_t last_tokens = 0;    ///< tokens seen at the last matched point
  std::size_t window = 0;          ///< matched points in the last part, see last_part()
  std::optional<double> loss_a{};  ///< mean of A over the window
  std::optional<double> loss_b{};  ///< mean of B over the window
  std::optional<double> gap{};     ///< loss_b - loss_a; nullopt when under half the window is finite in both runs
  std::optional<double> gap_standard_error{};  ///< standard error of `gap`; nullopt for fewer than two points
  std::optional<double> final_a{};             ///< loss of A at the last matched point
  std::optional<double> final_b{};             ///< loss of B at the last matched point
  std::optional<double> final_gap{};           ///< final_b - final_a; nullopt unless both are finite
  std::optional<double> speedup{};             ///< median tokens/s of B over that of A
  std::optional<double> memory_ratio{};        ///< peak memory of B over that of A
  std::optional<double> eval_a{};              ///< loss of A in the last evaluation at equal tokens; see compare()
  std::optional<double> eval_b{};              ///< loss of B in it
  std::optional<double> eval_gap{};            ///< eval_b - eval_a
};

/// Compares two runs that were read with summary_metrics(). The points are the steps, within the range of tokens that
/// both runs cover, of the run with fewer steps there; if both have as many, of the run whose token count is lower
/// where the two first differ. The loss of the other run at such a point is the loss of its record with that number of
/// tokens, or interpolated linearly between the two neighbouring records. Points at which either loss is not finite, or
/// is interpolated from one that is not, are left out. The gap is the mean of B - A over the last part of the points;
/// its standard error accounts for the correlation between neighbouring steps. The evaluations are the last ones
/// after a step at the same number of tokens; if either loss is not finite, there is no evaluation gap.
/// compare(b, a) has the same points and exactly the negated gaps. Source: Newey and West 1987 (Bartlett weights, lag 4
/// (n/100)^(2/9)). Throws Error when a run has no steps or no token counts, or when the ranges of tokens do not
/// overlap.
Comparison compare(const Run& a, const Run& b);

/// Throws the Error of compare() if a run that was read with summary_metrics() cannot be compared with any other.
void check_comparable(const Run& run);

/// Fewest pairs of different seeds from which the noise between runs is estimated.
inline constexpr std::size_t kEnoughPairs = 3;

/// What the runs of a side were computed in.
struct Computed {
  std::vector<Phase> precisions{};         ///< the different ones of all steps of all runs, in order of appearance
  std::optional<double> fp8_flop_share{};  ///< mean of Summary::fp8_flop_share over the runs that have it
  std::optional<double> fp8_flop_share_total{};  ///< the same of Summary::fp8_flop_share_total
  std::optional<double> fp4_flop_share{};        ///< the same of Summary::fp4_flop_share
  std::optional<double> fp4_flop_share_total{};  ///< the same of Summary::fp4_flop_share_total

  /// Whether FP8 was emulated in any step, so that a speed is not that of FP8.
  bool emulated() const;
};

/// What these runs were computed in.
Computed computed_in(std::span<const Summary* const> runs);

/// How the runs of side B differ from those of side A, pair by pair.
struct PairedComparison {
  std::vector<Comparison> pairs{};        ///< in the order of pairs_of(); at least one
  Computed a{};                           ///< what side A was computed in
  Computed b{};                           ///< what side B was computed in
  std::vector<Difference> differences{};  ///< the settings that differ within pairs, without repetitions
  std::vector<std::string> unknown{};     ///< names of the runs whose logs have no settings
  std::vector<std::string> unpaired{};    ///< names of the runs without a partner, which are not compared
  std::vector<std::string> seeds{};       ///< seeds of the pairs; empty text for seeds that are unknown or differ
  std::size_t seed_count = 0;             ///< different seeds of the pairs; each pair without a seed counts as one
  std::optional<double> gap{};            ///< mean over the seeds of their pairs' mean gaps; nullopt if a pair has none
  std::optional<double> interval{};       ///< half of the gap's 95 % interval; nullopt below kEnoughPairs seeds
  std::optional<double> eval_gap{};       ///< the same mean of eval_gap; nullopt if a pair has none
  std::optional<double> eval_interval{};  ///< half of eval_gap's 95 % interval; nullopt below kEnoughPairs seeds
  std::optional<double> step_noise{};     ///< standard error of `gap` from the steps within the runs
  std::optional<double> speedup{};        ///< geometric mean over the pairs
  std::optional<double> memory_ratio{};   ///< geometric mean over the pairs
};

/// The runs of two sides, by index.
struct Pairing {
  std::vector<std::pair<std::size_t, std::size_t>> pairs{};  ///< the run of side A, and its partner of side B
  std::vector<std::size_t> alone_a{};                        ///< runs of side A without a partner
  std::vector<std::size_t> alone_b{};                        ///< runs of side B without a partner
};

/// Pairs the runs of two sides. One run on each side is a pair. Several runs are paired by seed, and where a side has a
/// seed twice by seed and MODEL, in increasing order of both, but runs with a Run::key by that; if no log has settings,
/// in their order. Throws Error when
/// no run has a partner, when a run has several, and when a log has no seed; and without settings when the sides have
/// different numbers of runs.
Pairing pairs_of(std::span<const Run> a, std::span<const Run> b);

/// The index of the run among `others` to which `run` is compared: the only one, else the one with its seed, and where
/// several have it with its MODEL. Throws Error when there is none, or several.
std::size_t partner_of(const Run& run, std::span<const Run> others);

/// Compares each pair of pairs_of(); from three seeds on the intervals are those of Student's t distribution over the
/// mean gaps of the pairs of each seed, since pairs that share a seed are not independent. Throws Error as compare() of
/// two runs and as pairs_of().
PairedComparison compare(std::span<const Run> a, std::span<const Run> b);

/// The runs of a side of a comparison.
struct Side {
  std::string name{};           ///< one of side_names()
  std::span<const Run> runs{};  ///< at least one
};

/// Names for sides: the common beginning of the names of a side's runs, without digits, separators and `NAME=` at its
/// end, as "fp8" of "fp8_seed=1" and "fp8_seed=2". If a name is empty or not unique, all sides have letters, "A" for
/// the first.
std::vector<std::string> side_names(std::span<const std::vector<std::string>> names_of_runs);

/// "3 pairs", or "3 seeds, of 9 pairs" where seeds have several pairs: the observations of an interval.
std::string interval_basis(std::size_t seeds, std::size_t pairs);

/// Half of the 95 % interval of the mean of independent, normally distributed values; nullopt for fewer than two.
/// Source: Student 1908.
std::optional<double> mean_interval(std::span<const double> values);

/// About how many more pairs narrow a 95 % interval of +-`interval` over `pairs` independent pairs to less than
/// `distance`, if the standard deviation of the gaps remains the same; nullopt if more than kMostPairs are needed in
/// total.
std::optional<std::size_t> more_pairs(double interval, std::size_t pairs, double distance);

/// Most pairs that more_pairs() considers.
inline constexpr std::size_t kMostPairs = 1000;

/// Answer of a gate.
enum class Verdict : std::uint8_t { met, not_met, cannot_tell };

/// Whether the gap is within +-`nats`. With an interval: met when all of it is within, not met when all of it is
/// outside, else unknown. Without one the gap alone decides. A missing gap is not met, and neither is any gate if a run
/// diverged.
Verdict verdict(const PairedComparison& comparison, double nats);

/// About how many more pairs, each of a new seed, exclude 0 from the interval of `gap`; nullopt if it does, and as
/// more_pairs().
std::optional<std::size_t> pairs_to_tell(const PairedComparison& comparison, const std::optional<double>& gap,
                                         const std::optional<double>& interval);

/// About how many more pairs, each of a new seed, decide a gate that the interval cannot decide; nullopt if it can, and
/// as more_pairs().
std::optional<std::size_t> pairs_to_gate(const PairedComparison& comparison, double nats);

/// The checked settings that differ and that `allowed` does not name; `allowed` may name "all".
std::vector<Difference> refused(const PairedComparison& comparison, std::span<const std::string> allowed);

/// One object, {"type": "compare", "gap": ..., "pairs": [...], "gate": ..., "met": ...}. If there is
/// a single pair, the object has the members of the pair, too. "sides" has what each side was computed in. Missing
/// values are null, and so are "gate", "met" and "verdict" without a gate. The number of missing pairs is null if none
/// are missing or more than 1000 are.
json::Value record(const PairedComparison& comparison, std::optional<double> gate);

}  // namespace fp8::log
