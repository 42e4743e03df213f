// A model in one arena, and the text of a prompt in another, whose size a dry run measures.
#include "fp8/generate/generator.h"

#include <algorithm>
#include <array>

#include "fp8/base/clock.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/generate/text_stream.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"

namespace fp8::generate {
namespace {

using device::Context;
using dtype::DType;
using tensor::View;

// Tokens of a prompt per pass: enough to read weights rarely, few enough for their activations to stay in the cache.
constexpr std::int64_t kPiece = 64;

linear::LinearPrecision linear_precision(const Precision& precision) {
  if (precision.recipe == nullptr) return {};
  return {precision.recipe, {.power_of_2 = precision.recipe->power_of_2}, gemm::Accumulation::f32};
}

View on_host(std::span<std::int32_t> values) {
  return tensor::make_view(values.data(), DType::i32, device::DeviceType::host,
                           {static_cast<std::int64_t>(values.size())});
}

}  // namespace

std::string_view name_of(End end) {
  constexpr std::array<std::string_view, 4> kNames{"end_token", "stop", "max_tokens", "context"};
  return kNames[static_cast<std::size_t>(end)];
}

std::int64_t context_of(const hf::ModelConfig& config) {
  return std::min(config.max_position_embeddings, config.sliding_window.value_or(config.max_position_embeddings));
}

void check_prompt(const Ids& prompt, const hf::ModelConfig& config) {
  if (prompt.empty()) throw Error("no tokens");
  const auto length = static_cast<std::int64_t>(prompt.size()), context = context_of(config);
  if (length >= context)
    throw Error(std::to_string(length) + " tokens leave no room in the model's context of " + std::to_string(context));
  const auto beyond = std::ranges::find_if(prompt, [&](std::uint32_t id) { return id >= config.vocab_size; });
  if (beyond != prompt.end())
    throw Error("token " + std::to_string(*beyond) + " is not in the model's vocabulary of " +
                std::to_string(config.vocab_size));
}

namespace {

// The memory of one text: cache, logits, and what a pass needs.
struct Text {
  device::Arena arena;
  Context ctx;
  model::KeyValueCache cache;
  View logits, rounded, loss;  // rounded: the logits in the type in which the model computes

  Text(const hf::ModelConfig& config, DType compute, std::int64_t capacity, device::Arena memory)
      : arena(std::move(memory)),
        ctx{.arena = &arena, .dry = arena.dry()},
        cache(ctx, config, compute, capacity),
        logits(tensor::allocate(ctx, DType::f32, {1, config.vocab_size}, "logits")),
        rounded(compute == DType::f32 ? logits : tensor::allocate(ctx, compute, {1, config.vocab_size}, "logits")),
        loss(tensor::allocate(ctx, DType::f32, {1}, "logits")) {}
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  std::span<const float> values() const { return {logits.as<float>(), static_cast<std::size_t>(logits.size())}; }
};

}  // namespace

struct Generator::State {
  hf::ModelConfig config;
  DType compute;
  device::Arena arena;
  Context ctx;
  gemm::Engine engine{gemm::HostBf16::detect, gemm::HostSums::fixed};
  model::Decoder decoder;
  ResidentWeights weights;
  std::optional<Text> text;

