// The decoder's arena allocations, measured by dry runs: no logits tensor, no T x T matrix, and the same size as a real
// run.
#include <gtest/gtest.h>

#include <array>

#include "decoder_reference.h"

namespace fp8::model {
namespace {

using dtype::DType;
using reference::MemorySource;
using tensor::Tensor;

constexpr DType kActivations[] = {DType::f32, DType::bf16};
constexpr Recompute kRecompute[] = {Recompute::none, Recompute::selective, Recompute::full};

hf::ModelConfig small_with(std::int64_t vocabulary) {
  hf::ModelConfig c;
  c.vocab_size = vocabulary;
  c.hidden_size = 32;
  c.intermediate_size = 64;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 8;
  c.qk_norm = c.attention_bias_qkv = true;
  return c;
}

// Bytes of arena and of the engine's scratch that one dry micro-batch allocates.
struct Taken {
  std::size_t arena, scratch;
};

Taken taken(const hf::ModelConfig& config, std::int64_t sequences, std::int64_t length, DType activation,
            Recompute recompute, bool backward, gemm::HostBf16 host_bf16 = gemm::HostBf16::detect,
            std::int64_t logit_bytes = kLeastLogits, const quant::Recipe* recipe = nullptr) {
  device::Arena arena;
  Context ctx;
  ctx.arena = &arena;
  ctx.dry = true;
  gemm::Engine engine(host_bf16);
  std::vector<Parameter> table = parameter_table(config);
  assign_precisions(table, {.recipe = recipe});
  MemorySource source(config, table, {}, activation, {recipe, {recipe != nullptr && recipe->power_of_2, nullptr}});
  std::int32_t unread = 0;
  const View tokens = tensor::make_view(&unread, DType::i32, device::DeviceType::host, {sequences, length});
  const Batch batch{tokens, tokens, sequences, length};
  float untouched = 0;
  const View losses = tensor::make_view(&untouched, DType::f32, device::DeviceType::host, {batch.rows()});
  const Decoder decoder(config, {activation, recompute, nullptr, logit_bytes});
  if (backward)
    reference::train(decoder, ctx, engine, source, batch, 1, losses);
  else
    decoder.forward(ctx, engine, source, batch, losses);
  return {arena.peak(), engine.scratch_bytes()};
}

TEST(DecoderMemory, NoLogitsTensor) {
  constexpr std::int64_t kVocabulary = 50304, kSequences = 4, kLength = 1024;
  for (const bool tied : {false, true})
    for (const DType activation : kActivations)
      for (const gemm::HostBf16 host : {gemm::HostBf16::detect, gemm::HostBf16::upcast})
        for (const bool backward : {false, true}) {
          hf::ModelConfig config = small_with(kVocabulary);
          config.tie_word_embeddings = tied;
          const Taken t = taken(config, kSequences, kLength, activation, Recompute::none, backward, host);
          const std::size_t logits = kSequences * kLength * kVocabulary * dtype::size_of(activation);
          EXPECT_LT(t.arena, logits / 4) << dtype::name_of(activation);
          EXPECT_LT(t.arena + t.scratch, logits / 2) << dtype::name_of(activation);
          EXPECT_LE(head_block_rows(kSequences * kLength, kVocabulary, activation, kLeastLogits),
                    kSequences * kLength / 4);
        }
}

TEST(DecoderMemory, BlocksOfLogitsAreAboutEqualAndFit) {
  const auto rows = [](std::int64_t m, std::int64_t v, std::int64_t bytes, DType type = DType::bf16) {
    return head_block_rows(m, v, type, bytes);
  };
  EXPECT_EQ(rows(8192, 131072, kLeastLogits), 256) << "32 blocks";
  EXPECT_EQ(rows(8192, 131072, kMostLogits), 4096) << "2 blocks of 1 GiB";
  EXPECT_EQ(rows(8192, 128256, kMostLogits), 4096) << "4186 rows fit";
  EXPECT_EQ(rows(8192, 128256, kMostLogits / 2), 2048) << "2093 rows fit";
  EXPECT_EQ(rows(8192, 128256, kMostLogits, DType::f32), 2048);
  EXPECT_EQ(rows(4096, 128256, kMostLogits), 4096) << "all at once";
  EXPECT_EQ(rows(3000, 131072, kLeastLogits), 256);
  EXPECT_EQ(rows(1000, 524288, kLeastLogits), 64) << "fewer than 256 rows fit";
  EXPECT_EQ(rows(1000, std::int64_t{1} << 40, kLeastLogits), 16) << "not even 16 fit";
  for (std::int64_t m : {1, 15, 256, 1000, 8191, 8192, 100000})
    for (std::int64_t v : {256, 50304, 128256, 151936})
      for (std::int64_t bytes = kLeastLogits; bytes <= kMostLogits; bytes *= 2)
        EXPECT_LE(std::min(m, rows(m, v, bytes)) * v * 2, bytes) << m << " " << v << " " << bytes;
}

TEST(DecoderMemory, HasABlockOfLogitsOfTheWantedSize) {
  const hf::ModelConfig config = small_with(50304);
  const auto arena = [&](std::int64_t bytes) {
    return taken(config, 4, 1024, DType::bf16, Recompute::full, true, gemm::HostBf16::detect, bytes).arena;
  };
  EXPECT_GE(arena(4 * kLeastLogits), arena(kLeastLogits) + 2 * kLeastLogits);
}

TEST(DecoderMemory, GrowsWithTheLengthNotItsSquare) {
  const hf::ModelConfig config = small_with(64);
  for (const DType activation : kActivations)
    for (const Recompute recompute : kRecompute)
      for (const bool backward : {false, true}) {
        const auto at = [&](std::int64_t length) { return taken(config, 1, length, activation, recompute, backward); };
        const Taken p1 = at(2048), p2 = at(4096), p4 = at(8192);
        EXPECT_NEAR(static_cast<double>(p4.arena - p2.arena) / static_cast<double>(p2.arena - p1.arena), 2.0, 0.01)
            << dtype::name_of(activation);
        EXPECT_LE(p4.scratch, 2 * p2.scratch);
        EXPECT_LT(p4.arena + p4.scratch, 8192u * 8192u) << "one byte per pair of tokens";
      }
}

TEST(DecoderMemory, RecomputingAllocatesLess) {
  hf::ModelConfig config = small_with(64);
  config.num_hidden_layers = 8;
  for (const DType activation : kActivations) {
    const auto at = [&](Recompute recompute) { return taken(config, 2, 256, activation, recompute, true).arena; };
    EXPECT_LT(at(Recompute::selective), at(Recompute::none));
    EXPECT_LT(at(Recompute::full), at(Recompute::selective) / 2);
  }
}

// Memory added by each layer, computed from the saved activations listed in the manual: C hidden, F feed-forward, W =
// (H + 2G) D, H D elements per token.
TEST(DecoderMemory, RecomputingSavesTheDocumentedMemory) {
  hf::ModelConfig config = small_with(64);
  config.qk_norm = false;
  constexpr std::int64_t kSequences = 2, kLength = 256;
  for (const DType activation : kActivations) {
    const auto arena = [&](Recompute recompute, std::int64_t layers) {
      config.num_hidden_layers = layers;
      return taken(config, kSequences, kLength, activation, recompute, true).arena;
    };
    const auto each_layer = [&](Recompute recompute) {
      return static_cast<double>(arena(recompute, 12) - arena(recompute, 8)) / 4 / (kSequences * kLength);
    };
    const auto size = static_cast<double>(dtype::size_of(activation));
    const std::int64_t c = config.hidden_size, f = config.intermediate_size, hd = config.query_size();
    const std::int64_t w = hd + 2 * config.key_value_size();
    const double statistics = 4.0 * static_cast<double>(2 + config.num_attention_heads);
    const double input = size * static_cast<double>(c), again = size * static_cast<double>(2 * c + f);
    const double kept = size * static_cast<double>(w + hd + c + 2 * f) + statistics;
    EXPECT_NEAR(each_layer(Recompute::none), input + kept + again, 1);
    EXPECT_NEAR(each_layer(Recompute::selective), input + kept, 1);
    EXPECT_NEAR(each_layer(Recompute::full), input, 1);
  }
}

// Codes are two bytes an element on the host. They have one scale and its reciprocal, in blocks of 256 bytes, for each
// of n1, n2 and h.
TEST(DecoderMemory, CodesTakeThePlaceOfTheInputsOfLinears) {
  hf::ModelConfig config = small_with(64);
  constexpr std::int64_t kSequences = 2, kLength = 256;
  for (const Recompute recompute : kRecompute) {
    const auto each_layer = [&](const quant::Recipe* recipe) {
      std::array<std::size_t, 2> arena{};
      for (const std::int64_t more : {0, 4}) {
        config.num_hidden_layers = 8 + more;
        arena.at(more / 4) = taken(config, kSequences, kLength, DType::f32, recompute, true, gemm::HostBf16::detect,
                                   kLeastLogits, recipe)
                                 .arena;
      }
      return (arena[1] - arena[0]) / 4;
    };
    const std::int64_t inputs = kSequences * kLength * (2 * config.hidden_size + config.intermediate_size);
    const std::int64_t saved = recompute == Recompute::none ? 2 * inputs - 6 * 256 : 0;
    EXPECT_EQ(each_layer(nullptr) - each_layer(&quant::find_recipe("tensorwise")), static_cast<std::size_t>(saved));
    EXPECT_EQ(each_layer(nullptr), each_layer(&quant::find_recipe("rowwise_with_gw_hp"))) << "wgrad reads the inputs";
  }
}

TEST(DecoderMemory, DryRunAllocatesWhatTheRunAllocates) {
  gemm::Engine engine;
  const hf::ModelConfig config = small_with(64);
  const auto table = parameter_table(config);
  reference::Text text = reference::some_text(2, 16, config.vocab_size, 1);
  for (const DType activation : kActivations)
    for (const Recompute recompute : kRecompute)
      for (const std::string name : {"none", "tensorwise", "blockwise", "rowwise_with_gw_hp"}) {
        const quant::Recipe* recipe = name == "none" ? nullptr : &quant::find_recipe(name);
        const linear::LinearPrecision precision{recipe, {recipe != nullptr && recipe->power_of_2, nullptr}};
        const Decoder decoder(config, {activation, recompute});
        const Tensor losses(DType::f32, {32});
        device::Arena dry;
        Context ctx;
        ctx.arena = &dry;
        ctx.dry = true;
        MemorySource source(config, table, reference::some_weights(table), activation, precision);
        reference::train(decoder, ctx, engine, source, text.batch(), 1, losses.view());
        EXPECT_EQ(losses.as<float>()[0], 0.0f) << "a dry run computes nothing";
        device::Arena real(dry.peak(), device::DeviceType::host);
        ctx.arena = &real;
        ctx.dry = false;
        reference::train(decoder, ctx, engine, source, text.batch(), 1, losses.view());
        EXPECT_EQ(real.peak(), dry.peak());
        EXPECT_GT(losses.as<float>()[0], 0.0f);
      }
}

}  // namespace
}  // namespace fp8::model
