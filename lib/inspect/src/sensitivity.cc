// One model in bf16 whose linears take turns in FP8; one backward pass serves the wgrads of all linears, since a wgrad
// changes only the gradient of its own weight.
#include "sensitivity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "fp8/base/clock.h"
#include "fp8/base/expert_name.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "fp8/statistics/records.h"
#include "fp8/train/observe.h"
#include "probe.h"

namespace fp8::inspect {
namespace {

// The numbers of the linears that are inspected.
std::vector<int> linears_of(const RecipeSetup& setup, const std::vector<model::Parameter>& table) {
  const std::vector<char> observed = train::observed_linears(table, setup.config.layers);
  std::vector<int> linears;
  for (std::size_t i = 0; i < observed.size(); ++i)
    if (observed[i] != 0) linears.push_back(static_cast<int>(i));
  return linears;
}

// Measures linears and groups one after another, with progress.
class Measurement {
 public:
  Measurement(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device)
      : config_(setup.config),
        all_(all),
        activity_(all.journal, static_cast<int>(setup.eval.model_spec.config.num_hidden_layers)),
        probe_(setup, all, device, activity_),
        linears_(linears_of(setup, probe_.table())) {
    if (config_.sensitivity)
      for (const std::vector<int>& linears : parts_with(kForward)) parts_.push_back({linears, {}});
    if (config_.recommend) add_groups();
  }

  LossChanges run() {
    LossChanges measured;
    for (std::int64_t batch = 0; batch < config_.batches; ++batch) measure_batch(batch, measured);
    std::array<double, 2> sums{
        all_.mesh.counts_samples() ? std::accumulate(measured.losses.begin(), measured.losses.end(), 0.0) : 0.0,
        static_cast<double>(std::accumulate(measured.targets.begin(), measured.targets.end(), std::int64_t{0}))};
    all_.host_comm.all_reduce(std::span<double>(sums), comm::Reduce::sum);
    measured.loss = sums[0] / sums[1];
    if (!std::isfinite(measured.loss))
      throw comm::AgreedError(config_.model +
                              ": the loss in bf16 is not finite, so that no change of it can be measured");
    std::vector<LossChange> changes;
    for (const Part& part : parts_) changes.push_back(part.sums.change(all_.host_comm));
    if (config_.sensitivity) emit_losses(measured.loss, changes);
    if (config_.sensitivity) {
      measure_dgrads();
      measure_wgrads();
    }
    emit_groups(measured, changes);
    return measured;
  }

 private:
  // Linears that are in FP8 together.
  struct Part {
    std::vector<int> linears;
    PairedSums sums;
  };

  std::vector<int> with(const quant::GemmSet& gemm) const {
    std::vector<int> found;
    std::copy_if(linears_.begin(), linears_.end(), std::back_inserter(found),
                 [&](int linear) { return probe_.runs(linear, gemm); });
    return found;
  }
  // The linears of a GEMM that are measured together: linears of all experts of a layer that have one role. Each other
  // linear is measured alone.
  std::vector<std::vector<int>> parts_with(const quant::GemmSet& gemm) const {
    std::vector<std::vector<int>> parts;
    std::map<std::string, std::size_t> of_experts;
    for (const int linear : with(gemm)) {
      const auto [at, anew] = of_experts.try_emplace(glob_of(linear), parts.size());
      if (anew) parts.emplace_back();
      parts[at->second].push_back(linear);
    }
    return parts;
  }
  std::string glob_of(int linear) const {
    const model::Parameter& p = parameter(linear);
    return p.expert >= 0 ? glob_of_experts(p.name) : p.name;
  }
  const model::Parameter& parameter(int linear) const { return probe_.table()[static_cast<std::size_t>(linear)]; }
  std::string name_of(const Part& part) const {
    const std::size_t more = part.linears.size() - 1;
    return parameter(part.linears.front()).name + (more > 0 ? " and " + std::to_string(more) + " more" : "");
  }

  // Groups of which a linear is inspected, as parts; a linear that is a group is a part already with sensitivities.
  void add_groups() {
    std::map<std::pair<int, model::Slot>, std::vector<int>> groups;
    for (const int linear : with(kForward)) groups[{parameter(linear).unit, parameter(linear).slot}];
    for (std::size_t i = 0; i < probe_.table().size(); ++i) {
      const auto linear = static_cast<int>(i);
      const auto group = groups.find({parameter(linear).unit, parameter(linear).slot});
      if (group != groups.end() && parameter(linear).fp8 && probe_.runs(linear, kForward))
        group->second.push_back(linear);
    }
    for (const auto& [key, linears] : groups) {
      const auto known = std::ranges::find(parts_, linears, &Part::linears);
      groups_.push_back(static_cast<std::size_t>(known - parts_.begin()));
      if (known == parts_.end()) parts_.push_back({linears, {}});
    }
  }

