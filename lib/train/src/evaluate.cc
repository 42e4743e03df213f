// An evaluation by itself: weights alone, forward passes over all samples in file order.
#include <algorithm>

#include "checks.h"
#include "device_setup.h"
#include "fp8/data/tokens.h"
#include "fp8/json/json.h"
#include "fp8/model/record.h"
#include "records.h"

namespace fp8::train {
namespace {

// This rank's sequence records of one round, one a line.
std::string sequence_records(std::int64_t first, std::int64_t count, std::int64_t length, const float* losses) {
  std::string lines;
  for (std::int64_t i = 0; i < count; ++i) {
    json::Array values(losses + i * length, losses + (i + 1) * length);
    lines +=
        json::dump(json::object({{"type", "sequence"}, {"index", first + i}, {"losses", std::move(values)}})) + "\n";
  }
  return lines;
}

void emit_lines(Journal& journal, const std::string& lines) {
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = lines.find('\n', begin);
    journal.emit(json::parse(std::string_view(lines).substr(begin, end - begin), "a rank's record"));
    begin = end + 1;
  }
}

// Everything checked, nothing taken yet.
struct Setup {
  hf::ModelConfig model;
  std::vector<model::Parameter> table;
  std::int64_t length = 0;
  std::string note;  // for people; may be empty
};

Setup prepare(const EvalConfig& config, const ckpt::Checkpoint& checkpoint, const data::TokenFile& tokens) {
  Setup s{config_of(checkpoint, "scored"), {}, 0, {}};
  s.length = resolved_length(config.seq_length, s.model);
  check_micro_batch(config.batch_size, s.length);
  s.table = active_table(table_with_precisions(s.model, config.precision, checkpoint, checkpoint), config.precision);
  check_vocabulary(tokens, s.model);
  s.note = check_tokenizer(tokens, checkpoint, tokenizer_of(checkpoint, config.any_tokenizer), config.any_tokenizer);
  return s;
}

}  // namespace

void evaluate(const EvalConfig& config, comm::Communicator& world, const Hooks& hooks) {
  Journal journal(hooks, world);
  std::optional<data::TokenFile> tokens;
  std::optional<ckpt::Checkpoint> checkpoint;
  std::optional<data::Sampler> sampler;
  Setup setup;
  json::Value shared;
  comm::agree(world, [&] {
    tokens.emplace(config.data);
    check_precision(config.precision);
    checkpoint.emplace(model::open_checkpoint(config.model));
    setup = prepare(config, *checkpoint, *tokens);
    sampler.emplace(*tokens, data::SamplerKind::sequential, 0, setup.length, 1);
    shared = json::object({{"model", checkpoint->digest()}, {"data", tokens->digest()}});
  });
  check_same_on_all_ranks(world, shared);
  if (!setup.note.empty()) journal.note(setup.note);
  const DeviceSetup work(config.device, config.precision, world);
  StoreOptions options = store_options(config.precision, nullptr);
  options.training = false;
  const std::int64_t batch = std::min(config.batch_size, sampler->samples());
  const model::DecoderOptions decoder_options{config.precision.activations, model::Recompute::none};
  std::optional<device::Arena> arena;
  std::optional<ParameterStore> store;
  Context ctx = work.context();
  comm::agree(world, [&] {
    arena = plan_memory(work.context(), work.group(), setup.model, setup.table, options, decoder_options, batch,
                        setup.length)
                .allocate(work.type());
    ctx.arena = &*arena;
    store.emplace(ctx, work.group(), setup.model, setup.table, options);
  });
  if (const auto damage = load(ctx, world, *checkpoint, *store, false)) throw comm::AgreedError(*damage);
  store->refresh_compute_weights(ctx);
  gemm::Engine engine;
  const model::Decoder decoder(setup.model, decoder_options);
  EachSamples each;
  if (config.per_token) {
    each = [&](std::int64_t first, std::int64_t count, const float* losses) {
      for (const std::string& lines : world.all_gather(sequence_records(first, count, setup.length, losses)))
        emit_lines(journal, lines);
      hooks.progress(std::to_string(first + count) + "/" + std::to_string(sampler->samples()) + " sequences");
    };
  }
  const LossSum sum = evaluate_samples(ctx, world, engine, decoder, *store, *sampler, sampler->samples(), batch,
                                       setup.length, planned_forward(setup.model, setup.table, config.precision), each);
  if (sum.targets == 0) throw comm::AgreedError(config.data + ": no token of it counts as a target, so it has no loss");
  journal.emit(eval_record(-1, sum, config.precision, work.type()));
  journal.rethrow();
}

}  // namespace fp8::train
