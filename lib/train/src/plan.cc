// Dry run of the arena: the same code as the step, nothing computed.
#include "plan.h"

#include <algorithm>

#include "fp8/base/text.h"
#include "fp8/gemm/host_bf16.h"
#include "records.h"
#include "saver.h"

namespace fp8::train {
namespace {

// Left in the heap of each thread by the buffers that oneDNN's f32 products pack operands in: 2 to 4 MiB were seen with
// one thread, 5 to 13 with two, from run to run.
constexpr std::size_t kPackedByThread = std::size_t{4} << 20;

// What the process takes beside the arena: code, libraries, heap. Where the host computes, products are made before:
// oneDNN then maps and makes its kernels.
std::size_t program_bytes(device::DeviceType device, DType type) {
  constexpr std::int64_t kSide = 512;
  gemm::Engine engine;
  if (device == device::DeviceType::host) {
    const tensor::Tensor a(type, {kSide, kSide}), b(type, {kSide, kSide}), c(DType::f32, {kSide, kSide});
    for (const View& left : {a.view(), a.view().transposed()})
      for (const View& right : {b.view(), b.view().transposed()})
        engine.matmul({}, {left, type, {}}, {right, type, {}}, c.view(), {});
  }
  const auto resident = static_cast<std::size_t>(resident_memory());
  const bool packs = device == device::DeviceType::host && !gemm::native_host_bf16();
  return resident - std::min(resident, engine.scratch_bytes()) +  // told apart
         (packs ? static_cast<std::size_t>(device::host_threads()) * kPackedByThread : 0);
}

}  // namespace

MemoryPlan plan_memory(const Context& at, comm::Communicator& world, const hf::ModelConfig& config,
                       const std::vector<model::Parameter>& table, const StoreOptions& options,
                       const model::DecoderOptions& decoder_options, std::int64_t sequences, std::int64_t length,
                       bool snapshot) {
  device::Arena arena;
  Context ctx = at.with(arena);
  ctx.dry = true;
  ParameterStore store(ctx, world, config, table, options);
  if (snapshot && ctx.device == device::DeviceType::host) {
    const Snapshot copy(ctx, store);
  }
  gemm::Engine engine;
  const model::Decoder decoder(config, decoder_options);
  std::int32_t unread = 0;
  const View tokens = tensor::make_view(&unread, DType::i32, device::DeviceType::host, {sequences, length});
  const model::Batch batch{tensor::to_device(ctx, tokens, "activations"), tensor::to_device(ctx, tokens, "activations"),
                           sequences, length};
  const View losses = tensor::allocate(ctx, DType::f32, {sequences * length}, "activations");
  decoder.forward(ctx, engine, store, batch, losses);
  if (options.training) {
    store.begin_micro_batch(0, 1);
    decoder.forward_backward(ctx, engine, store, batch, 1, losses);
  }
  return {arena.peak(), engine.scratch_bytes(), program_bytes(ctx.device, decoder_options.activation),
          arena.usage_at_peak()};
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

// By what takes the most.
std::string MemoryPlan::remedy() const {
  const std::string most = usage.empty() ? "" : usage.front().category;
  if (most == "snapshot") return "leave out --async-save";
  if (most == "moments") return "use --moments bf16 or more ranks";
  if (most == "master weights") return "use --master bf16 or more ranks";
  if (most == "gradients" || most == "compute weights") return "use more ranks, or --zero 3 where it is not";
  return "use a smaller --batch-size or --seq-length, or --recompute full";
}

device::Arena MemoryPlan::allocate(device::DeviceType device) const {
  try {
    device::Arena arena(bytes, device);
    const device::Buffer beside(device == device::DeviceType::host ? 0 : scratch, device,
                                "matmul scratch");  // is there room
    return arena;
  } catch (const Error& e) {
    const std::string reason = e.what(), known = "out of memory: ";
    if (reason.rfind(known, 0) != 0) throw;
    throw Error(known + largest_users() + "; " + remedy() +
                (device == device::DeviceType::host ? "" : " (" + reason.substr(known.size()) + ")"));
  }
}

}  // namespace fp8::train
