// Two models one after the other, each observed in one pass. Results are compared as they arrive in the second; the
// gradients of weights, which ranks sum and share, after it.
#include "bisect.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <stdexcept>
#include <tuple>

#include "fp8/json/json.h"
#include "fp8/statistics/difference.h"
#include "fp8/statistics/figures.h"

namespace fp8::inspect {
namespace {

using statistics::OperationDifference;

// A result in host memory, without gaps.
struct StoredResult {
  std::vector<std::byte> bytes;
  DType dtype{};
  std::int64_t cols = 0;

  std::int64_t row_bytes() const { return cols * static_cast<std::int64_t>(dtype::size_of(dtype)); }
  void append(const View& piece) {
    dtype = piece.dtype;
    cols = piece.shape[1];
    const std::size_t row = static_cast<std::size_t>(row_bytes()), rows = static_cast<std::size_t>(piece.shape[0]);
    const std::size_t before = bytes.size();
    bytes.resize(before + rows * row);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto at = static_cast<std::int64_t>(r);
      std::memcpy(bytes.data() + before + r * row, piece.rows(at, at + 1).data, row);
    }
  }
  // Rows [begin, end). Throws std::out_of_range unless there are as many.
  View rows(std::int64_t begin, std::int64_t end) {
    if (end * row_bytes() > static_cast<std::int64_t>(bytes.size())) throw std::out_of_range("rows of a result");
    return tensor::make_view(bytes.data() + begin * row_bytes(), dtype, device::DeviceType::host, {end - begin, cols});
  }
};

// Gets the results of one pass.
class PassObserver : public model::OperationObserver {
 public:
  void observe(const Context& ctx, const model::Operation& operation, const View& result) final {
    const device::Scope scope(*ctx.arena);
    std::vector<std::byte> memory;
    const View there = statistics::on_host(ctx, result, memory);
    if (active_ && !ctx.dry) add(operation, there);
  }
  // Observed from now on, or not: at first plans and calibration are not.
  void activate(bool active) { active_ = active; }

 private:
  virtual void add(const model::Operation& operation, const View& result) = 0;
  bool active_ = false;
};

// The results of A: results of operations in order, and gradients of this rank's rows of the weights, by number.
class Recording final : public PassObserver {
 public:
  StoredResult& result(const model::Operation& operation) { return results_.at(key_of(operation)); }
  void keep_gradients(const shard::ShardedModel& model) {
    for (const shard::ParameterShard& o : model.store.shards()) gradients_.push_back(gradient_of(model, o));
  }
  const std::vector<float>& gradient(std::size_t number) const { return gradients_.at(number); }
  static std::vector<float> gradient_of(const shard::ShardedModel& model, const shard::ParameterShard& o) {
    return o.gradient.empty() || o.rows.count() == 0 ? std::vector<float>()
                                                     : tensor::to_host<float>(model.ctx, o.gradient);
  }

 private:
  using Key = std::tuple<bool, int, std::string>;
  static Key key_of(const model::Operation& o) { return {o.backward, o.unit, std::string(o.name)}; }
  void add(const model::Operation& operation, const View& result) override {
    results_[key_of(operation)].append(result);
  }
  std::map<Key, StoredResult> results_;
  std::vector<std::vector<float>> gradients_;
};

// Compares the results of B with those of A.
class Comparison final : public PassObserver {
 public:
  Comparison(Recording& recording, int layers) : recording_(recording), layers_(layers) {}

  // The differences on this rank in order of execution; the gradients of a unit's weights, which are complete then,
  // follow its operations in backward.
  std::vector<OperationDifference> differences(const shard::ShardedModel& model) const {
    std::vector<OperationDifference> all;
    for (const Entry& e : entries_)
      if (!e.backward) all.push_back(e.difference);
    for (int unit = layers_ + 1; unit >= 0; --unit) {
      for (const Entry& e : entries_)
        if (e.backward && e.unit == unit) all.push_back(e.difference);
      add_gradients(model, unit, all);
    }
    return all;
  }

 private:
  struct Entry {
    bool backward;
    int unit;
    OperationDifference difference;
    std::int64_t rows = 0;  // number of rows that have been compared
  };

