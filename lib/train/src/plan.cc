// Dry run of the arena: the same code as the step, nothing computed.
#include "plan.h"

#include <algorithm>

#include "fp8/base/text.h"
#include "records.h"
#include "saver.h"

namespace fp8::train {

MemoryPlan plan_memory(const Context& at, comm::Communicator& world, const hf::Config& config,
                       const std::vector<model::Parameter>& table, const StoreOptions& options,
                       const model::DecoderOptions& decoder_options, std::int64_t sequences, std::int64_t length,
                       bool snapshot) {
  device::Arena arena;
  Context ctx = at.with(arena);
  ctx.dry = true;
  ParameterStore store(ctx, world, config, table, options);
  if (snapshot && ctx.place == device::Place::host) {
    const Snapshot copy(ctx, store);
  }
  gemm::Engine engine;
  const model::Decoder decoder(config, decoder_options);
  std::int32_t unread = 0;
  const View tokens = tensor::make_view(&unread, DType::i32, device::Place::host, {sequences, length});
  const model::Batch batch{tensor::to_place(ctx, tokens, "activations"), tensor::to_place(ctx, tokens, "activations"),
                           sequences, length};
  const View losses = tensor::take(ctx, DType::f32, {sequences * length}, "activations");
  decoder.forward(ctx, engine, store, batch, losses);
  if (options.training) {
    store.begin_micro_batch(0, 1);
    decoder.forward_backward(ctx, engine, store, batch, 1, losses);
  }
  return {arena.peak(), engine.scratch_bytes(), static_cast<std::size_t>(peak_memory()), arena.usage_at_peak()};
}

json::Value MemoryPlan::to_json() const {
  json::Object o;
  for (const device::Usage& u : usage) o.set(u.category, u.bytes);
  o.set("matmul scratch", scratch);
  o.set("program", program);
  o.set("total", total());
  return o;
}

std::string MemoryPlan::to_text() const {
  std::string text;
  const auto line = [&text](const std::string& name, std::size_t n) {
    text += "  " + name + std::string(name.size() < 20 ? 20 - name.size() : 1, ' ') + human_bytes(n) + "\n";
  };
  for (const device::Usage& u : usage) line(u.category, u.bytes);
  line("matmul scratch", scratch);
  line("program", program);
  line("total, each rank", total());
  return text;
}

std::string MemoryPlan::largest_users() const {
  std::string text = human_bytes(total()) + " on each rank";
  for (std::size_t i = 0; i < std::min<std::size_t>(3, usage.size()); ++i)
    text += (i == 0 ? ": " : ", ") + usage[i].category + " " + human_bytes(usage[i].bytes);
  return text;
}

}  // namespace fp8::train
