// Generated tokens of the reference models: each is the argmax of the logits that a pass over the whole text gives,
// which models_test.cc compares with transformers.
#include <algorithm>

#include "fp8/convert/convert.h"
#include "fp8/generate/generator.h"
#include "models.h"

namespace fp8::golden {
namespace {

constexpr std::int64_t kPrompt = 16, kNew = 80;

// A model as a checkpoint.
convert::OpenModel opened(const TemporaryFolder& temporary, const std::string& name) {
  const std::string path = temporary.at(name + ".h5");
  (void)convert::convert(model_folder(name), path, {});
  return convert::open_model(path);
}

TEST(Generate, GreedyTokensAreThoseOfWholePasses) {
  const TemporaryFolder temporary;
  for (const std::string& name : kModels) {
    SCOPED_TRACE(name);
    const test::PlainFile expected("tests/golden/models/" + name + "/expected.h5");
    const auto tokens = expected.read_as<std::int32_t>("tokens");
    generate::Generator generator(opened(temporary, name), {DType::f32, nullptr});
    generate::Sampler sampler({.temperature = 0});
    const generate::Ids prompt(tokens.begin(), tokens.begin() + kPrompt);
    const generate::Generated made = generator.run(prompt, {.max_tokens = kNew}, nullptr, sampler, [](const auto&) {});
    ASSERT_EQ(made.ids.size(), static_cast<std::size_t>(kNew));

    std::vector<std::int32_t> text(tokens.begin(), tokens.begin() + kPrompt);
    text.insert(text.end(), made.ids.begin(), made.ids.end());
    std::vector<std::int32_t> targets(text.size(), kIgnoredTarget);
    Model whole(model_folder(name), DType::f32);
    const Values logits = whole.logits(batch_of(text, targets, 1, static_cast<std::int64_t>(text.size())));
    const auto vocabulary = whole.config().vocab_size;
    for (std::int64_t i = 0; i < kNew; ++i) {
      const auto row = logits.begin() + (kPrompt + i - 1) * vocabulary;
      EXPECT_EQ(std::max_element(row, row + vocabulary) - row, made.ids[static_cast<std::size_t>(i)]) << "token " << i;
    }
  }
}

TEST(Generate, LogProbabilitiesAreThoseOfTheReference) {
  const TemporaryFolder temporary;
  for (const std::string& name : kModels) {
    SCOPED_TRACE(name);
    const test::PlainFile expected("tests/golden/models/" + name + "/expected.h5");
    const auto tokens = expected.read_as<std::int32_t>("tokens");
    const auto length = expected.at("tokens").shape.at(1);
    const Values logits = values(expected, "logits");
    generate::Generator generator(opened(temporary, name), {DType::f32, nullptr});
    generate::Sampler sampler({.temperature = 0});
    for (const std::int64_t end : {std::int64_t{1}, std::int64_t{7}, length}) {
      const std::int64_t vocabulary = static_cast<std::int64_t>(logits.size()) / (2 * length);
      const auto row = logits.begin() + (end - 1) * vocabulary;
      double sum = 0;
      for (auto at = row; at != row + vocabulary; ++at) sum += std::exp(*at);
      const generate::Ids prompt(tokens.begin(), tokens.begin() + end);
      generator.run(prompt, {.max_tokens = 1, .log_probabilities = true}, nullptr, sampler, [&](const auto& token) {
        EXPECT_NEAR(*token.log_probability, row[token.id] - std::log(sum), 5e-5);
        EXPECT_EQ(std::max_element(row, row + vocabulary) - row, token.id);
      });
    }
  }
}

}  // namespace
}  // namespace fp8::golden
