// cuDNN's fused attention through its frontend headers, which take long to compile: this file alone includes them, and
// the host's compiler reads it, for there is no device code here. The library is loaded when first needed; graphs and
// their plans are built once and kept with the stream. Statistics: cuDNN's are max + ln(sum exp) of the scaled scores,
// [B, H, T, 1] in f32, which is our lse.
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // graphs as text, which nobody asks for and which take half the time
#include <cudnn_frontend.h>

#include "attention_fused.h"
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

enum Uid : std::int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv };

constexpr std::size_t kMostGraphs = 256;  // shapes that never return must not pile up

[[noreturn]] void fail(const std::string& what) { throw Error("attention: cuDNN: " + what); }

// Loads cuDNN for the frontend. The CUDA runtime, which the frontend wants as a shared library of its own, is loaded
// from where our libraries are found, and named to it, so that it looks for no other.
void load_library() {
  if (fe::cudnn_dlhandle != nullptr) return;
  const std::string cure = "install cuDNN 9, or name its folder in LD_LIBRARY_PATH";
  const device::Library runtime({"libcudart.so.13", "libcudart.so.12"}, cure);
  const device::Library library({"libcudnn.so.9"}, cure);
  (void)setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime.name().c_str(), 0);
  fe::cudnn_dlhandle = library.handle();
}

// A matrix of heads: [B, heads, T, D] in cuDNN's order.
Tensor_attributes heads(Uid uid, const FusedAttention& call, std::int64_t count, const FusedAttention::Strides& s) {
  return Tensor_attributes()
      .set_uid(uid)
      .set_dim({call.batch, count, call.positions, call.dim})
      .set_stride({s[0], s[2], s[1], 1});
}

void as_output(const Tensor& tensor, const Tensor_attributes& like) {
  tensor->set_output(true).set_uid(like.get_uid()).set_dim(like.get_dim()).set_stride(like.get_stride());
}

Tensor_attributes statistics(const FusedAttention& call) {
  return Tensor_attributes()
      .set_uid(kLse)
      .set_dim({call.batch, call.heads, call.positions, 1})
      .set_stride({call.heads * call.positions, call.positions, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

void add_forward(Graph& graph, const FusedAttention& call) {
  const Tensor q = graph.tensor(heads(kQ, call, call.heads, call.q));
  const Tensor k = graph.tensor(heads(kK, call, call.groups, call.k));
  const Tensor v = graph.tensor(heads(kV, call, call.groups, call.v));
  auto options = fe::graph::SDPA_attributes()
                     .set_name("attention")
                     .set_generate_stats(true)
                     .set_attn_scale(call.scale)
                     .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                     .set_diagonal_band_right_bound(0);
  const auto [out, lse] = graph.sdpa(q, k, v, options);
  as_output(out, heads(kOut, call, call.heads, call.out));
  as_output(lse, statistics(call));
  lse->set_data_type(fe::DataType_t::FLOAT);
}

void add_backward(Graph& graph, const FusedAttention& call) {
  const Tensor q = graph.tensor(heads(kQ, call, call.heads, call.q));
  const Tensor k = graph.tensor(heads(kK, call, call.groups, call.k));
  const Tensor v = graph.tensor(heads(kV, call, call.groups, call.v));
  const Tensor out = graph.tensor(heads(kOut, call, call.heads, call.out));
  const Tensor dout = graph.tensor(heads(kDout, call, call.heads, call.dout));
  const Tensor lse = graph.tensor(statistics(call));
  auto options = fe::graph::SDPA_backward_attributes()
                     .set_name("attention backward")
                     .set_deterministic_algorithm(true)
                     .set_attn_scale(call.scale)
                     .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                     .set_diagonal_band_right_bound(0);
  const auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, out, dout, lse, options);
  as_output(dq, heads(kDq, call, call.heads, call.dq));
  as_output(dk, heads(kDk, call, call.groups, call.dk));
  as_output(dv, heads(kDv, call, call.groups, call.dv));
}

// The graph of a call for a chip, not built yet.
std::unique_ptr<Graph> graph_of(const FusedAttention& call, int capability) {
  auto graph = std::make_unique<Graph>();
  graph
      ->set_sm_version(capability)  // first: what is added to the graph copies it, or asks the device
      .set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (call.backward) {
    add_backward(*graph, call);
  } else {
    add_forward(*graph, call);
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

// Runs a call if cuDNN takes it. In a dry run without a device cuDNN is assumed to be there.
bool run(const Context& ctx, const FusedAttention& call, std::unordered_map<std::int64_t, void*> pointers) {
  std::int64_t bytes = call.assumed_workspace();
  Session* session = nullptr;
  Graph* graph = nullptr;
  if (ctx.stream != nullptr) {
    session = session_of(*ctx.stream);
    graph = session == nullptr ? nullptr : session->find(call);
    if (graph == nullptr) return false;
    bytes = workspace_of(*graph);
  }
  const device::Scope scope(*ctx.arena);
  const View workspace = tensor::take(ctx, dtype::DType::u8, {bytes}, "scratch");
  if (!ctx.dry) session->run(*graph, pointers, workspace.data);
  return true;
}

// Where head h of sequence b begins in a view [B, T, heads, D].
void* head_of(const View& v, std::int64_t b, std::int64_t h) {
  return v.as<dtype::Bf16>() + b * v.stride[0] + h * v.stride[2];
}

}  // namespace

bool fused_attention_forward(const Context& ctx, const View& q, const View& k, const View& v, float scale,
                             const Documents& documents, const View& out, const View& lse) {
  const auto call = fused_forward_of(q, k, v, scale, documents, out);
  return call && run(ctx, *call, {{kQ, q.data}, {kK, k.data}, {kV, v.data}, {kOut, out.data}, {kLse, lse.data}});
}

bool fused_attention_backward(const Context& ctx, const View& q, const View& k, const View& v, const View& out,
                              const View& lse, const View& dout, float scale, const Documents& documents,
                              const View& dq, const View& dk, const View& dv) {
  const auto call = fused_backward_of(q, k, v, out, dout, scale, documents, dq, dk, dv);
  if (!call) return false;
  const FusedParts parts = parts_of(*call);
  for (std::int64_t i = 0; i < parts.sequences * parts.groups; ++i) {
    const std::int64_t b = i / parts.groups * parts.each.batch, part = i % parts.groups;
    const std::int64_t h = part * parts.each.heads, g = part * parts.each.groups;
    // All are alike: if cuDNN takes the first it takes the others.
    if (!run(ctx, parts.each,
             {{kQ, head_of(q, b, h)},
              {kK, head_of(k, b, g)},
              {kV, head_of(v, b, g)},
              {kOut, head_of(out, b, h)},
              {kLse, lse.as<float>() + b * lse.stride[0] + h * lse.stride[1]},
              {kDout, head_of(dout, b, h)},
              {kDq, head_of(dq, b, h)},
              {kDk, head_of(dk, b, g)},
              {kDv, head_of(dv, b, g)}}))
      return false;
  }
  return true;
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
