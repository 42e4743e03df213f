// Stages of layers and their schedule.
#include "fp8/model/stages.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "fp8/base/error.h"

namespace fp8::model {

StageRange stage_of(std::span<const int> layers, int number) {
  const auto at = static_cast<std::size_t>(number);
  const int first = std::accumulate(layers.begin(), layers.begin() + number, 0);
  return {number, static_cast<int>(layers.size()), first, first + layers[at],
          std::accumulate(layers.begin(), layers.end(), 0)};
}

UnitCosts unit_costs(const hf::ModelConfig& config, const std::vector<Parameter>& table, std::int64_t length,
                     double fp8_cost) {
  const auto cost_of = [&](const hf::ModelConfig& c, int unit) {
    std::vector<Parameter> all, fp8;
    for (const Parameter& p : table) {
      if (p.unit != unit) continue;
      all.push_back(p);
      if (p.fp8) fp8.push_back(p);
    }
    const double more = fp8_cost - 1;
    return training_flops_per_token(c, all) + (more != 0 && !fp8.empty() ? more * training_flops_per_token(c, fp8) : 0);
  };
  hf::ModelConfig untied = config;
  untied.tie_word_embeddings = false;  // the head's FLOPs are added below
  UnitCosts costs;
  const auto layers = static_cast<int>(config.num_hidden_layers);
  costs.embedding = static_cast<double>(config.hidden_size);
  const double attention = 6.0 * static_cast<double>(length) * static_cast<double>(config.query_size());
  for (int layer = 0; layer < layers; ++layer) costs.layers.push_back(cost_of(untied, layer + 1) + attention);
  costs.head = cost_of(config, layers + 1);
  return costs;
}

namespace {

// The cost of the layers [first, last) of a stage, with embedding and head if they belong to it.
class StageSums {
 public:
  explicit StageSums(const UnitCosts& costs) : costs_(costs), sums_{0.0} {
    for (const double cost : costs.layers) sums_.push_back(sums_.back() + cost);
  }
  std::size_t layers() const { return costs_.layers.size(); }
  double of(std::size_t first, std::size_t last) const {
    return sums_[last] - sums_[first] + (first == 0 ? costs_.embedding : 0) + (last == layers() ? costs_.head : 0);
  }

 private:
  const UnitCosts& costs_;
  std::vector<double> sums_;
};

// Divides the layers so that join(value of the stages before, cost of a stage), which is infinite where a division is
// not allowed, is least. Returns the first layer of each stage, and the value.
template <class Join>
std::pair<std::vector<std::size_t>, double> least(const StageSums& costs, int stages, Join&& join) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::size_t layers = costs.layers(), count = static_cast<std::size_t>(stages);
  std::vector<std::vector<double>> value(count + 1, std::vector<double>(layers + 1, kNever));
  std::vector<std::vector<std::size_t>> from(count + 1, std::vector<std::size_t>(layers + 1, 0));
  value[0][0] = 0;
  for (std::size_t s = 1; s <= count; ++s)
    for (std::size_t last = s; last <= layers - (count - s); ++last)
      for (std::size_t first = s - 1; first < last; ++first) {
        const double found = join(value[s - 1][first], costs.of(first, last));
        if (found < value[s][last]) value[s][last] = found, from[s][last] = first;
      }
  std::vector<std::size_t> firsts(count);
  std::size_t at = layers;
  for (std::size_t s = count; s > 0; --s) at = firsts[s - 1] = from[s][at];
  return {firsts, value[count][layers]};
}

}  // namespace

std::vector<double> stage_costs(const UnitCosts& costs, std::span<const int> layers) {
  const StageSums sums(costs);
  std::vector<double> all;
  std::size_t first = 0;
  for (const int n : layers) {
    all.push_back(sums.of(first, first + static_cast<std::size_t>(n)));
    first += static_cast<std::size_t>(n);
  }
  return all;
}

std::vector<int> divide_layers(const UnitCosts& costs, int stages) {
  const auto layers = static_cast<int>(costs.layers.size());
  if (stages < 1 || stages > layers)
    throw Error(std::to_string(stages) + " stages of " + std::to_string(layers) + " layers, and each stage needs one");
  const StageSums sums(costs);
  const double largest = least(sums, stages, [](double before, double cost) { return std::max(before, cost); }).second;
  const double most = largest * (1 + 1e-9);  // sums of equal layers differ in their last bits
  const std::vector<std::size_t> firsts =
      least(sums, stages, [most](double before, double cost) {
        return cost > most ? std::numeric_limits<double>::infinity() : before + cost * cost;
      }).first;
  std::vector<int> divided;
  for (std::size_t s = 0; s < firsts.size(); ++s)
    divided.push_back(static_cast<int>((s + 1 < firsts.size() ? firsts[s + 1] : costs.layers.size()) - firsts[s]));
  return divided;
}

std::vector<StageAction> stage_schedule(int stages, int stage, int micro_batches) {
  const int ahead = std::min(micro_batches, stages - 1 - stage);
  std::vector<StageAction> actions;
  for (int i = 0; i < ahead; ++i) actions.push_back({false, i});
  for (int i = 0; i < micro_batches; ++i) {
    if (i + ahead < micro_batches) actions.push_back({false, i + ahead});
    actions.push_back({true, i});
  }
  return actions;
}

double expected_bubble(std::span<const double> costs, int micro_batches) {
  const std::size_t stages = costs.size(), count = static_cast<std::size_t>(micro_batches);
  if (stages == 1) return 0;
  std::vector<std::vector<StageAction>> actions;
  for (std::size_t s = 0; s < stages; ++s)
    actions.push_back(stage_schedule(static_cast<int>(stages), static_cast<int>(s), micro_batches));
  // Ends of forward and of backward, negative while they are not known; the first stage has its input at time 0.
  std::vector<std::vector<double>> forward(stages + 1, std::vector<double>(count, -1)), backward = forward;
  std::ranges::fill(forward[0], 0.0);
  std::vector<std::size_t> next(stages, 0);
  std::vector<double> now(stages, 0);
  const std::size_t all = stages * 2 * count;
  for (std::size_t done = 0; done < all;)
    for (std::size_t s = 0; s < stages; ++s)
      for (; next[s] < actions[s].size(); ++next[s], ++done) {
        const StageAction& a = actions[s][next[s]];
        const auto i = static_cast<std::size_t>(a.micro_batch);
        const double ready = !a.backward ? forward[s][i] : s + 1 == stages ? forward[stages][i] : backward[s + 1][i];
        if (ready < 0) break;
        now[s] = std::max(now[s], ready) + costs[s] * (a.backward ? 2 : 1);
        (a.backward ? backward[s] : forward[s + 1])[i] = now[s];
      }
  const double busy = 3 * static_cast<double>(micro_batches) * std::accumulate(costs.begin(), costs.end(), 0.0);
  return 1 - busy / (static_cast<double>(stages) * std::ranges::max(now));
}

std::vector<Parameter> table_of_stage(const std::vector<Parameter>& table, const StageRange& stage) {
  std::vector<Parameter> own;
  for (const Parameter& p : table)
    if (stage.has(p.unit)) own.push_back(p);
  return own;
}

std::string text_of_stages(std::span<const int> layers) {
  std::string text;
  for (const int n : layers) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text;
}

}  // namespace fp8::model