  void add(const model::Operation& operation, const View& result) override {
    const std::string name = full_name(operation, layers_);
    // The LM head and the loss come in pieces, whose sizes depend on the format of the activations.
    const auto same = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& e) {
      return e.backward == operation.backward && e.difference.operation == name;
    });
    Entry& entry = same != entries_.rend()
                       ? *same
                       : entries_.emplace_back(Entry{operation.backward,
                                                     operation.unit,
                                                     {operation.backward, layer_of(operation.unit), name,
                                                      operation.backward ? "input_gradient" : "output"},
                                                     0});
    const std::int64_t begin = entry.rows;
    entry.rows += result.shape[0];
    entry.difference.sums += statistics::difference(recording_.result(operation).rows(begin, entry.rows), result);
  }

  int layer_of(int unit) const { return unit >= 1 && unit <= layers_ ? unit - 1 : -1; }

  void add_gradients(const shard::ShardedModel& model, int unit, std::vector<OperationDifference>& all) const {
    for (const shard::ParameterShard& o : model.store.shards()) {
      const model::Parameter& p = model.store.table()[static_cast<std::size_t>(o.number)];
      if (p.unit != unit || o.gradient.empty()) continue;
      OperationDifference d{true, layer_of(unit), p.name, "weight_gradient"};
      std::vector<float> b = Recording::gradient_of(model, o);
      std::vector<float> a = recording_.gradient(static_cast<std::size_t>(o.number));
      const std::int64_t rows = o.rows.count();
      if (rows > 0) {
        const auto matrix = [&](std::vector<float>& values) {
          return tensor::make_view(values.data(), DType::f32, device::DeviceType::host,
                                   {rows, static_cast<std::int64_t>(values.size()) / rows});
        };
        d.sums = statistics::difference(matrix(a), matrix(b));
      }
      all.push_back(std::move(d));
    }
  }

  Recording& recording_;
  int layers_;
  std::vector<Entry> entries_;
};

settings::InspectConfig config_of(const settings::InspectConfig& config, const settings::PrecisionSide& side) {
  settings::InspectConfig one = config;
  one.precision = side.precision;
  one.device = side.device;
  return one;
}

// One pass under the settings of `setup`; calls `done` with the model after it. Returns the mean loss. Collective.
template <class Done>
double observed_pass(const RecipeSetup& setup, const Inspection& all, PassObserver& observer, Done&& done) {
  const train::DeviceSetup device(setup.config.device, setup.eval.precision, all.mesh);
  shard::ModelSpec spec = setup.eval.model_spec;
  spec.execution.observer = &observer;
  InspectedModel inspected(setup, all, device, spec, nullptr);
  observer.activate(true);
  inspected.compute(setup, all);
  observer.activate(false);
  done(*inspected.model);
  return inspected.loss();
}

// Sums of all ranks.
void reduce(comm::Communicator& host_comm, std::vector<OperationDifference>& operations) {
  for (OperationDifference& o : operations) {
    statistics::Difference& d = o.sums;
    std::array<std::int64_t, 3> counts{d.elements, d.nonfinite_a, d.nonfinite_b};
    std::array<double, 2> sums{d.reference, d.difference};
    host_comm.all_reduce(std::span<std::int64_t>(counts), comm::Reduce::sum);
    host_comm.all_reduce(std::span<double>(sums), comm::Reduce::sum);
    d = {counts[0], counts[1], counts[2], sums[0], sums[1]};
  }
}

}  // namespace

bool bisect(const settings::InspectConfig& config, const Inspection& all) {
  const settings::Bisection& sides = *config.bisection;
  const RecipeSetup a = resolve(config_of(config, sides.a), all), b = resolve(config_of(config, sides.b), all);
  Recording recording;
  Comparison comparison(recording, static_cast<int>(a.eval.model_spec.config.num_hidden_layers));
  all.journal.progress("A: " + sides.a.flags);
  const double loss_a =
      observed_pass(a, all, recording, [&](const shard::ShardedModel& m) { recording.keep_gradients(m); });
  all.journal.progress("B: " + sides.b.flags);
  std::vector<OperationDifference> operations;
  const double loss_b =
      observed_pass(b, all, comparison, [&](const shard::ShardedModel& m) { operations = comparison.differences(m); });
  reduce(all.host_comm, operations);
  const double bound = sides.bound.value_or(settings::kBisectionBound);
  const json::Value about = json::object({{"a", sides.a.flags},
                                          {"b", sides.b.flags},
                                          {"loss_a", loss_a},
                                          {"loss_b", loss_b},
                                          {"batch_size", config.batch_size},
                                          {"seq_length", a.sampler->tokens_per_sample()},
                                          {"step", config.step}});
  for (const json::Value& record : records_of(operations, bound, about)) all.journal.emit(record);
  const bool passes = first_above(operations, bound) == nullptr && first_nonfinite(operations) == nullptr;
  return !sides.bound || passes;
}

}  // namespace fp8::inspect
