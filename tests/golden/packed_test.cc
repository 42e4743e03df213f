// Packed documents against documents alone, tests/golden/chat/packed-loss.h5: token files, samples, attention and
// gradients. Bounds are those of the README beside it.
#include <numeric>

#include "fp8/data/sampler.h"
#include "models.h"

namespace fp8::golden {
namespace {

constexpr std::int64_t kPacked = 120;  // tokens of the packed sequence

// Documents of the reference and their losses alone.
struct Reference {
  test::PlainFile file{"tests/golden/chat/packed-loss.h5"};
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::vector<std::uint8_t>> mask;
  std::vector<Values> token_loss;  // losses of all tokens but the first of a document

  Reference() {
    for (int k = 0; file.find("documents/" + std::to_string(k) + "/tokens") != nullptr; ++k) {
      const std::string document = "documents/" + std::to_string(k);
      tokens.push_back(file.read_as<std::int32_t>(document + "/tokens"));
      mask.push_back(file.read_as<std::uint8_t>(document + "/mask"));
      token_loss.push_back(values(file, document + "/token_loss"));
    }
  }
  std::int64_t longest() const {
    std::size_t n = 0;
    for (const auto& t : tokens) n = std::max(n, t.size());
    return static_cast<std::int64_t>(n);
  }
  // Targets that count.
  double targets() const {
    double n = 0;
    for (const auto& m : mask) n += std::accumulate(m.begin() + 1, m.end(), 0.0);
    return n;
  }
};

// Samples of a token file with the documents of the reference, in one packed sequence or one each.
struct Samples {
  std::vector<std::int32_t> inputs, targets, starts;
  std::int64_t sequences = 0, length = 0, pairs = 0;
  data::DocumentBounds bounds;

