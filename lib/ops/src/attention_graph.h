/// cuDNN's graphs of fused attention. The only header that includes cuDNN's frontend, which takes long to compile.
/// There is no device code: the host's compiler compiles it. Private to this crate.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // graphs as text, which are not used and take half of the compile time
#include <cudnn_frontend.h>

#include "attention_fused.h"
#include "fp8/base/error.h"
#include "fp8/device/library.h"
#include "fp8/device/runtime.h"

namespace fp8::ops {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

/// Throws Error "attention: cuDNN: what".
[[noreturn]] inline void fail(const std::string& what) { throw Error("attention: cuDNN: " + what); }

/// The variable from which the frontend reads the bytes of scores above which it selects cuDNN's ordered sums of dq.
inline constexpr const char* kScoreLimit = "CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT";

/// Loads cuDNN for the frontend, and the CUDA runtime, which the frontend needs as a shared library: it is loaded with
/// the search path of this suite's libraries, and its name is passed to the frontend, as the limit of scores is.
inline void load_library() {
  if (fe::cudnn_dlhandle != nullptr) return;
  const device::Library runtime(device::cuda_libraries("libcudart.so"), kInstallCudnn);
  const device::Library library({"libcudnn.so.9"}, kInstallCudnn);
  (void)setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime.name().c_str(), 0);
  (void)setenv(kScoreLimit, std::to_string(kMostScores).c_str(), 0);
  fe::cudnn_dlhandle = library.handle();
}

/// Adds the tensors and operations of a call to a graph. Documents have two tensors of lengths, and one tensor of
/// offsets for all tensors with the same steps (DocumentTables).
class GraphBuilder {
 public:
  /// Adds the tables of documents, if there are any.
  GraphBuilder(Graph& graph, const FusedAttention& call) : graph_(graph), call_(call), steps_(call.steps()) {
    if (!call.documents) return;
    queries_ = graph.tensor(table(uid_of(FusedName::queries), call.batch, fe::DataType_t::INT32));
    keys_ = graph.tensor(table(uid_of(FusedName::keys), call.batch, fe::DataType_t::INT32));
    for (std::size_t i = 0; i < steps_.size(); ++i)
      offsets_.push_back(graph.tensor(
          table(uid_of(FusedName::offsets) + static_cast<std::int64_t>(i), call.batch + 1, fe::DataType_t::INT64)));
  }

  /// The forward pass.
  void forward() {
    const auto [out, lse] =
        graph_.sdpa(heads(FusedName::q, call_.heads, call_.q), heads(FusedName::k, call_.groups, call_.k),
                    heads(FusedName::v, call_.groups, call_.v),
                    masked(fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true)));
    as_output(out, described(FusedName::out, call_.heads, call_.dim, call_.out));
    as_output(lse, statistics());
    lse->set_data_type(fe::DataType_t::FLOAT);
  }

  /// The gradients.
  void backward() {
    const Tensor q = heads(FusedName::q, call_.heads, call_.q), k = heads(FusedName::k, call_.groups, call_.k),
                 v = heads(FusedName::v, call_.groups, call_.v), out = heads(FusedName::out, call_.heads, call_.out),
                 dout = heads(FusedName::dout, call_.heads, call_.dout), lse = graph_.tensor(statistics());
    auto options = masked(fe::graph::SDPA_backward_attributes().set_name("attention backward"));
    const auto [dq, dk, dv] = graph_.sdpa_backward(
        q, k, v, out, dout, lse, options.set_deterministic_algorithm(call_.sums != FusedSums::atomic));
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
    return tensor.set_stride({call_.positions * s[1], s[2], s[1], 1});  // the first is ignored
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
  // Adds the scale, the causal mask and the lengths of documents.
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

/// The graph of a call for a chip, before it is built.
inline std::unique_ptr<Graph> graph_of(const FusedAttention& call, int capability) {
  auto graph = std::make_unique<Graph>();
  graph
      ->set_sm_version(capability)  // first, because operations copy it or query the device
      .set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  GraphBuilder builder(*graph, call);
  if (call.backward) {
    builder.backward();
  } else {
    builder.forward();
  }
  return graph;
}

}  // namespace fp8::ops
