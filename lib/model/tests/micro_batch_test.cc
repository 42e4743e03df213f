// Parts of the decoder, one by one: several micro-batches in flight, in any order, give the bits of whole passes and
// use the memory of a dry run.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <random>

#include "decoder_reference.h"
#include "fp8_test.h"

namespace fp8::model {
namespace {

using dtype::DType;
using reference::MemorySource;
using reference::some_text;
using reference::Text;
using reference::Values;
using tensor::Tensor;

constexpr float kScale = 0.125f;

// Everything that parts differ in: q/k norms, biases, a head of its own or the embedding's.
hf::ModelConfig config_of(bool tied) {
  hf::ModelConfig c = reference::small_config();
  c.num_hidden_layers = 3;
  c.attention_bias_qkv = c.qk_norm = true;
  c.tie_word_embeddings = tied;
  return c;
}

struct Settings {
  bool tied;
  DType activation;
  Recompute recompute;
  linear::LinearPrecision precision;
};

std::vector<Settings> all_settings() {
  std::vector<Settings> all;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    for (const char* recipe : {"", "tensorwise", "blockwise"}) {
      const bool fp8 = *recipe != '\0';
      linear::LinearPrecision precision;
      if (fp8)
        precision.recipe = &quant::find_recipe(recipe), precision.options.power_of_2 = precision.recipe->power_of_2;
      // Tensorwise leaves codes in place of f32 inputs to backward.
      const DType activation = std::string_view(recipe) == "blockwise" ? DType::bf16 : DType::f32;
      all.push_back({fp8, activation, recompute, precision});
    }
  return all;
}

// A text with a source of weights, its losses, and the bits of all of it.
struct Job {
  Job(const Settings& s, std::uint64_t seed)
      : config(config_of(s.tied)),
        text(some_text(2, 8, config.vocab_size, seed)),
        source(config, table_of(config), reference::some_weights(parameter_table(config)), s.activation, s.precision),
        losses(DType::f32, {16}) {}
  static std::vector<Parameter> table_of(const hf::ModelConfig& config) {
    std::vector<Parameter> table = parameter_table(config);
    assign_precisions(table, {});
    return table;
  }
  std::string bits() {
    std::string all(reinterpret_cast<const char*>(losses.as<float>()), losses.view().bytes());
    for (const Parameter& p : source.table) {
      const Values v = source.gradient(p);
      all.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(double));
    }
    return all;
  }

