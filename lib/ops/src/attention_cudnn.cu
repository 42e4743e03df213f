// cuDNN's fused attention through its frontend headers, which take long to compile: this file alone includes them, and
// the host's compiler reads it, for there is no device code here. The library is loaded when first needed; graphs and
// their plans are built once and kept with the stream. Statistics: cuDNN's are max + ln(sum exp) of the scaled scores,
// [B, H, T, 1] in f32, which is our lse; of documents they are [B, T, H], in scratch.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // graphs as text, which nobody asks for and which take half the time
#include <cudnn_frontend.h>

#include "attention_fused.h"
#include "cuda.h"
#include "fp8/base/error.h"
#include "fp8/device/cuda.h"
#include "fp8/device/library.h"

// The frontend finds cuDNN's functions through this handle of its own, once for the process.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace fp8::ops {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

constexpr std::size_t kMostGraphs = 256;  // shapes that never return must not pile up

[[noreturn]] void fail(const std::string& what) { throw Error("attention: cuDNN: " + what); }

// Loads cuDNN for the frontend. The CUDA runtime, which the frontend wants as a shared library of its own, is loaded
// from where our libraries are found, and named to it, so that it looks for no other.
void load_library() {
  if (fe::cudnn_dlhandle != nullptr) return;
  const std::string hint = "install cuDNN 9, or name its folder in LD_LIBRARY_PATH";
  const device::Library runtime({"libcudart.so.13", "libcudart.so.12"}, hint);
  const device::Library library({"libcudnn.so.9"}, hint);
  (void)setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime.name().c_str(), 0);
  fe::cudnn_dlhandle = library.handle();
}

// What the graph of a call is made of. Documents have two tensors of lengths and one of offsets for all with the same
// steps, which the call's tables fill (DocumentTables).
class Builder {
 public:
  Builder(Graph& graph, const FusedAttention& call) : graph_(graph), call_(call), steps_(call.steps()) {
    if (!call.documents) return;
    queries_ = graph.tensor(table(uid_of(FusedName::queries), call.batch, fe::DataType_t::INT32));
    keys_ = graph.tensor(table(uid_of(FusedName::keys), call.batch, fe::DataType_t::INT32));
    for (std::size_t i = 0; i < steps_.size(); ++i)
      offsets_.push_back(graph.tensor(
          table(uid_of(FusedName::offsets) + static_cast<std::int64_t>(i), call.batch + 1, fe::DataType_t::INT64)));
  }

  void forward() {
    const auto [out, lse] =
        graph_.sdpa(heads(FusedName::q, call_.heads, call_.q), heads(FusedName::k, call_.groups, call_.k),
                    heads(FusedName::v, call_.groups, call_.v),
                    masked(fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true)));
    as_output(out, described(FusedName::out, call_.heads, call_.dim, call_.out));
    as_output(lse, statistics());
    lse->set_data_type(fe::DataType_t::FLOAT);
  }

  void backward() {
    const Tensor q = heads(FusedName::q, call_.heads, call_.q), k = heads(FusedName::k, call_.groups, call_.k),
                 v = heads(FusedName::v, call_.groups, call_.v), out = heads(FusedName::out, call_.heads, call_.out),
                 dout = heads(FusedName::dout, call_.heads, call_.dout), lse = graph_.tensor(statistics());
    auto options = masked(fe::graph::SDPA_backward_attributes().set_name("attention backward"));
    const auto [dq, dk, dv] = graph_.sdpa_backward(q, k, v, out, dout, lse, options.set_deterministic_algorithm(true));
    as_output(dq, described(FusedName::dq, call_.heads, call_.dim, call_.dq));
    as_output(dk, described(FusedName::dk, call_.groups, call_.dim, call_.dk));
    as_output(dv, described(FusedName::dv, call_.groups, call_.dim, call_.dv));
  }

 private:
  static Tensor_attributes table(std::int64_t uid, std::int64_t entries, fe::DataType_t type) {
    return Tensor_attributes().set_uid(uid).set_dim({entries, 1, 1, 1}).set_stride({1, 1, 1, 1}).set_data_type(type);
  }
  // [B, count, T, dim] in cuDNN's order.
  Tensor_attributes described(FusedName name, std::int64_t count, std::int64_t dim,
                              const FusedAttention::Strides& s) const {
    auto tensor = Tensor_attributes().set_uid(uid_of(name)).set_dim({call_.batch, count, call_.positions, dim});
    if (!call_.documents) return tensor.set_stride({s[0], s[2], s[1], 1});
    const auto at = std::find(steps_.begin(), steps_.end(), FusedAttention::Steps{s[0], s[1]}) - steps_.begin();
    tensor.set_ragged_offset(offsets_[static_cast<std::size_t>(at)]);
    return tensor.set_stride({call_.positions * s[1], s[2], s[1], 1});  // the first is not looked at
  }
  Tensor_attributes statistics() const {
    return described(FusedName::lse, call_.heads, 1, call_.lse).set_data_type(fe::DataType_t::FLOAT);
  }
  Tensor heads(FusedName name, std::int64_t count, const FusedAttention::Strides& s) {
    return graph_.tensor(described(name, count, call_.dim, s));
  }
  static void as_output(const Tensor& tensor, Tensor_attributes like) {
    tensor->set_output(true).set_uid(like.get_uid()).set_dim(like.get_dim()).set_stride(like.get_stride());
    tensor->set_ragged_offset(like.get_ragged_offset());
  }
  // With the scale, the causal mask and documents' lengths.
  template <class Options>
  Options masked(Options options) const {
    options.set_attn_scale(call_.scale)
        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    if (call_.documents) options.set_padding_mask(true).set_seq_len_q(queries_).set_seq_len_kv(keys_);
    return options;
  }

  Graph& graph_;
  const FusedAttention& call_;
  std::vector<FusedAttention::Steps> steps_;
  Tensor queries_, keys_;
  std::vector<Tensor> offsets_;
};

