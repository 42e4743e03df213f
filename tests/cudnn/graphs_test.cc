// Graphs of attention that cuDNN validates, lowers and has plans for on Hopper, without a GPU, and their nodes. Skipped
// if the library cannot be loaded.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../../lib/ops/tests/fused_layer.h"
#include "fp8_test.h"
#include "hopper_graph.h"

namespace fp8::ops {
namespace {

// Number of plans that cuDNN proposes for a call on an H100. Throws Error if cuDNN is missing or refuses the graph.
std::int64_t plans_of(const FusedAttention& call) {
  load_library();
  return planned_on_hopper(call)->get_execution_plan_count();
}

// Without a driver cuDNN selects engines and then cannot compile their kernels; that error is accepted. An engine that
// refuses the graph fails before it needs the driver.
void expect_plans(const FusedAttention& call) {
  if (::testing::Test::IsSkipped()) return;
  const std::string answer = test::error_of([&] { EXPECT_GT(plans_of(call), 0); });
  if (answer.find("cannot be loaded") != std::string::npos) GTEST_SKIP() << answer;
  const bool only_the_driver_is_missing = answer.find("\"smVersion\":900") != std::string::npos &&
                                          answer.find("this->libcuda == nullptr") != std::string::npos;
  EXPECT_TRUE(answer == "no error" || only_the_driver_is_missing) << answer;
}

TEST(CudnnAttention, HasPlansForHopper) {
  for (const Layer& layer : {Layer(2, 200, 8, 2, 64), Layer(1, 129, 4, 1, 128), Layer(4, 2048, 12, 12, 64)})
    for (const auto& call : {layer.forward(), layer.backward()}) expect_plans(call);
  if (::testing::Test::IsSkipped()) return;
  FusedAttention odd = Layer(1, 64, 4, 4, 64).forward();
  odd.dim = 12;
  EXPECT_NE(test::error_of([&] { (void)plans_of(odd); }).find("multiple of 8"), std::string::npos);
}

using fe::graph::INode;

// Access to the nodes of a node, which are protected.
struct Opened : INode {
  static const std::vector<std::shared_ptr<INode>>& nodes(const INode& node) { return node.*&Opened::sub_nodes; }
};

// All nodes of a graph that were built as Node.
template <class Node>
std::vector<const Node*> all(const INode& root) {
  std::vector<const Node*> found;
  for (const auto& node : Opened::nodes(root)) {
    if (const auto* one = dynamic_cast<const Node*>(node.get())) found.push_back(one);
    for (const Node* below : all<Node>(*node)) found.push_back(below);
  }
  return found;
}

// A query attends to no later key: its position is at least the key's, without a shift.
void expect_causal(const INode& graph) {
  using Names = fe::graph::DiagonalBandMask_attributes::input_names;
  const auto masks = all<fe::graph::CompositeDiagonalBandMaskNode>(graph);
  ASSERT_EQ(masks.size(), 1u);
  const auto& mask = masks[0]->attributes;
  EXPECT_EQ(mask.get_comparison_mode(), fe::PointwiseMode_t::CMP_GE);
  for (const Names bound : {Names::LeftBound, Names::ShiftRightBound})
    EXPECT_TRUE(!mask.inputs.contains(bound) || mask.inputs.at(bound) == nullptr);
}

template <class Tensors, class Name>
void expect_tensors(const Tensors& tensors, const std::vector<std::pair<Name, FusedName>>& expected) {
  for (const auto& [name, ours] : expected)
    EXPECT_EQ(tensors.at(name)->get_uid(), uid_of(ours)) << "tensor " << uid_of(ours);
}

TEST(CudnnAttention, NodesAreCausalAndHaveTheirTensors) {
  using Forward = fe::graph::SDPA_attributes;
  using Backward = fe::graph::SDPA_backward_attributes;
  const std::string loaded = test::error_of(load_library);
  if (loaded != "no error") GTEST_SKIP() << loaded;
  const Layer layer(2, 200, 8, 2, 64);
  for (const Documents& documents : {Documents{}, layer.documents(7, 150)}) {
    const auto forward = built_on_hopper(layer.forward(documents));
    expect_causal(*forward);
    const auto attention = all<fe::graph::CompositeSDPANode>(*forward);
    ASSERT_EQ(attention.size(), 1u);
    using In = Forward::input_names;
    expect_tensors<decltype(Forward::inputs), In>(
        attention[0]->attributes.inputs, {{In::Q, FusedName::q}, {In::K, FusedName::k}, {In::V, FusedName::v}});
    using Out = Forward::output_names;
    expect_tensors<decltype(Forward::outputs), Out>(attention[0]->attributes.outputs,
                                                    {{Out::O, FusedName::out}, {Out::Stats, FusedName::lse}});
    const auto backward = built_on_hopper(layer.backward(documents));
    expect_causal(*backward);
    const auto gradients = all<fe::graph::CompositeSDPABackwardNode>(*backward);
    ASSERT_EQ(gradients.size(), 1u);
    using From = Backward::input_names;
    expect_tensors<decltype(Backward::inputs), From>(gradients[0]->attributes.inputs, {{From::Q, FusedName::q},
                                                                                       {From::K, FusedName::k},
                                                                                       {From::V, FusedName::v},
                                                                                       {From::O, FusedName::out},
                                                                                       {From::dO, FusedName::dout},
                                                                                       {From::Stats, FusedName::lse}});
    using To = Backward::output_names;
    expect_tensors<decltype(Backward::outputs), To>(
        gradients[0]->attributes.outputs, {{To::dQ, FusedName::dq}, {To::dK, FusedName::dk}, {To::dV, FusedName::dv}});
  }
}

TEST(CudnnAttention, HasPlansForDocumentsOnHopper) {
  for (const Layer& layer : {Layer(2, 200, 8, 2, 64), Layer(1, 8192, 32, 8, 128)}) {
    for (const Documents& documents : {layer.documents(1, 1), layer.documents(7, 150), layer.documents(9, 9999)})
      for (const auto& call : {layer.forward(documents), layer.backward(documents)})
        expect_plans(parts_of(call, false).each);
  }
  Layer apart(2, 200, 8, 2, 64);  // a table of offsets for every tensor but lse
  const auto stretch = [](View& v, std::int64_t by) {
    v.stride[1] += by * 64;
    v.stride[0] = v.shape[1] * v.stride[1];
  };
  stretch(apart.k, 1);
  stretch(apart.v, 2);
  stretch(apart.dout, 1);
  stretch(apart.dq, 4);
  stretch(apart.dk, 5);
  stretch(apart.dv, 6);
  const FusedAttention call = apart.backward(apart.documents(7, 150));
  EXPECT_EQ(call.steps().size(), 9u);
  expect_plans(call);
}

}  // namespace
}  // namespace fp8::ops
