// One model in bf16 whose linears take turns in FP8. The forward pass restarts at the layer of the linear; one backward
// pass serves the wgrads of all linears, since a wgrad changes only the gradient of its own weight.
#include "sensitivity.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fp8/base/clock.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "fp8/train/observe.h"

namespace fp8::inspect {
namespace {

constexpr quant::GemmSet kNone{false, false, false};
constexpr quant::GemmSet kForward{true, false, false};
constexpr quant::GemmSet kDgrad{false, true, false};
constexpr quant::GemmSet kWgrad{false, false, true};

// Sums over the elements of a gradient g in bf16 and the same gradient f with a GEMM in FP8.
struct Products {
  double exact = 0, other = 0, both = 0, difference = 0;  // g^2, f^2, g f, (f - g)^2
  Products& operator+=(const Products& o) {
    exact += o.exact;
    other += o.other;
    both += o.both;
    difference += o.difference;
    return *this;
  }
  double cosine() const { return both / std::sqrt(exact * other); }
  double relative_l2() const { return std::sqrt(difference / exact); }
};

Products products_of(const std::vector<float>& exact, const std::vector<float>& other) {
  Products p;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double g = exact[i], f = other[i];
    p += {g * g, f * f, g * f, (f - g) * (f - g)};
  }
  return p;
}

shard::ModelSpec probe_spec(const RecipeSetup& setup) {
  shard::ModelSpec spec = setup.eval.model_spec;
  spec.store.fp8_all_gather = false;  // the linears that run in FP8 change
  return spec;
}

// The model, in bf16 except the GEMMs that a function names.
class Probe {
 public:
  Probe(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device)
      : all_(all),
        recipe_(*setup.config.precision.recipe_or_null()),
        inspected_(setup, all, device, probe_spec(setup), nullptr),
        model_(*inspected_.model) {
    model_.store.record_amaxes(false);
    const hf::ModelConfig& c = model_.decoder.config();
    const std::int64_t rows = setup.shape.sequences * setup.shape.length;
    comm::agree(all.host_comm, [&] {
      inputs_ = tensor::Tensor(setup.config.precision.activations, {c.num_hidden_layers + 1, rows, c.hidden_size},
                               device.type(), "inputs of the layers");
    });
  }

  const std::vector<model::Parameter>& table() const { return model_.store.table(); }
  // Whether a GEMM of a linear is FP8 in the recipe.
  bool runs(int linear, const quant::GemmSet& gemm) const {
    const model::Parameter& p = table()[static_cast<std::size_t>(linear)];
    const bool selected = (gemm.forward && p.gemms.forward) || (gemm.dgrad && p.gemms.dgrad) ||
                          (gemm.wgrad && p.gemms.wgrad && p.trainable);
    return selected && recipe_.fp8_gemms(gemm) > 0;
  }
  // The share of a forward pass that comes after the input of a linear's layer.
  double rest_of_forward(int linear) const {
    const double units = static_cast<double>(model_.decoder.units()) - 1;
    return (units - first_layer(linear)) / units;
  }

  // Mean loss in bf16. Keeps the inputs of the layers. Collective.
  double loss() { return loss_with({}, kNone, -1); }
  // Mean loss with the forward GEMM of one linear in FP8. After loss(). Collective.
  double loss_with(int linear) { return loss_with({linear}, kForward, first_layer(linear)); }

  // The gradient in bf16, to which the others are compared. Collective.
  void gradient() {
    compute({}, kNone);
    for (const shard::ParameterShard& o : model_.store.shards()) exact_.push_back(values_of(o));
  }
  // By parameter, the gradient with a GEMM of some linears in FP8 and the one in bf16, on all ranks. Collective.
  std::vector<Products> gradient_with(const std::vector<int>& linears, const quant::GemmSet& gemm) {
    compute(linears, gemm);
    std::vector<Products> products;
    for (const shard::ParameterShard& o : model_.store.shards())
      products.push_back(products_of(exact_[products.size()], values_of(o)));
    static_assert(sizeof(Products) == 4 * sizeof(double));
    all_.host_comm.all_reduce(std::span<double>(&products.front().exact, 4 * products.size()), comm::Reduce::sum);
    return products;
  }

 private:
  int first_layer(int linear) const { return table()[static_cast<std::size_t>(linear)].unit - 1; }

  void select(const std::vector<int>& linears, const quant::GemmSet& gemm) {
    std::vector<quant::GemmSet> gemms(table().size(), kNone);
    for (const int linear : linears) gemms[static_cast<std::size_t>(linear)] = gemm;
    model_.store.set_gemms(gemms);
  }

  // From the layer `first` on; -1: all, and keeps the inputs of the layers.
  double loss_with(const std::vector<int>& linears, const quant::GemmSet& gemm, int first) {
    select(linears, gemm);
    const Context& ctx = model_.ctx;
    const device::Scope scope(*ctx.arena);
    const model::Batch batch = inspected_.batches->batch(ctx, 0);
    const View losses = tensor::allocate(ctx, DType::f32, {batch.rows()}, "activations");
    if (first < 0)
      model_.decoder.forward_and_store_inputs(ctx, model_.engine, model_.store, batch, inputs_.view(), losses);
    else
      model_.decoder.forward_from(ctx, model_.engine, model_.store, batch, first, inputs_.view(), losses);
    const std::vector<float> values = tensor::to_host<float>(ctx, losses);
    double sum = std::accumulate(values.begin(), values.end(), 0.0);
    all_.host_comm.all_reduce(std::span<double>(&sum, 1), comm::Reduce::sum);
    return sum / static_cast<double>(inspected_.targets);
  }