  State(const convert::OpenModel& model, const Precision& precision, device::Arena memory)
      : config(model.config),
        compute(precision.compute),
        arena(std::move(memory)),
        ctx{.arena = &arena, .dry = arena.dry()},
        decoder(model.config, {precision.compute, model::Recompute::none}),
        weights(ctx, model, precision.compute, linear_precision(precision)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Appends tokens to the text, and computes the logits of the last one.
  void extend(Text& t, std::span<std::int32_t> tokens) {
    for (std::size_t at = 0; at < tokens.size(); at += kPiece) {
      const std::size_t count = std::min<std::size_t>(kPiece, tokens.size() - at);
      const bool last = at + count == tokens.size();
      decoder.extend(t.ctx, engine, weights, on_host(tokens.subspan(at, count)), t.cache, last ? t.logits : View{});
    }
  }

  // An empty text with room for `capacity` tokens. Memory is kept between texts and grows by doubling.
  Text& prepare(std::int64_t capacity) {
    if (!text || text->cache.capacity() < capacity) {
      const std::int64_t more =
          text ? std::max(capacity, std::min(context_of(config), 2 * text->cache.capacity())) : capacity;
      text.reset();
      Text dry(config, compute, more, device::Arena());
      dry.cache.truncate(more - std::min(more, kPiece));  // the largest pass is at the end
      std::vector<std::int32_t> unread(static_cast<std::size_t>(std::min(more, kPiece)));
      extend(dry, unread);
      text.emplace(config, compute, more, device::Arena(dry.arena.peak(), device::DeviceType::host));
    }
    text->cache.truncate(0);
    return *text;
  }

  // From logits that are rounded as those of the losses of training and evaluation.
  float log_probability(Text& t, std::uint32_t id) {
    auto target = static_cast<std::int32_t>(id);
    if (t.rounded.dtype != t.logits.dtype) ops::copy(t.ctx, t.logits, t.rounded);
    ops::cross_entropy(t.ctx, t.rounded, on_host({&target, 1}), t.loss, 0, false);
    return -*t.loss.as<float>();
  }
};

Generator::Generator(const convert::OpenModel& model, const Precision& precision) {
  std::size_t bytes = 0;
  {
    const State dry(model, precision, device::Arena());
    bytes = dry.arena.peak();
  }
  state_ = std::make_unique<State>(model, precision, device::Arena(bytes, device::DeviceType::host));
  if (precision.recipe != nullptr && state_->weights.fp8_linears() == 0)
    throw Error(model.source.path() + ": no linear of this model can run in FP8 (fp8-info shows why)",
                Exit::fp8_missing, {{"precision", "bf16"}});
}

Generator::~Generator() = default;

double Generator::bytes_read() const { return state_->weights.bytes_read(); }

Generated Generator::run(const Ids& prompt, const Request& request, const Codec* codec, Sampler& sampler,
                         const std::function<void(const NewToken&)>& each) {
  State& s = *state_;
  check_prompt(prompt, s.config);
  const auto length = static_cast<std::int64_t>(prompt.size());
  const std::int64_t room = context_of(s.config) - length, most = std::min(room, request.max_tokens);
  Text& t = s.prepare(length + most);
  std::optional<TextStream> stream;
  if (codec != nullptr) stream.emplace(*codec, prompt, request.stops);
  Generated out;
  out.end = most < request.max_tokens ? End::context : End::max_tokens;
  Clock::time_point start = Clock::now();
  std::vector<std::int32_t> tokens(prompt.begin(), prompt.end());
  for (std::int64_t i = 0; i < most; ++i) {
    s.extend(t, tokens);
    if (i == 0) {
      out.prompt_seconds = seconds_since(start);
      start = Clock::now();
    }
    NewToken token{sampler.choose(t.values(), request.prompt, static_cast<std::uint64_t>(i))};
    tokens = {static_cast<std::int32_t>(token.id)};
    if (request.log_probabilities) token.log_probability = s.log_probability(t, token.id);
    if (stream) token.text = stream->add(token.id);
    out.ids.push_back(token.id);
    const bool stopped = stream && stream->stopped();
    const bool ended =
        !stopped && std::ranges::find(request.end_tokens, std::int64_t{token.id}) != request.end_tokens.end();
    if (stopped) out.end = End::stop;
    if (ended) out.end = End::end_token;
    const bool last = stopped || ended || i + 1 == most;
    if (last && stream) {
      token.text += stream->finish();
      if (stream->stopped()) out.end = End::stop;
    }
    out.text += token.text;
    each(token);
    if (last) break;
  }
  out.token_seconds = seconds_since(start);
  return out;
}

}  // namespace fp8::generate