  hf::ModelConfig config;
  Text text;
  MemorySource source;
  Tensor losses;
};

// A run on an arena: dry, and then in as much memory as that planned.
void planned_and_real(const std::function<void(const Context&)>& run) {
  device::Arena dry;
  Context ctx;
  ctx.arena = &dry;
  ctx.dry = true;
  run(ctx);
  device::Arena real(dry.peak(), device::DeviceType::host);
  ctx.arena = &real;
  ctx.dry = false;
  run(ctx);
  EXPECT_EQ(real.peak(), dry.peak());
  EXPECT_EQ(real.mark(), 0u);
  EXPECT_NO_THROW((void)real.allocate_pooled(real.peak(), "all")) << "something is still held";
}

// The parts of a micro-batch, layer by layer.
std::vector<std::function<void(MicroBatch&)>> parts_of(const Decoder& decoder, const View& losses) {
  std::vector<std::function<void(MicroBatch&)>> parts{[](MicroBatch& m) { m.forward_embedding(); }};
  for (int i = 0; i < decoder.layers(); ++i) parts.emplace_back([i](MicroBatch& m) { m.forward_layers(i, i + 1); });
  parts.emplace_back([losses](MicroBatch& m) { m.backward_head(kScale, losses); });
  for (int i = decoder.layers() - 1; i >= 0; --i)
    parts.emplace_back([i](MicroBatch& m) { m.backward_layers(i, i + 1); });
  parts.emplace_back([](MicroBatch& m) { m.backward_embedding(); });
  return parts;
}

TEST(MicroBatch, PartsInAnyOrderOfThreeGiveTheBitsOfWholePasses) {
  constexpr int kJobs = 3;
  unsigned seed = 0;
  for (const Settings& s : all_settings()) {
    SCOPED_TRACE(++seed);
    gemm::Engine engine;
    const Decoder decoder(config_of(s.tied), {s.activation, s.recompute});
    std::vector<std::string> whole;
    for (std::uint64_t i = 0; i < kJobs; ++i) {
      Job job(s, i);
      planned_and_real([&](const Context& ctx) {
        reference::train(decoder, ctx, engine, job.source, job.text.batch(), kScale, job.losses.view());
      });
      whole.push_back(job.bits());
    }
    std::vector<Job> jobs;
    for (std::uint64_t i = 0; i < kJobs; ++i) jobs.emplace_back(s, i);
    planned_and_real([&](const Context& ctx) {
      std::mt19937 random(seed);
      std::vector<MicroBatch> flight;
      std::vector<std::size_t> next(kJobs);
      for (Job& j : jobs) flight.emplace_back(decoder, ctx, engine, j.source, j.text.batch(), PassKind::training);
      const std::size_t count = parts_of(decoder, {}).size();
      for (std::size_t left = kJobs * count; left > 0; --left) {
        std::size_t i = random() % kJobs;
        while (next[i] == count) i = (i + 1) % kJobs;
        parts_of(decoder, jobs[i].losses.view())[next[i]++](flight[i]);
      }
    });
    for (std::size_t i = 0; i < kJobs; ++i) EXPECT_TRUE(jobs[i].bits() == whole[i]) << i;
  }
}

// Two micro-batches are in flight at a time, and the gradients of all are added in their order, as pipelines do.
TEST(MicroBatch, PartsWithOneForwardAndOneBackwardAddGradientsAsWholePassesDo) {
  constexpr std::uint64_t kJobs = 4;
  for (const Settings& s : all_settings()) {
    const Decoder decoder(config_of(s.tied), {s.activation, s.recompute});
    gemm::Engine engine;
    std::vector<Job> texts;
    for (std::uint64_t i = 0; i < kJobs; ++i) texts.emplace_back(s, i);
    Job whole(s, 0), apart(s, 0);
    planned_and_real([&](const Context& ctx) {
      for (Job& t : texts) {
        whole.source.accumulate = &t != texts.data();
        reference::train(decoder, ctx, engine, whole.source, t.text.batch(), kScale, t.losses.view());
      }
    });
    planned_and_real([&](const Context& ctx) {
      std::deque<MicroBatch> flight;
      for (std::size_t i = 0; i <= kJobs; ++i) {
        if (i < kJobs) {
          flight.emplace_back(decoder, ctx, engine, apart.source, texts[i].text.batch(), PassKind::training);
          flight.back().forward_embedding();
          flight.back().forward_layers(0, decoder.layers());
        }
        if (i == 0) continue;
        apart.source.accumulate = i > 1;
        flight.front().backward_head(kScale, texts[i - 1].losses.view());
        flight.front().backward_layers(0, decoder.layers());
        flight.front().backward_embedding();
        flight.pop_front();
      }
    });
    EXPECT_TRUE(apart.bits() == whole.bits());
  }
}

TEST(MicroBatch, HeadAloneHasTheLossesOfTheWholePass) {
  const Settings s = all_settings().front();
  const Decoder decoder(config_of(s.tied), {s.activation, s.recompute});
  gemm::Engine engine;
  Job whole(s, 1), apart(s, 1);
  device::Arena arena(std::size_t{1} << 20, device::DeviceType::host);
  Context ctx;
  ctx.arena = &arena;
  decoder.forward(ctx, engine, whole.source, whole.text.batch(), whole.losses.view());
  MicroBatch first(decoder, ctx, engine, apart.source, apart.text.batch(), PassKind::inference);
  first.forward_embedding();
  first.forward_layers(0, 2);
  // Another rank continues with the hidden state, and computes backward with its gradient.
  MicroBatch second(decoder, ctx, engine, apart.source, apart.text.batch(), PassKind::training);
  std::memcpy(second.hidden().data, first.hidden().data, first.hidden().bytes());
  second.forward_layers(2, 3);
  second.forward_head(apart.losses.view());
  EXPECT_EQ(std::memcmp(whole.losses.as<float>(), apart.losses.as<float>(), whole.losses.view().bytes()), 0);
  EXPECT_TRUE(first.gradient().empty());
  second.backward_head(kScale, apart.losses.view());
  second.backward_layers(2, 3);
  EXPECT_EQ(second.gradient().shape[0], 16);
}

TEST(MicroBatch, BackwardNeedsForwardAndRunsOnce) {
  const Settings s = all_settings().front();
  const Decoder decoder(config_of(s.tied), {s.activation, s.recompute});
  gemm::Engine engine;
  Job job(s, 1);
  device::Arena arena(std::size_t{1} << 20, device::DeviceType::host);
  Context ctx;
  ctx.arena = &arena;
  MicroBatch m(decoder, ctx, engine, job.source, job.text.batch(), PassKind::training);
  m.forward_embedding();
  m.forward_layers(0, 2);
  EXPECT_EQ(fp8::test::error_of([&] { m.backward_layers(2, 3); }),
            "decoder: layer 2 has no saved activations for backward");
  m.backward_layers(1, 2);
  EXPECT_THROW(m.backward_layers(1, 2), Error);
}

}  // namespace
}  // namespace fp8::model
