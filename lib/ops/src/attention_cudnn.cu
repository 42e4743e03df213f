// cuDNN's fused attention: sessions, workspace and execution. The library is loaded when first needed; graphs and their
// plans are built once and kept with the stream. The statistics of cuDNN are max + ln(sum exp) of the scaled scores,
// [B, H, T, 1] in f32, which is our lse; with documents they are [B, T, H], in scratch.
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "attention_graph.h"
#include "cuda.h"
#include "fp8/device/cuda.h"

// The handle through which the frontend finds cuDNN's functions, once per process.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace fp8::ops {
namespace {

constexpr std::size_t kMostGraphs = 256;  // more are discarded, so that shapes that do not recur do not accumulate

std::int64_t workspace_of(const Graph& graph) {
  std::int64_t bytes = 0;
  const auto status = graph.get_workspace_size(bytes);
  if (status.is_bad()) fail(status.err_msg);
  return bytes;
}

// cuDNN on one stream: its handle, and graphs by call; null for calls without a plan.
class Session {
 public:
  explicit Session(const device::Stream& stream) : capability_(stream.compute_capability) {
    load_library();
    if (fe::detail::create_handle(&handle_) != CUDNN_STATUS_SUCCESS) fail("no handle: " + last_error());
    if (fe::detail::set_stream(handle_, stream.handle) != CUDNN_STATUS_SUCCESS) fail("no stream: " + last_error());
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    graphs_.clear();
    if (handle_ != nullptr) (void)fe::detail::destroy_handle(handle_);
  }

  Graph* find(const FusedAttention& call) {
    const auto found = graphs_.find(call);
    if (found != graphs_.end()) return found->second.get();
    if (graphs_.size() >= kMostGraphs) graphs_.clear();
    auto graph = graph_of(call, capability_);
    if (graph->build(handle_, {fe::HeurMode_t::A}).is_bad()) graph.reset();
    return (graphs_[call] = std::move(graph)).get();
  }

  void run(const Graph& graph, std::unordered_map<std::int64_t, void*>& pointers, void* workspace) const {
    const auto status = graph.execute(handle_, pointers, workspace);
    if (status.is_bad()) fail(status.err_msg);
  }

 private:
  static std::string last_error() { return fe::detail::get_last_error_string_(); }

  int capability_;
  cudnnHandle_t handle_ = nullptr;
  std::map<FusedAttention, std::unique_ptr<Graph>> graphs_;
};

// The stream's session; null if cuDNN cannot be loaded, which is tried once.
Session* session_of(device::Stream& stream) {
  const auto [at, fresh] = stream.kept.try_emplace("attention");
  if (fresh) {
    try {
      at->second = std::make_shared<Session>(stream);
    } catch (const std::exception&) {
      at->second.reset();  // without cuDNN the kernels of attention.cuh are used; fp8-doctor reports what is missing
    }
  }
  return static_cast<Session*>(at->second.get());
}

// The graph of a part, if cuDNN supports it. In a dry run without a device, cuDNN is assumed to be available.
struct GraphPlan {
  Session* session = nullptr;
  Graph* graph = nullptr;
  std::int64_t workspace = 0;  // bytes
};
std::optional<GraphPlan> plan_of(const Context& ctx, const FusedAttention& part) {
  GraphPlan plan{.workspace = part.assumed_workspace()};
  if (ctx.stream == nullptr) return plan;
  plan.session = session_of(*ctx.stream);
  plan.graph = plan.session == nullptr ? nullptr : plan.session->find(part);
  if (plan.graph == nullptr) return {};
  plan.workspace = workspace_of(*plan.graph);
  return plan;
}

// Runs all parts of a call, which are equal, if cuDNN supports them. `lse` is read by gradients, else written.
bool run(const Context& ctx, const FusedAttention& call, const Documents& documents, const FusedOperands& operands,
         const View& lse, const std::array<View, 3>& results) {
  const FusedParts parts = parts_of(call);
  const auto plan = plan_of(ctx, parts.each);
  if (!plan) return false;
  const device::Scope scope(*ctx.arena);
  cuda::DocumentTables tables;
  View statistics = lse;
  if (call.documents) {
    tables = document_tables(ctx, parts, results);
    statistics = tensor::allocate(ctx, dtype::DType::f32, {lse.shape[0], lse.shape[2], lse.shape[1]}, "scratch");
  }
  const View workspace = tensor::allocate(ctx, dtype::DType::u8, {plan->workspace}, "scratch");
  if (ctx.dry) return true;
  if (call.documents) {
    cuda::attention_documents(ctx, documents, tables);
    if (call.backward) cuda::transpose(ctx, lse, statistics);
  }
  for (std::int64_t i = 0; i < parts.sequences * parts.groups; ++i) {
    auto pointers = fused_pointers(call, parts, i, operands, statistics, tables);
    plan->session->run(*plan->graph, pointers, workspace.data);
  }
  if (call.documents && !call.backward) cuda::transpose(ctx, statistics, lse);
  return true;
}

}  // namespace

bool fused_attention_forward(const Context& ctx, const View& q, const View& k, const View& v, float scale,
                             const Documents& documents, const View& out, const View& lse) {
  const auto call = fused_forward_of(q, k, v, scale, documents, out);
  return call &&
         run(ctx, *call, documents, {{FusedName::q, q}, {FusedName::k, k}, {FusedName::v, v}, {FusedName::out, out}},
             lse, {out, out, out});
}

bool fused_attention_backward(const Context& ctx, const View& q, const View& k, const View& v, const View& out,
                              const View& lse, const View& dout, float scale, const Documents& documents,
                              const View& dq, const View& dk, const View& dv) {
  const auto call = fused_backward_of(q, k, v, out, dout, scale, documents, dq, dk, dv);
  const FusedOperands operands{{FusedName::q, q},       {FusedName::k, k},   {FusedName::v, v},   {FusedName::out, out},
                               {FusedName::dout, dout}, {FusedName::dq, dq}, {FusedName::dk, dk}, {FusedName::dv, dv}};
  return call && run(ctx, *call, documents, operands, lse, {dq, dk, dv});
}

}  // namespace fp8::ops
