// Experts whose rows travel and are computed in several passes, through the CUDA kernels, which run on the host: the
// results have the bits of a rank that computes its own rows, whatever backward reads of forward, and the memory is at
// most that of a dry run.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "cuda_shim.h"
#include "filled_model.h"
#include "fp8/json/json.h"
#include "fp8_test.h"

namespace fp8::kernels {
namespace {

using dtype::DType;
using tensor::View;

constexpr std::int64_t kSequences = 2, kLength = 48;
constexpr int kExperts = 5;

// One rank that sends its rows to itself.
class OneRank final : public model::ExpertExchange {
 public:
  explicit OneRank(double room) : room_(room) {}
  int ranks() const override { return 1; }
  int rank() const override { return 0; }
  std::int64_t first_expert(int rank) const override { return rank == 0 ? 0 : kExperts; }
  double room() const override { return room_; }
  void gather_counts(const device::Context& ctx, const View& counts, const View& all) override {
    if (!ctx.dry) device::copy_bytes(ctx, all.data, ctx.device, counts.data, ctx.device, counts.bytes());
  }
  void exchange(const device::Context& ctx, const View& from, std::span<const std::int64_t>, const View& to,
                std::span<const std::int64_t>) override {
    if (!ctx.dry) device::copy_bytes(ctx, to.data, ctx.device, from.data, ctx.device, from.bytes());
    ++travels;
  }
  int travels = 0;

 private:
  double room_;
};

// The parameters of a store, with another exchange.
class Source final : public model::ParameterAccess {
 public:
  Source(shard::ParameterStore& store, model::ExpertExchange* exchange) : store_(store), exchange_(exchange) {}
  model::ExpertExchange* exchange() override { return exchange_; }
  void prefetch(int unit, model::Pass pass) override { store_.prefetch(unit, pass); }
  model::UnitWeights unshard(const device::Context& ctx, int unit, model::Pass pass) override {
    return store_.unshard(ctx, unit, pass);
  }
  model::UnitGradients gradient_buffers(int unit) override { return store_.gradient_buffers(unit); }
  void gradients_done(int unit) override { store_.gradients_done(unit); }

 private:
  shard::ParameterStore& store_;
  model::ExpertExchange* exchange_;
};

hf::ModelConfig config() {
  return hf::parse_config(
      json::parse(R"({"model_type": "mixtral", "vocab_size": 32, "hidden_size": 32, "intermediate_size": 32,
      "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 48,
      "rms_norm_eps": 1e-5, "num_local_experts": 5, "num_experts_per_tok": 2, "num_hidden_layers": 2})",
                  "small"),
      "small");
}

struct Case {
  const quant::Recipe* recipe;
  model::Recompute recompute;
  std::optional<double> room;  // empty: rows do not travel
  model::OperationObserver* observer = nullptr;
};

// Reads the values of all operations, so that none of them writes codes in their place.
class Reader final : public model::OperationObserver {
 public:
  void observe(const device::Context&, const model::Operation&, const View&) override {}
};

struct Outcome {
  std::vector<float> values;  // losses and gradients
  std::size_t peak = 0;
  int travels = 0;
  std::uint64_t written = 0;  // launches of SwiGLU that wrote codes
};

std::uint64_t launches_of_codes() {
  std::uint64_t launches = 0;
  for (const auto& [name, w] : shim::work())
    if (name.starts_with("swiglu") && name.ends_with("codes")) launches += static_cast<std::uint64_t>(w.launches);
  return launches;
}

class Trainer {
 public:
  Trainer(const Case& c, bool dry)
      : comm_(comm::solo()),
        exchange_(c.room.value_or(0)),
        model_(gpu_.context(), comm::Mesh(*comm_), spec_of(c),
               dry ? device::Arena() : device::Arena(std::size_t{64} << 20, device::DeviceType::cuda)),
        source_(model_.store, c.room ? &exchange_ : nullptr) {
    if (!dry)
      test::fill_masters(model_, [&](int number, std::int64_t begin, std::int64_t end) {
        const std::int64_t cols = model_.store.table()[static_cast<std::size_t>(number)].cols();
        std::vector<float> values;
        for (std::int64_t i = begin * cols; i < end * cols; ++i)
          values.push_back(static_cast<float>((i * 5 + i / 37 * 11 + number * 3) % 23 - 11) / 64);
        return values;
      });
  }

  Outcome outcome() {
    auto& scales = model_.store.scales();
    if (scales.needs_calibration()) {
      scales.begin_calibration();
      train();
      model_.store.end_calibration(model_.ctx);
    }
    exchange_.travels = 0;
    const std::uint64_t before = launches_of_codes();
    Outcome o{train()};
    o.written = launches_of_codes() - before;
    o.peak = model_.arena.peak();
    o.travels = exchange_.travels;
    return o;
  }