  // The losses of a batch, and, with the first, how long everything takes.
  void measure_batch(std::int64_t batch, LossChanges& measured) {
    const std::string where =
        config_.batches == 1 ? ""
                             : "batch " + std::to_string(batch + 1) + " of " + std::to_string(config_.batches) + ", ";
    const auto start = Clock::now();
    activity_.begin(where + "bf16");
    probe_.read_batch(batch);
    const std::vector<double> exact = probe_.losses();
    const double forward = seconds_since(start);
    if (batch == 0) {
      if (config_.sensitivity) probe_.gradient();
      estimate(forward, seconds_since(start) - forward);
    }
    const std::vector<std::int64_t> targets = probe_.sequence_targets();
    for (Part& part : parts_) {
      activity_.begin(where + name_of(part) + " forward");
      part.sums.add(probe_.losses_with(part.linears), exact, targets);
    }
    measured.losses.insert(measured.losses.end(), exact.begin(), exact.end());
    measured.targets.insert(measured.targets.end(), targets.begin(), targets.end());
  }

  // States how long it takes, from the times of a forward pass, and of one with backward, in bf16.
  void estimate(double forward, double step) {
    double batch = 0;
    for (const Part& part : parts_) batch += forward * probe_.work_with(part.linears);
    double total = batch * static_cast<double>(config_.batches) + forward * static_cast<double>(config_.batches - 1);
    if (config_.sensitivity)
      total += step * static_cast<double>(parts_with(kDgrad).size() + (with(kWgrad).empty() ? 0 : 1));
    activity_.expect(total);
    all_.journal.note("sensitivity of " + (config_.sensitivity ? counted(linears_.size(), "linear") : "") +
                      (config_.sensitivity && config_.recommend ? " and of " : "") +
                      (config_.recommend ? counted(groups_.size(), "group") : "") + " under " +
                      config_.precision.recipe_text() + ": about " + human_seconds(total));
  }

  json::Value record_of(const std::vector<int>& linears, const char* gemm) const {
    const int first = linears.front();
    json::Value record = json::object({{"type", "sensitivity"},
                                       {"linear", linears.size() > 1 ? glob_of(first) : parameter(first).name},
                                       {"gemm", gemm},
                                       {"recipe", config_.precision.recipe_text()}});
    if (parameter(first).expert >= 0) record.as_object().set("experts", linears.size());
    return record;
  }
  // Adds the change of the loss, one of `tested`.
  static void set_change(json::Value& record, double loss, const LossChange& c, std::size_t tested) {
    const auto count = static_cast<std::int64_t>(tested);
    json::Object& o = record.as_object();
    o.set("loss", loss + c.change);
    o.set("loss_change", c.change);
    o.set("standard_error", c.standard_error);
    o.set("sequences", c.sequences);
    o.set("p_value", c.p_value(count));
    o.set("hurts", c.hurts(count));
  }

  void emit_losses(double loss, const std::vector<LossChange>& changes) const {
    const std::size_t count = parts_with(kForward).size();  // the first parts
    for (std::size_t i = 0; i < count; ++i) {
      json::Value record = record_of(parts_[i].linears, "forward");
      set_change(record, loss, changes[i], count);
      all_.journal.emit(record);
    }
  }
  void emit_groups(LossChanges& measured, const std::vector<LossChange>& changes) const {
    for (const std::size_t number : groups_) {
      const Part& part = parts_[number];
      json::Array names;
      for (const int linear : part.linears) names.emplace_back(parameter(linear).name);
      json::Value record = json::object({{"type", "group"},
                                         {"linears", std::move(names)},
                                         {"gemm", "forward"},
                                         {"recipe", config_.precision.recipe_text()}});
      set_change(record, measured.loss, changes[number], groups_.size());
      all_.journal.emit(record);
      measured.groups.push_back({part.linears, changes[number]});
    }
  }
  void emit_gradient(const std::vector<int>& linears, const char* gemm, const Products& sum) const {
    json::Value record = record_of(linears, gemm);
    record.as_object().set("cosine", sum.cosine());
    record.as_object().set("relative_l2", sum.relative_l2());
    all_.journal.emit(record);
  }
  // Gradients are those of the first batch.
  void measure_dgrads() {
    probe_.read_batch(0);
    for (const std::vector<int>& linears : parts_with(kDgrad)) {
      activity_.begin(glob_of(linears.front()) + " dgrad");
      const std::vector<Products> products = probe_.gradient_with(linears, kDgrad);
      Products sum;
      for (const Products& p : products) sum += p;
      emit_gradient(linears, "dgrad", sum);
    }
  }
  void measure_wgrads() {
    const std::vector<int> linears = with(kWgrad);
    if (linears.empty()) return;
    activity_.begin("wgrad of all linears");
    const std::vector<Products> products = probe_.gradient_with(linears, kWgrad);
    for (const std::vector<int>& part : parts_with(kWgrad)) {
      Products sum;
      for (std::size_t i = 0; i < products.size(); ++i) {
        const double exact = products[i].exact;  // the gradients of other weights are those of bf16
        const bool own = std::ranges::binary_search(part, static_cast<int>(i));
        sum += own ? products[i] : Products{exact, exact, exact, 0};
      }
      emit_gradient(part, "wgrad", sum);
    }
  }

  const settings::InspectConfig& config_;
  const Inspection& all_;
  Activity activity_;
  Probe probe_;
  std::vector<int> linears_;
  std::vector<Part> parts_;          // linears with forward in FP8 if they are wanted, then groups of several
  std::vector<std::size_t> groups_;  // numbers of parts
};

}  // namespace

LossChanges measure_sensitivity(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device) {
  return Measurement(setup, all, device).run();
}

}  // namespace fp8::inspect