// The graph of a call for a chip, not built yet.
std::unique_ptr<Graph> graph_of(const FusedAttention& call, int capability) {
  auto graph = std::make_unique<Graph>();
  graph
      ->set_sm_version(capability)  // first: what is added to the graph copies it, or asks the device
      .set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  Builder builder(*graph, call);
  if (call.backward) {
    builder.backward();
  } else {
    builder.forward();
  }
  return graph;
}

std::int64_t workspace_of(const Graph& graph) {
  std::int64_t bytes = 0;
  const auto status = graph.get_workspace_size(bytes);
  if (status.is_bad()) fail(status.err_msg);
  return bytes;
}

// cuDNN on one stream: its handle, and the graphs that were built; null for calls that it has no plan for.
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

// The stream's session; null where cuDNN cannot be loaded, which is found out once.
Session* session_of(device::Stream& stream) {
  const auto [at, fresh] = stream.kept.try_emplace("attention");
  if (fresh) {
    try {
      at->second = std::make_shared<Session>(stream);
    } catch (const std::exception&) {
      at->second.reset();  // without cuDNN the crate's own kernels do the work; fp8-doctor says what is missing
    }
  }
  return static_cast<Session*>(at->second.get());
}

// How a part is run, if cuDNN takes it. In a dry run without a device cuDNN is assumed to be there.
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

// Runs all parts of a call if cuDNN takes them; they are all alike. `lse` is read by gradients, else written.
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
    if (call.backward) cuda::turn(ctx, lse, statistics);
  }
  for (std::int64_t i = 0; i < parts.sequences * parts.groups; ++i) {
    auto pointers = fused_pointers(call, parts, i, operands, statistics, tables);
    plan->session->run(*plan->graph, pointers, workspace.data);
  }
  if (call.documents && !call.backward) cuda::turn(ctx, statistics, lse);
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

std::int64_t fused_plans_for(const FusedAttention& call, int capability, const std::string& device_json) {
  load_library();
  const auto device = std::make_shared<fe::DeviceProperties>();
  const auto check = [](const fe::error_t& status) {
    if (status.is_bad()) fail(status.err_msg);
  };
  check(device->deserialize({device_json.begin(), device_json.end()}));
  const auto graph = graph_of(call, capability);
  graph->set_device_properties(device);
  check(graph->validate());
  check(graph->build_operation_graph());
  check(graph->create_execution_plans({fe::HeurMode_t::A}));
  return graph->get_execution_plan_count();
}

}  // namespace fp8::ops
