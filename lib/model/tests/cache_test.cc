// Decoder::extend() against the double-precision reference, for every division of a text into calls.
#include "fp8/model/cache.h"

#include <gtest/gtest.h>

#include "decoder_reference.h"
#include "fp8_test.h"

namespace fp8::model {
namespace {

using dtype::DType;
using tensor::Tensor;

hf::ModelConfig with_everything() {
  hf::ModelConfig c = reference::small_config();
  c.head_dim = 6;
  c.rope = {hf::RopeType::llama3, 100, 8, 1, 4, 16};
  c.attention_bias_qkv = c.attention_bias_o = c.mlp_bias = c.qk_norm = true;
  return c;
}

// A text that grows.
class Growing {
 public:
  Growing(const hf::ModelConfig& config, DType activation, std::int64_t capacity)
      : config_(config),
        table_(parameter_table(config)),
        source_(config, table_, reference::some_weights(table_), activation),
        decoder_(config, {activation, Recompute::none}),
        cache_(context(), config, activation, capacity) {}

  // Logits of the last `wanted` of `count` tokens that follow.
  std::vector<float> extend(reference::Text& text, std::int64_t count, std::int64_t wanted) {
    const std::int64_t first = cache_.length();
    const View tokens = tensor::make_view(text.tokens.data() + first, DType::i32, device::DeviceType::host, {count});
    const Tensor logits(DType::f32, {std::max<std::int64_t>(1, wanted), config_.vocab_size});
    decoder_.extend(context(), engine_, source_, tokens, cache_, wanted > 0 ? logits.view() : View{});
    EXPECT_EQ(cache_.length(), first + count);
    return {logits.as<float>(), logits.as<float>() + wanted * config_.vocab_size};
  }
  KeyValueCache& cache() { return cache_; }
  const std::vector<Parameter>& table() const { return table_; }

 private:
  Context context() { return {.arena = &arena_}; }
  hf::ModelConfig config_;
  std::vector<Parameter> table_;
  device::Arena arena_{std::size_t{4} << 20, device::DeviceType::host};
  gemm::Engine engine_{gemm::HostBf16::detect, gemm::HostSums::fixed};
  reference::MemorySource source_;
  Decoder decoder_;
  KeyValueCache cache_;
};

TEST(KeyValueCache, LogitsAreThoseOfWholeTexts) {
  hf::ModelConfig tied = with_everything();
  tied.tie_word_embeddings = true;
  for (const hf::ModelConfig& config : {with_everything(), tied}) {
    reference::Text text = reference::some_text(1, 11, config.vocab_size, 1);
    for (const DType type : {DType::f32, DType::bf16}) {
      Growing whole(config, type, 11);
      const std::vector<float> all = whole.extend(text, 11, 11);
      const reference::Values expected =
          reference::ReferenceDecoder(config, reference::some_weights(whole.table())).logits(text);
      for (std::size_t i = 0; i < all.size(); ++i)
        ASSERT_NEAR(all[i], expected[i], type == DType::f32 ? 1e-5 : 0.15) << "logit " << i;
      for (const std::int64_t each : {1, 2, 5}) {
        Growing parts(config, type, 20);
        std::vector<float> joined;
        for (std::int64_t at = 0; at < 11; at += each) {
          const std::vector<float> more = parts.extend(text, std::min(each, 11 - at), std::min(each, 11 - at));
          joined.insert(joined.end(), more.begin(), more.end());
        }
        EXPECT_EQ(joined, all) << each << " tokens at a time, the same bits";
      }
    }
  }
}

TEST(KeyValueCache, ATextMayGoOnFromAnyToken) {
  const hf::ModelConfig config = with_everything();
  reference::Text text = reference::some_text(1, 9, config.vocab_size, 2),
                  other = reference::some_text(1, 9, config.vocab_size, 3);
  Growing growing(config, DType::f32, 9);
  const std::vector<float> last = growing.extend(text, 9, 1);
  std::copy(text.tokens.begin(), text.tokens.begin() + 4, other.tokens.begin());
  growing.cache().truncate(4);
  EXPECT_TRUE(growing.extend(other, 5, 0).empty());
  growing.cache().truncate(4);
  EXPECT_EQ(growing.extend(text, 5, 1), last);
  EXPECT_NE(fp8::test::error_of([&] { growing.extend(text, 1, 1); }).find("at most 9"), std::string::npos);
}

}  // namespace
}  // namespace fp8::model