  void compute(const std::vector<int>& linears, const quant::GemmSet& gemm) {
    select(linears, gemm);
    train::compute(*inspected_.env, *inspected_.batches, inspected_.targets, false);
  }

  std::vector<float> values_of(const shard::ParameterShard& o) const {
    return o.gradient.empty() || o.rows.count() == 0 ? std::vector<float>()
                                                     : tensor::to_host<float>(model_.ctx, o.gradient);
  }

  const Inspection& all_;
  const quant::Recipe& recipe_;
  InspectedModel inspected_;
  shard::ShardedModel& model_;
  tensor::Tensor inputs_;                  // [L + 1, M, C]
  std::vector<std::vector<float>> exact_;  // by parameter, own rows
};

json::Value record_of(const RecipeSetup& setup, const std::string& linear, const char* gemm) {
  return json::object(
      {{"type", "sensitivity"}, {"linear", linear}, {"gemm", gemm}, {"recipe", setup.config.precision.recipe}});
}

// The numbers of the linears that are inspected.
std::vector<int> linears_of(const RecipeSetup& setup, const std::vector<model::Parameter>& table) {
  const std::vector<char> observed = train::observed_linears(table, setup.config.layers);
  std::vector<int> linears;
  for (std::size_t i = 0; i < observed.size(); ++i)
    if (observed[i] != 0) linears.push_back(static_cast<int>(i));
  return linears;
}

// Measures one linear after another, with progress.
class Measurement {
 public:
  Measurement(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device)
      : setup_(setup), all_(all), probe_(setup, all, device), linears_(linears_of(setup, probe_.table())) {}

  LossChanges run() {
    const auto start = Clock::now();
    loss_ = probe_.loss();
    const double forward = seconds_since(start);
    probe_.gradient();
    estimate(forward, seconds_since(start) - forward);
    start_ = Clock::now();
    const std::vector<Sensitivity> changes = measure_losses();
    measure_dgrads();
    measure_wgrads();
    return {loss_, changes};
  }

 private:
  std::vector<int> with(const quant::GemmSet& gemm) const {
    std::vector<int> found;
    std::copy_if(linears_.begin(), linears_.end(), std::back_inserter(found),
                 [&](int linear) { return probe_.runs(linear, gemm); });
    return found;
  }
  std::string name_of(int linear) const { return probe_.table()[static_cast<std::size_t>(linear)].name; }

  // States how long it takes, from the times of a forward pass, and of one with backward, in bf16.
  void estimate(double forward, double step) {
    for (const int linear : with(kForward)) total_s_ += forward * probe_.rest_of_forward(linear);
    total_s_ += step * static_cast<double>(with(kDgrad).size() + (with(kWgrad).empty() ? 0 : 1));
    all_.journal.note("sensitivity of " + std::to_string(linears_.size()) +
                      (linears_.size() == 1 ? " linear" : " linears") + " under " + setup_.config.precision.recipe +
                      ": about " + human_seconds(total_s_));
  }
  void progress(int linear, const char* gemm) const {
    const double left = std::max(0.0, total_s_ - seconds_since(start_));
    all_.journal.progress(name_of(linear) + " " + gemm + "  ETA " + human_seconds(left));
  }

  std::vector<Sensitivity> measure_losses() {
    std::vector<Sensitivity> changes;
    for (const int linear : with(kForward)) {
      progress(linear, "forward");
      const double loss = probe_.loss_with(linear);
      json::Value record = record_of(setup_, name_of(linear), "forward");
      record.as_object().set("loss", loss);
      record.as_object().set("loss_change", loss - loss_);
      all_.journal.emit(record);
      changes.push_back({linear, loss - loss_});
    }
    return changes;
  }
  void emit_gradient(int linear, const char* gemm, const Products& sum) {
    json::Value record = record_of(setup_, name_of(linear), gemm);
    record.as_object().set("cosine", sum.cosine());
    record.as_object().set("relative_l2", sum.relative_l2());
    all_.journal.emit(record);
  }
  void measure_dgrads() {
    for (const int linear : with(kDgrad)) {
      progress(linear, "dgrad");
      const std::vector<Products> products = probe_.gradient_with({linear}, kDgrad);
      Products sum;
      for (const Products& p : products) sum += p;
      emit_gradient(linear, "dgrad", sum);
    }
  }
  void measure_wgrads() {
    const std::vector<int> linears = with(kWgrad);
    if (linears.empty()) return;
    progress(linears.front(), "wgrad");
    const std::vector<Products> products = probe_.gradient_with(linears, kWgrad);
    for (const int linear : linears) {
      Products sum;
      for (std::size_t i = 0; i < products.size(); ++i) {
        const double exact = products[i].exact;  // the gradients of other weights are those of bf16
        sum += static_cast<int>(i) == linear ? products[i] : Products{exact, exact, exact, 0};
      }
      emit_gradient(linear, "wgrad", sum);
    }
  }

  const RecipeSetup& setup_;
  const Inspection& all_;
  Probe probe_;
  std::vector<int> linears_;
  double loss_ = 0, total_s_ = 0;
  Clock::time_point start_;
};

}  // namespace

LossChanges measure_sensitivity(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device) {
  return Measurement(setup, all, device).run();
}

}  // namespace fp8::inspect