  // `all`: every token counts as a target.
  Samples(const Reference& reference, bool packed, bool all) : length(packed ? kPacked : reference.longest()) {
    const TemporaryFolder folder;
    data::TokenInfo info;
    info.vocab_size = 256;
    info.mask = true;
    if (packed) info.sequence_length = kPacked;
    data::TokenWriter writer(folder.at("t.h5"), info, false);
    std::vector<std::uint32_t> padding(kPacked);
    for (std::size_t k = 0; k < reference.tokens.size(); ++k) {
      const std::vector<std::uint32_t> ids(reference.tokens[k].begin(), reference.tokens[k].end());
      writer.append(ids, all ? std::vector<std::uint8_t>(ids.size(), 1) : reference.mask[k]);
      writer.end_document();
      padding.resize(padding.size() - ids.size());
    }
    if (packed) writer.append(padding, std::vector<std::uint8_t>(padding.size()));
    writer.finish();
    const data::TokenFile file(folder.at("t.h5"));
    const data::Sampler sampler(file, data::SamplerKind::sequential, 0, length,
                                packed ? 1 : static_cast<std::int64_t>(reference.tokens.size()),
                                data::DocumentMode::automatic);
    sequences = sampler.samples();
    inputs.resize(static_cast<std::size_t>(sequences * length));
    targets.resize(inputs.size()), starts.resize(inputs.size());
    pairs = sampler.batch(0, 0, sequences, inputs, targets, starts);
    bounds = sampler.bounds(sequences);
  }
  model::Batch batch(bool separate = true) {
    model::Batch batch = batch_of(inputs, targets, sequences, length);
    if (separate)
      batch.documents = {tensor::make_view(starts.data(), DType::i32, device::DeviceType::host, {sequences, length}),
                         bounds.count, bounds.longest, pairs};
    return batch;
  }
  // The losses of each document's tokens but its first.
  std::vector<Values> by_document(const Values& losses, const Reference& reference) const {
    std::vector<Values> found;
    std::size_t first = 0;
    for (const auto& tokens : reference.tokens) {
      const auto from = losses.begin() + static_cast<std::ptrdiff_t>(first);
      found.emplace_back(from, from + static_cast<std::ptrdiff_t>(tokens.size()) - 1);
      first += sequences == 1 ? tokens.size() : static_cast<std::size_t>(length);
    }
    return found;
  }
};

double largest_of_documents(const std::vector<Values>& a, const std::vector<Values>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < b.size(); ++i) largest = std::fmax(largest, golden::largest_difference(a.at(i), b[i]));
  return largest;
}

double sum_of(const Values& losses) { return std::accumulate(losses.begin(), losses.end(), 0.0); }

TEST(Packed, LossesOfTokensAreThoseOfDocumentsAlone) {
  const Reference reference;
  ASSERT_EQ(reference.tokens.size(), 3U);
  Model model(model_folder("llama3"), DType::f32);
  for (const bool packed : {true, false}) {
    SCOPED_TRACE(packed ? "packed" : "one each");
    Samples samples(reference, packed, true);
    const Values losses = model.forward_backward(samples.batch(), 1);
    EXPECT_LE(largest_of_documents(samples.by_document(losses, reference), reference.token_loss), 1e-5);
    double every = 0, count = 0;
    for (const Values& v : reference.token_loss) every += sum_of(v), count += static_cast<double>(v.size());
    EXPECT_NEAR(sum_of(losses), every, 1e-6 * count) << "nothing else has a loss";
  }
  Samples packed(reference, true, true);
  const Values joined = model.forward_backward(packed.batch(false), 1);
  EXPECT_GT(largest_of_documents(packed.by_document(joined, reference), reference.token_loss), 1) << "across documents";
}

TEST(Packed, LossAndGradientsAreThoseOfDocumentsAlone) {
  const Reference reference;
  Model model(model_folder("llama3"), DType::f32);
  for (const bool packed : {true, false}) {
    SCOPED_TRACE(packed ? "packed" : "one each");
    Samples samples(reference, packed, false);
    const double loss = sum_of(model.forward_backward(samples.batch(), 1 / reference.targets())) / reference.targets();
    EXPECT_NEAR(loss, values(reference.file, "loss").at(0), 1e-6);
    for (const shard::ParameterShard& own : model.store().shards()) {
      const std::string& name = model.store().table()[static_cast<std::size_t>(own.number)].name;
      EXPECT_LE(relative_l2(values(own.gradient), values(reference.file, kGradients + name)), 2e-5) << name;
    }
    const double norm = values(reference.file, "grad_norm").at(0);
    EXPECT_NEAR(model.gradient_norm(), norm, 2e-5 * norm);
  }
}

// With scales per token, documents do not change each other's FP8 codes, but for values on the border of two codes:
// sums of attention are rounded differently in other tiles. Gradients of weights are sums over tokens, whose scales
// rowwise shares among documents, and rowwise_with_gw_hp has none.
TEST(Packed, Fp8WithScalesPerTokenIsThatOfDocumentsAlone) {
  const Reference reference;
  for (const char* name : {"rowwise", "rowwise_with_gw_hp"}) {
    SCOPED_TRACE(name);
    Samples packed(reference, true, true), alone(reference, false, true);
    Model one(model_folder("llama3"), DType::f32, &quant::find_recipe(name));
    Model other(model_folder("llama3"), DType::f32, &quant::find_recipe(name));
    const auto a = packed.by_document(one.forward_backward(packed.batch(), 0.01), reference);
    const auto b = alone.by_document(other.forward_backward(alone.batch(), 0.01), reference);
    EXPECT_LE(largest_of_documents(a, b), 1e-5);
    EXPECT_GT(largest_of_documents(a, reference.token_loss), 2e-2) << "FP8 ran";
    if (std::string_view(name) != "rowwise_with_gw_hp") continue;
    for (std::size_t i = 0; i < one.store().shards().size(); ++i) {
      const shard::ParameterShard& own = one.store().shards()[i];
      EXPECT_LE(relative_l2(values(own.gradient), values(other.store().shards()[i].gradient)), 2e-5)
          << one.store().table()[static_cast<std::size_t>(own.number)].name;
    }
  }
}

TEST(Packed, CountsAttentionByDocument) {
  const Reference reference;
  Samples packed(reference, true, true);
  const auto flops = [&](bool separate) {
    Model model(model_folder("llama3"), DType::f32);
    (void)model.forward_backward(packed.batch(separate), 1);
    return model.engine()
        .counts()
        .by[static_cast<std::size_t>(gemm::GemmRole::other)][static_cast<std::size_t>(gemm::OperandKind::f32)]
        .flops;
  };
  std::int64_t pairs = 0;
  std::size_t used = 0;
  for (const auto& tokens : reference.tokens) {
    pairs += static_cast<std::int64_t>(tokens.size() * (tokens.size() + 1) / 2);
    used += tokens.size();
  }
  pairs += static_cast<std::int64_t>((kPacked - used) * (kPacked - used + 1) / 2);
  EXPECT_DOUBLE_EQ(flops(true) / flops(false), static_cast<double>(pairs) / (kPacked * (kPacked + 1) / 2.0));
}

}  // namespace
}  // namespace fp8::golden
