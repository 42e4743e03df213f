// cuDNN's fused attention: sessions, workspace and execution. The library is loaded when first needed; graphs and their
// plans are built once and kept with the stream.
#include <map>
#include <memory>
#include <unordered_map>

#include "attention_graph.h"
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

// Messages of cuDNN have a line for each engine that it tried; the first one is shown.
std::string first_line(const std::string& text) {
  const std::size_t begin = text.find_first_not_of("\n ");
  return begin == std::string::npos ? "no reason given" : text.substr(begin, text.find('\n', begin) - begin);
}

// cuDNN on one stream: its handle, and graphs by call.
class Session {
 public:
  explicit Session(const device::Stream& stream) : capability_(stream.compute_capability) {
    try {
      load_library();
    } catch (const Error& e) {
      refuse(e.what());
    }
    if (fe::detail::create_handle(&handle_) != CUDNN_STATUS_SUCCESS) refuse("no handle: " + last_error());
    if (fe::detail::set_stream(handle_, stream.handle) != CUDNN_STATUS_SUCCESS) refuse("no stream: " + last_error());
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    graphs_.clear();
    if (handle_ != nullptr) (void)fe::detail::destroy_handle(handle_);
  }

  // Throws Error with cuDNN's reason if it has no plan for the call.
  Graph& find(const FusedAttention& call) {
    const auto found = graphs_.find(call);
    if (found != graphs_.end()) return *found->second;
    auto graph = graph_of(call, capability_);
    const auto status = graph->build(handle_, {fe::HeurMode_t::A});
    if (status.is_bad()) refuse("has no plan: " + first_line(status.err_msg));
    if (graphs_.size() >= kMostGraphs) graphs_.clear();
    return *(graphs_[call] = std::move(graph));
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

// The stream's session. Throws Error naming the library if cuDNN cannot be loaded; the attempt is repeated with the
// next call, which names the reason again.
Session& session_of(device::Stream& stream) {
  std::shared_ptr<void>& kept = stream.kept["attention"];
  if (kept == nullptr) kept = std::make_shared<Session>(stream);
  return *static_cast<Session*>(kept.get());
}

}  // namespace

namespace cudnn {

Plan plan(const Context& ctx, const FusedAttention& part) {
  Graph& graph = session_of(*ctx.stream).find(part);
  return {&graph, workspace_of(graph)};
}

void run(const Context& ctx, const Plan& plan, std::unordered_map<std::int64_t, void*>& pointers, void* workspace) {
  session_of(*ctx.stream).run(*static_cast<const Graph*>(plan.graph), pointers, workspace);
}

int capability(const Context& ctx) { return ctx.stream->compute_capability; }

}  // namespace cudnn

}  // namespace fp8::ops