 private:
  static shard::ModelSpec spec_of(const Case& c) {
    shard::ModelSpec spec{
        config(), model::parameter_table(config()), {}, {.recompute = c.recompute, .observer = c.observer}};
    for (model::Parameter& p : spec.table) p.fp8 = p.fp8 && c.recipe != nullptr;
    spec.store.fp8 = {c.recipe, {c.recipe != nullptr && c.recipe->power_of_2}};
    return spec;
  }

  std::vector<float> train() {
    const device::Context& ctx = model_.ctx;
    const device::Scope scope(model_.arena);
    std::vector<std::int32_t> tokens, targets;
    for (std::int32_t i = 0; i < kSequences * kLength; ++i)
      tokens.push_back(i * 31 % 32), targets.push_back(i * 17 % 32);
    const auto ids = [&](std::vector<std::int32_t>& v) {
      return tensor::make_view(v.data(), DType::i32, device::DeviceType::host, {kSequences, kLength});
    };
    device::PooledMemory memory(model_.arena);
    const model::Batch batch = shard::on_device(ctx, {ids(tokens), ids(targets), kSequences, kLength}, memory);
    const View losses = tensor::allocate(ctx, DType::f32, {kSequences * kLength}, "test");
    model_.store.gradients().begin_micro_batch(0, 1);
    {
      model::MicroBatch m(model_.decoder, ctx, model_.engine, source_, batch, model::PassKind::training);
      m.forward_embedding();
      m.forward_layers(0, 2);
      m.backward_head(1.0f / 64, losses);
      m.backward_layers(0, 2);
      m.backward_embedding();
    }
    model_.store.gradients().finish(ctx);
    std::vector<float> values;
    if (ctx.dry) return values;
    const auto add = [&](const View& v) {
      const std::vector<float> more = tensor::to_host<float>(ctx, v);
      values.insert(values.end(), more.begin(), more.end());
    };
    add(losses);
    for (const shard::ParameterShard& own : model_.store.shards()) add(own.gradient);
    return values;
  }

  device::Device gpu_{device::DeviceType::cuda};
  std::unique_ptr<comm::Communicator> comm_;
  OneRank exchange_;
  shard::ShardedModel model_;
  Source source_;
};

// Codes are kept with every room: it has more rows than the padding of five groups, and a pass has several experts.
TEST(ExpertsOnDevice, PassesGiveTheBitsOfOneRank) {
  using model::Recompute;
  for (const auto& [name, recompute] :
       {std::pair{"none", Recompute::none}, std::pair{"none", Recompute::selective},
        std::pair{"tensorwise", Recompute::none}, std::pair{"tensorwise", Recompute::selective},
        std::pair{"tensorwise", Recompute::full}, std::pair{"delayed", Recompute::none},
        std::pair{"delayed", Recompute::full}, std::pair{"blockwise", Recompute::none}}) {
    const quant::Recipe* recipe = name == std::string_view("none") ? nullptr : &quant::find_recipe(name);
    SCOPED_TRACE(std::string(name) + " " + std::to_string(static_cast<int>(recompute)));
    const Outcome alone = Trainer({recipe, recompute, {}}, false).outcome();
    const std::size_t planned = Trainer({recipe, recompute, {}}, true).outcome().peak;
    EXPECT_LE(alone.peak, planned);
    if (name != std::string_view("delayed")) {
      EXPECT_EQ(alone.peak, planned) << "scales that are known take no memory";
    }
    Reader reader;
    const Outcome values = Trainer({recipe, recompute, {}, &reader}, false).outcome();
    const bool writes = name == std::string_view("delayed") || name == std::string_view("blockwise");
    if (writes) {
      EXPECT_GT(alone.written, values.written) << "the forward pass that is repeated is not observed";
      EXPECT_EQ(alone.values, values.values) << "codes in place of values";
    } else {
      EXPECT_EQ(alone.written, 0U);
    }
    int travels = 0;
    for (const double room : {1.0, 0.5}) {
      const Case c{recipe, recompute, room};
      const Outcome passes = Trainer(c, false).outcome();
      EXPECT_EQ(passes.values, alone.values);
      EXPECT_LE(passes.peak, Trainer(c, true).outcome().peak);
      EXPECT_GT(passes.travels, travels) << "more passes with less room";
      travels = passes.travels;
    }
  }
}

}  // namespace
}  // namespace fp8::kernels
