// The decoder's whole passes, from their parts, and what it plans.
#include "fp8/model/decoder.h"

#include <algorithm>
#include <string>

#include "fp8/base/error.h"
#include "fp8/base/round.h"
#include "fp8/ops/norm.h"
#include "micro_batch.h"

namespace fp8::model {

using dtype::DType;

std::string full_name(const Operation& operation, int layers) {
  std::string name(operation.name);
  if (operation.unit > layers && name != "norm") return name;
  return "model." +
         (operation.unit >= 1 && operation.unit <= layers ? "layers." + std::to_string(operation.unit - 1) + "."
                                                          : std::string()) +
         name;
}

namespace {

// The input [M, C] of a layer, or of the head, in the inputs [L + 1, M, C] of all.
View input_of(const View& inputs, int layer) {
  return inputs.rows(layer, layer + 1).reshaped({inputs.shape[1], inputs.shape[2]});
}

}  // namespace

void Decoder::forward(const Context& ctx, gemm::Engine& engine, ParameterAccess& weights, const Batch& batch,
                      const View& losses) const {
  MicroBatch m(*this, ctx, engine, weights, batch, PassKind::inference);
  m.forward_embedding();
  m.forward_layers(0, layers());
  m.forward_head(losses);
}

void Decoder::forward_and_store_inputs(const Context& ctx, gemm::Engine& engine, ParameterAccess& weights,
                                       const Batch& batch, const View& inputs, const View& losses) const {
  MicroBatch m(*this, ctx, engine, weights, batch, PassKind::inference);
  const auto store = [&](const View& hidden, const View& all) { weights.tensor().gather(ctx, hidden, all); };
  m.forward_embedding();
  for (int layer = 0; layer < layers(); ++layer) {
    store(m.hidden(), input_of(inputs, layer));
    m.forward_layers(layer, layer + 1);
  }
  store(m.hidden(), input_of(inputs, layers()));
  m.forward_head(losses);
}

void Decoder::forward_from(const Context& ctx, gemm::Engine& engine, ParameterAccess& weights, const Batch& batch,
                           int first, const View& input, const View& losses) const {
  MicroBatch m(*this, ctx, engine, weights, batch, PassKind::inference);
  const DividedRows& rows = m.state_->env.rows;
  ops::copy(ctx, input.rows(rows.first_own(), rows.first_own() + rows.own()), m.hidden());
  m.forward_layers(first, layers());
  m.forward_head(losses);
}

void Decoder::extend(const Context& ctx, gemm::Engine& engine, ParameterAccess& weights, const View& tokens,
                     KeyValueCache& cache, const View& logits) const {
  const std::int64_t count = tokens.size(), first = cache.length(), wanted = logits.empty() ? 0 : logits.shape[0];
  if (count < 1 || count > cache.capacity() - first)
    throw Error("generation: " + std::to_string(first) + " tokens and " + std::to_string(count) + " more, of at most " +
                std::to_string(cache.capacity()));
  auto state = std::make_unique<MicroBatch::State>(*this, ctx, engine, weights, Batch{tokens, {}, 1, count},
                                                   PassKind::inference);
  state->env.first = first;
  state->env.cos = cache.cos_.rows(first, first + count);
  state->env.sin = cache.sin_.rows(first, first + count);
  state->caches = cache.layers_;
  state->allocate_hidden();
  MicroBatch m(std::move(state));
  m.forward_embedding();
  m.forward_layers(0, layers());
  cache.length_ = first + count;
  if (wanted > 0) m.forward_logits(count - wanted, logits);
}

std::int64_t head_block_rows(std::int64_t rows, std::int64_t vocabulary, DType activation, std::int64_t logit_bytes) {
  const std::int64_t fit = logit_bytes / (vocabulary * static_cast<std::int64_t>(dtype::size_of(activation)));
  const std::int64_t grain = fit < 256 ? 16 : 256, most = std::max<std::int64_t>(16, fit / grain * grain);
  const std::int64_t blocks = divide_up(rows, most);
  return blocks <= 1 ? rows : round_up(divide_up(rows, blocks), grain);
}

namespace {

// Adds the FP8 GEMMs of a linear over m rows, as a layer alone with the GEMMs that it has. A fused linear has
// its GEMMs counted with the first of its slot.
void add_planned(gemm::Count& total, const Parameter& p, const quant::Recipe& of_model, std::int64_t m, bool backward) {
  const linear::Part part{0, p.rows(), true, {p.gemms.forward, p.gemms.dgrad, p.gemms.wgrad && p.trainable}};
  const quant::Recipe& recipe = p.recipe != nullptr ? *p.recipe : of_model;
  const gemm::Count c = linear::planned_fp8({part}, p.cols(), recipe, m, backward);
  total.gemms += p.fused ? 0 : c.gemms;
  total.flops += c.flops;
}

}  // namespace

gemm::Count planned_fp8(const hf::ModelConfig& config, const std::vector<Parameter>& table,
                        const quant::Recipe& of_model, std::int64_t rows, const Execution& execution, bool backward) {
  gemm::Count total;
  const std::int64_t block = head_block_rows(rows, config.vocab_size, execution.activation, execution.logit_bytes);
  for (const Parameter& p : table) {
    if (!p.fp8 || p.expert >= 0) continue;
    const std::int64_t step = p.role == ParameterRole::head ? block : rows;
    for (std::int64_t begin = 0; begin < rows; begin += step)
      add_planned(total, p, of_model, std::min(step, rows - begin), backward);
    if (backward && execution.recompute == Recompute::full && p.slot != Slot::down && p.role != ParameterRole::head)
      add_planned(total, p, of_model, rows, false);
  }
  return total;
}

gemm::Count planned_experts_fp8(const std::vector<Parameter>& table, const quant::Recipe& of_model, int layer,
                                std::int64_t first_expert, std::span<const std::int64_t> first,
                                const Execution& execution, bool backward) {
  gemm::Count total;
  for (const Parameter& p : std::ranges::equal_range(table, layer + 1, {}, &Parameter::unit)) {
    if (!p.fp8 || p.expert < first_expert || p.expert >= first_expert + std::ssize(first) - 1) continue;
    const auto expert = static_cast<std::size_t>(p.expert - first_expert);
    const std::int64_t rows = first[expert + 1] - first[expert];
    if (rows == 0) continue;
    add_planned(total, p, of_model, rows, backward);
    if (backward && execution.recompute == Recompute::full) add_planned(total, p, of_model, rows, false);
  }
  return total;
}

}  // namespace fp8::model
