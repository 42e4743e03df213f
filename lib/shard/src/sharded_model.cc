// Assembly of a model, and its dry run: the code of a step without computation.
#include "fp8/shard/sharded_model.h"

#include <algorithm>

#include "fp8/base/memory.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"
#include "fp8/device/runtime.h"
#include "fp8/gemm/gemm.h"
#include "fp8/model/split.h"
#include "fp8/shard/passes.h"

namespace fp8::shard {
namespace {

// Heap memory that a thread keeps after oneDNN's f32 GEMMs have packed operands in it: 2 to 4 MiB were measured with
// one thread, 5 to 13 with two.
constexpr std::size_t kPackedByThread = std::size_t{4} << 20;

// Memory of a GPU that no GPU has confirmed: the context with the modules of cuBLASLt and cuDNN, and the buffers of one
// of NCCL's communicators.
constexpr std::size_t kCudaContext = std::size_t{768} << 20, kNcclBuffers = std::size_t{512} << 20;

// Resident memory of the process outside of the arena: code, libraries, heap. GEMMs run first, so that oneDNN has
// loaded and generated its kernels, which are the same for operands of every size; small ones take no time.
std::size_t program_bytes(DType type) {
  constexpr std::int64_t kSide = 128;
  gemm::Engine engine;
  const tensor::Tensor a(type, {kSide, kSide}), b(type, {kSide, kSide}), c(DType::f32, {kSide, kSide});
  for (const View& left : {a.view(), a.view().transposed()})
    for (const View& right : {b.view(), b.view().transposed()})
      engine.matmul({}, {left, type, {}}, {right, type, {}}, c.view(), {});
  const auto resident = static_cast<std::size_t>(resident_memory());
  const bool packs = !gemm::native_host_bf16();
  return resident - std::min(resident, engine.scratch_bytes()) +  // reported separately
         (packs ? static_cast<std::size_t>(device::host_threads()) * kPackedByThread : 0);
}

// What this rank has of the model under tensor parallelism.
model::TensorRank tensor_rank(const comm::Mesh& mesh, const ModelSpec& spec) {
  return {mesh.tensor().rank(), mesh.tensor().size(), spec.store.fp8.recipe};
}

ModelSpec with_logits(ModelSpec spec, std::int64_t bytes) {
  spec.execution.logit_bytes = bytes;
  return spec;
}

}  // namespace

ShardedModel::ShardedModel(const Context& at, const comm::Mesh& mesh, const ModelSpec& spec, device::Arena memory)
    : arena(std::move(memory)),
      ctx{at.device, at.stream, &arena, arena.dry(), at.profile},
      decoder(spec.config, model::local_sizes(spec.config, spec.table, tensor_rank(mesh, spec)),
              spec.decoder(spec.execution.logit_bytes)),
      store(ctx, mesh, spec.config, model::local_table(spec.config, spec.table, tensor_rank(mesh, spec)), spec.store) {
  if (spec.snapshot) snapshot.emplace(ctx, store);
  if (!spec.config.experts) return;
  const quant::Recipe* const recipe = spec.store.fp8.recipe;
  experts.emplace(
      ctx, spec.config,
      [this, recipe](int layer, std::int64_t first_expert, std::span<const std::int64_t> first, bool backward) {
        if (recipe == nullptr) return std::int64_t{0};
        return model::planned_experts_fp8(store.table(), *recipe, layer, first_expert, first, decoder.execution(),
                                          backward)
            .gemms;
      },
      std::min(spec.micro_batches, store.stage().stages - store.stage().number));
}

ShardedModel::ShardedModel(const Context& at, const comm::Mesh& mesh, const ModelSpec& spec, const MemoryPlan& plan)
    : ShardedModel(at, mesh, with_logits(spec, plan.logit_bytes), plan.allocate()) {}

namespace {

// A batch whose views are copies of those that are not empty.
template <class Copy>
model::Batch copy_of(const model::Batch& batch, Copy&& copy) {
  model::Batch there = batch;
  for (View* const v : {&there.tokens, &there.targets, &there.documents.start, &there.lengths})
    if (!v->empty()) *v = copy(*v);
  return there;
}

}  // namespace

model::Batch on_device(const Context& ctx, const model::Batch& batch) {
  return copy_of(batch, [&](const View& v) { return tensor::to_device(ctx, v, "activations"); });
}

model::Batch on_device(const Context& ctx, const model::Batch& batch, device::PooledMemory& memory) {
  if (ctx.device == device::DeviceType::host) return batch;
  return copy_of(batch, [&](const View& v) {
    View there = v;
    there.device = ctx.device;
    there.data = memory.allocate(v.bytes(), "activations");
    tensor::copy_across(ctx, v, there);
    return there;
  });
}

namespace {

// Micro-batches that a plan runs: as many as bring every stage to its peak. The gradients of the first micro-batch are
// written and those of the others are added, which takes other memory.
int planned_micro_batches(const comm::Mesh& mesh, const ModelSpec& spec) {
  const int stages = mesh.stages().size();
  return stages > 1 ? std::min(spec.micro_batches, 2 * stages) : spec.store.several_micro_batches ? 2 : 1;
}

// Passes of an evaluation that a plan runs: as many as bring a stage that sends and receives to its peak.
int planned_evaluations(const comm::Mesh& mesh) { return mesh.stages().size() > 1 ? 3 : 1; }

// plan_rank() of the steps that the spec's observer, if there is one, observes.
MemoryPlan plan_steps(const Context& at, const comm::Mesh& mesh, const ModelSpec& spec, const BatchShape& trained,
                      const BatchShape& evaluated, const BatchShape& sampled) {
  ShardedModel dry(at, mesh, spec, device::Arena());
  const Context& ctx = dry.ctx;
  std::int32_t unread = 0;
  const auto batch_of = [&](const BatchShape& shape) {
    const View v = tensor::make_view(&unread, DType::i32, device::DeviceType::host, {shape.sequences, shape.length});
    const auto [count, longest] = shape.documents;
    model::Batch batch{v, v, shape.sequences, shape.length, {count > 0 ? v : View{}, count, longest}};
    if (count > 0) batch.lengths = tensor::make_view(&unread, DType::i32, device::DeviceType::host, {shape.sequences});
    return batch;
  };
  const auto observed = [&](model::Batch batch) {
    batch = on_device(ctx, batch);
    if (dry.experts) batch.routing = &*dry.experts;
    return batch;
  };
  const auto run = [&](int evaluations) {
    ForwardPasses passes(dry);
    for (int i = 0; i < evaluations; ++i) {
      const device::Scope scope(*ctx.arena);
      const View losses = tensor::allocate(ctx, DType::f32, {evaluated.sequences * evaluated.length}, "activations");
      passes.compute(observed(batch_of(evaluated)), [&](model::MicroBatch& m) { m.forward_head(losses); });
    }
    passes.send();
    if (sampled.sequences > 0) {
      const device::Scope scope(*ctx.arena);
      const View row = tensor::allocate(ctx, DType::f32, {1, spec.config.vocab_size}, "logits");
      logits(dry, observed(batch_of(sampled)), sampled.length - 1, row);
    }
    if (!spec.store.training) return;
    run_passes(dry, {.count = planned_micro_batches(mesh, spec),
                     .batch = [&](const Context& there, device::PooledMemory& memory, int) {
                       return on_device(there, batch_of(trained), memory);
                     }});
    if (!spec.store.updates) return;
    const optim::Gate gate;
    const device::Scope scope(*ctx.arena);
    dry.store.update(ctx, dry.engine, {}, {.gate = &gate},
                     spec.measures_updates ? dry.store.allocate_changes(ctx) : View{});
  };
  if (dry.experts) dry.experts->begin({1, 1, 1, nullptr});
  if (spec.gathers_gradients) dry.store.gradients().visit(ctx, {});
  run(planned_evaluations(mesh));
  if (dry.store.scales().needs_calibration()) {
    dry.store.scales().begin_calibration();
    run(1);
    dry.store.end_calibration(ctx);
  }
  const std::size_t program = ctx.device == device::DeviceType::host
                                  ? program_bytes(spec.store.compute)
                                  : kCudaContext + static_cast<std::size_t>(mesh.device_communicators()) * kNcclBuffers;
  return {dry.arena.peak(), dry.engine.scratch_bytes(), program, dry.arena.usage_at_peak(),
          ctx.device,       spec.execution.logit_bytes};
}

}  // namespace

// Steps that are not observed keep other inputs of linears for backward, which may take more at one time.
MemoryPlan plan_rank(const Context& at, const comm::Mesh& mesh, const ModelSpec& spec, const BatchShape& trained,
                     const BatchShape& evaluated, const BatchShape& sampled) {
  MemoryPlan plan = plan_steps(at, mesh, spec, trained, evaluated, sampled);
  if (spec.store.fp8.observer == nullptr || !spec.store.training) return plan;
  ModelSpec unobserved = spec;
  unobserved.store.fp8.observer = nullptr;
  MemoryPlan other = plan_steps(at, mesh, unobserved, trained, evaluated, sampled);
  other.scratch = plan.scratch = std::max(other.scratch, plan.scratch);
  return other.bytes > plan.bytes ? other : plan;
}

MemoryPlan plan_fitting(comm::Communicator& all, device::DeviceType device, std::size_t gpu_memory,
                        const std::function<MemoryPlan(std::int64_t)>& plan_with) {
  MemoryPlan plan;
  std::int64_t bytes = device == device::DeviceType::host ? model::kLeastLogits : model::kMostLogits;
  comm::agree(all, [&] {
    plan = plan_with(bytes);
    while (gpu_memory > 0 && plan.total() > gpu_memory && bytes > model::kLeastLogits) plan = plan_with(bytes /= 2);
  });
  std::int64_t least = bytes;
  all.all_reduce(std::span<std::int64_t>(&least, 1), comm::Reduce::min);
  comm::agree(all, [&] {
    if (least < bytes) plan = plan_with(least);
  });
  return plan;
}

MemoryPlan plan_memory(const Context& at, const comm::Mesh& mesh, const ModelSpec& spec, const BatchShape& trained,
                       const BatchShape& evaluated, const BatchShape& sampled) {
  return plan_fitting(mesh.all(), at.device, device::gpu_memory(at), [&](std::int64_t logit_bytes) {
    return plan_rank(at, mesh, with_logits(spec, logit_bytes), trained, evaluated, sampled);
  });
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
  line(device == device::DeviceType::host ? "program" : "CUDA (assumed)", program);
  line("total, each rank", total());
  return text;
}

std::size_t MemoryPlan::bytes_of(std::string_view category) const {
  const auto found = std::ranges::find(usage, category, &device::Usage::category);
  return found == usage.end() ? 0 : found->bytes;
}

std::string MemoryPlan::largest_users() const {
  std::string text = human_bytes(total()) + " on each rank";
  for (std::size_t i = 0; i < std::min<std::size_t>(3, usage.size()); ++i)
    text += (i == 0 ? ": " : ", ") + usage[i].category + " " + human_bytes(usage[i].bytes);
  return text;
}

std::string MemoryPlan::remedy() const {
  const std::string most = usage.empty() ? "" : usage.front().category;
  if (most == "snapshot") return "leave out " + cli::flag_name("async-save");
  if (most == "moments") return "use " + cli::flag_name("moments") + " bf16 or more ranks";
  if (most == "master weights") return "use " + cli::flag_name("master") + " bf16 or more ranks";
  if (most == "attention workspace") return "use " + cli::flag_name("no-deterministic") + ", or cuDNN 9.25 or newer";
  if (most == "gradients" || most == "compute weights" || most == "frozen weights")
    return "use more ranks, or " + cli::flag_name("zero") + " 3 where it is not";
  return "use a smaller " + cli::flag_name("batch-size") + " or " + cli::flag_name("seq-length") + ", or " +
         cli::flag_name("recompute") + " full";
}

device::Arena MemoryPlan::allocate() const {
  try {
    device::Arena arena(bytes, device);
    // The GEMM engine allocates its scratch later: an error now is better than one in the first step.
    const device::Buffer room(device == device::DeviceType::host ? 0 : scratch, device, "matmul scratch");
    return arena;
  } catch (const Error& e) {
    const std::string reason = e.what(), known = "out of memory: ";
    if (reason.rfind(known, 0) != 0) throw;
    throw Error(known + largest_users() + "; " + remedy() +
                (device == device::DeviceType::host ? "" : " (" + reason.substr(known.size()) + ")"));
  }
}

}  // namespace fp8::shard
