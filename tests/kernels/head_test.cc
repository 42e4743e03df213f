// The LM head in FP8 on a device, whose kernels run on the host: the final norm and the loss write codes block by
// block, with the bits that they have where an observer needs the values.
#include "cuda_shim.h"
//
#include "../golden/golden.h"
#include "fp8/json/json.h"
#include "fp8/model/operation.h"
#include "fp8/optim/adamw.h"

namespace fp8::kernels {
namespace {

using dtype::DType;
using golden::Values;

constexpr std::int64_t kVocabulary = 160, kBlock = 16;  // rows of a block

struct NoObserver : model::OperationObserver {
  void observe(const device::Context&, const model::Operation&, const tensor::View&) override {}
};

hf::ModelConfig config() {
  return hf::parse_config(json::parse(R"({"model_type": "llama", "vocab_size": 160, "hidden_size": 64,
    "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "num_hidden_layers": 1})",
                                      "small"),
                          "small");
}

// A model with the head in FP8, in blocks of rows.
class Head {
 public:
  Head(const quant::Recipe& recipe, model::OperationObserver* observer)
      : gpu_(device::DeviceType::cuda),
        comm_(comm::solo()),
        counts_(sizeof(quant::CastCounts), device::DeviceType::cuda, "counts"),
        model_(gpu_.context(), comm::Mesh(*comm_), spec_of(recipe, observer),
               device::Arena(std::size_t{32} << 20, device::DeviceType::cuda)) {
    test::fill_masters(model_, [&](int number, std::int64_t begin, std::int64_t end) {
      const model::Parameter& p = model_.store.table()[static_cast<std::size_t>(number)];
      const bool norm = p.role == model::ParameterRole::norm;
      std::vector<float> values;
      for (std::int64_t i = begin * p.cols(); i < end * p.cols(); ++i)
        values.push_back(norm ? 1.0f : static_cast<float>((i * 5 + i / 11 + number * 3) % 17 - 8) / 16);
      if (number == 0 && begin == 0) values[0] = 512;  // of token 0, so that the first block has the larger norms
      return values;
    });
  }
  // Losses and gradients of steps, and the counts of their casts. Some targets of the first block are ignored, and all
  // but one of the second, so that the amaxes of their gradients differ.
  Values steps(int count, std::int64_t rows) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows)), targets(tokens.size());
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto at = static_cast<std::size_t>(i);
      tokens[at] = static_cast<std::int32_t>(i * 31 % kVocabulary);
      const bool ignored = i < kBlock ? i % 5 == 2 : i != kBlock + 1;
      targets[at] = ignored ? kIgnoredTarget : static_cast<std::int32_t>(i * 17 % kVocabulary);
    }
    const device::Scope scope(model_.arena);
    if (model_.store.scales().needs_calibration()) {
      model_.store.scales().begin_calibration();
      pass(tokens, targets);
      model_.store.end_calibration(model_.ctx);
    }
    const device::Buffer scalars(256, device::DeviceType::cuda, "scalars");
    auto* const sum = reinterpret_cast<double*>(scalars.data());
    auto* const gate = reinterpret_cast<optim::Gate*>(scalars.data() + 128);
    Values all;
    for (int step = 1; step <= count; ++step) {
      const Values losses = pass(tokens, targets);
      all.insert(all.end(), losses.begin(), losses.end());
      for (const shard::ParameterShard& own : model_.store.shards())
        for (const double g : values_of(own.gradient)) all.push_back(g);
      *sum = sum[1] = 1;
      optim::set_gate(model_.ctx, sum, sum + 1, 1.0, gate);
      const optim::Settings settings;
      model_.store.update(model_.ctx, model_.engine, settings, optim::scalars_of(settings, step, 1e-2, 1, gate));
    }
    const auto& counts = *reinterpret_cast<const quant::CastCounts*>(counts_.data());
    for (const std::int64_t n : {counts.elements, counts.saturated, counts.underflowed})
      all.push_back(static_cast<double>(n));
    return all;
  }

 private:
  shard::ModelSpec spec_of(const quant::Recipe& recipe, model::OperationObserver* observer) const {
    shard::ModelSpec spec{config(), model::parameter_table(config()), {}};
    model::assign_precisions(spec.table, {.lm_head = true});
    spec.store.fp8 = {&recipe, {recipe.power_of_2, reinterpret_cast<quant::CastCounts*>(counts_.data())}};
    spec.execution.observer = observer;
    spec.execution.logit_bytes = kBlock * kVocabulary * 2;
    return spec;
  }
  Values values_of(const tensor::View& v) const {
    const tensor::Tensor copy(v.dtype, {v.size()});
    device::copy_bytes(model_.ctx, copy.view().data, device::DeviceType::host, v.data, v.device, v.bytes());
    return golden::values(copy.view());
  }
  Values pass(std::vector<std::int32_t>& tokens, std::vector<std::int32_t>& targets) {
    const std::int64_t rows = std::ssize(tokens);
    Values losses;
    shard::run_passes(model_, {.gradient_scale = 0.125f,
                               .batch =
                                   [&](const device::Context& ctx, device::PooledMemory& memory, int) {
                                     return shard::on_device(ctx, golden::batch_of(tokens, targets, 1, rows), memory);
                                   },
                               .losses = [&](const tensor::View& v) { losses = values_of(v); }});
    model_.store.gradients().finish(model_.ctx);
    return losses;
  }
  device::Device gpu_;
  std::unique_ptr<comm::Communicator> comm_;
  device::Buffer counts_;
  shard::ShardedModel model_;
};

std::int64_t launches(const std::string& name) {
  const auto& work = shim::work();
  const auto found = work.find(name);
  return found == work.end() ? 0 : static_cast<std::int64_t>(found->second.launches);
}

// Two blocks are written as codes. If the last one needs more memory as codes for wgrad than as values, the norm of all
// rows is stored.
void check(const std::string& name, std::int64_t rows, bool writes_norm) {
  SCOPED_TRACE(name + ", " + std::to_string(rows));
  const quant::Recipe& recipe = quant::find_recipe(name);
  const int steps = recipe.scale_rule == quant::ScaleRule::delayed ? 2 : 1;  // the second has scales of the first
  NoObserver observer;
  shim::work().clear();
  const Values want = Head(recipe, &observer).steps(steps, rows);
  EXPECT_EQ(launches("cross-entropy codes"), 0) << "values are observed";
  shim::work().clear();
  const Values got = Head(recipe, nullptr).steps(steps, rows);
  EXPECT_EQ(launches("cross-entropy codes"), 2 * steps);
  EXPECT_EQ(launches("rmsnorm codes"), (2 + (writes_norm ? 2 : 0)) * steps) << "and two of a layer";
  ASSERT_EQ(got.size(), want.size());
  EXPECT_GT(want[want.size() - 3], 0) << "casts are counted";
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << "value " << i << " of " << want.size();
}

TEST(Head, HasTheBitsOfStoredValuesInCodes) {
  for (const char* const name : {"tensorwise", "current", "delayed"}) check(name, kBlock + 12, true);
  check("blockwise", 2 * kBlock, true);
  check("tensorwise", kBlock + 4, false);
}

}  // namespace
}  // namespace fp8::kernels
