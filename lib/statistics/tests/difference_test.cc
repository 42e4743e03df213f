// Differences of matrices whose sums are exact, the first operations that are named, and records.
#include "fp8/statistics/difference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fp8/json/json.h"
#include "fp8_test.h"

namespace fp8::statistics {
namespace {

using dtype::DType;
using tensor::Tensor;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

Tensor matrix(std::int64_t rows, std::int64_t cols, const std::vector<float>& values) {
  Tensor t(DType::f32, {rows, cols});
  std::copy(values.begin(), values.end(), t.as<float>());
  return t;
}

TEST(Difference, IsTheNormOfTheDifferenceByThatOfA) {
  const Tensor a = matrix(2, 2, {3, 0, 0, 4}), b = matrix(2, 2, {3, 3, 0, 8});
  const Difference d = difference(a.view(), b.view());
  EXPECT_EQ(d.elements, 4);
  EXPECT_EQ(d.reference, 25);
  EXPECT_EQ(d.difference, 25);
  EXPECT_EQ(d.relative(), 1);
  EXPECT_EQ(difference(a.view(), a.view()).relative(), 0);
  EXPECT_EQ(difference(a.view().columns(1, 2), b.view().columns(1, 2)).relative(), 1.25) << "columns: 5 / 4";
}

TEST(Difference, ComparesFormats) {
  Tensor b(DType::bf16, {1, 2});
  b.as<dtype::Bf16>()[0] = dtype::to_bf16(1);
  b.as<dtype::Bf16>()[1] = dtype::to_bf16(2);
  EXPECT_EQ(difference(matrix(1, 2, {1, 2}).view(), b.view()).relative(), 0);
  EXPECT_EQ(difference(b.view(), matrix(1, 2, {1, 0}).view()).difference, 4);
  EXPECT_EQ(test::error_of([&] {
              difference(b.view(), matrix(2, 1, {1, 2}).view());
            }),
            "difference: results of different shapes");
}

TEST(Difference, LeavesOutWhatIsNotFinite) {
  const Tensor a = matrix(1, 4, {2, kNan, 1, 1}), b = matrix(1, 4, {3, 1, kInfinity, -kInfinity});
  const Difference d = difference(a.view(), b.view());
  EXPECT_EQ(d.elements, 1);
  EXPECT_EQ(d.nonfinite_a, 1);
  EXPECT_EQ(d.nonfinite_b, 2);
  EXPECT_EQ(d.relative(), 0.5);
  EXPECT_TRUE(std::isnan(difference(a.view().columns(1, 2), b.view().columns(1, 2)).relative()));
  EXPECT_EQ(difference(matrix(1, 1, {0}).view(), matrix(1, 1, {1}).view()).relative(), kInfinity);
  EXPECT_EQ(difference(matrix(1, 1, {0}).view(), matrix(1, 1, {0}).view()).relative(), 0);
}

std::vector<OperationDifference> some_operations() {
  return {{false, -1, "model.embed_tokens", "output", {8, 0, 0, 16, 0}},
          {false, 0, "model.layers.0.mlp.up_proj", "output", {8, 0, 0, 16, 1}},
          {false, 0, "model.layers.0.mlp.down_proj", "output", {8, 0, 0, 16, 4}},
          {true, -1, "lm_head", "input_gradient", {7, 0, 1, 16, 16}},
          {true, -1, "lm_head.weight", "weight_gradient", {0, 8, 8, 0, 0}}};
}

TEST(Difference, NamesTheFirst) {
  const std::vector<OperationDifference> o = some_operations();
  EXPECT_EQ(first_above(o, 0.1), &o[1]);
  EXPECT_EQ(first_above(o, 0.25), &o[2]) << "above, not equal";
  EXPECT_EQ(first_above(o, 1), nullptr);
  EXPECT_EQ(first_nonfinite(o), &o[3]);
  EXPECT_EQ(first_nonfinite({o[0], o[1]}), nullptr);
}

TEST(Difference, Records) {
  const auto records = records_of(some_operations(), 0.3, json::object({{"a", "x"}, {"b", "y"}}));
  ASSERT_EQ(records.size(), 6u);
  EXPECT_EQ(json::dump(records[2]),
            R"({"type":"operation","order":2,"pass":"forward","layer":0,"operation":"model.layers.0.mlp.down_proj",)"
            R"("result":"output","relative_difference":0.5,"finite_a":true,"finite_b":true})");
  EXPECT_EQ(json::dump(records[4]),
            R"({"type":"operation","order":4,"pass":"backward","layer":null,"operation":"lm_head.weight",)"
            R"("result":"weight_gradient","relative_difference":null,"finite_a":false,"finite_b":false})");
  EXPECT_EQ(json::dump(records[5]),
            R"({"type":"bisection","a":"x","b":"y","operations":5,"bound":0.3,"first_above":{"pass":"forward",)"
            R"("layer":0,"operation":"model.layers.0.mlp.down_proj","result":"output","relative_difference":0.5,)"
            R"("finite_a":true,"finite_b":true,"order":2},"first_nonfinite":{"pass":"backward","layer":null,)"
            R"("operation":"lm_head","result":"input_gradient","relative_difference":1.0,"finite_a":true,)"
            R"("finite_b":false,"order":3}})");
}

TEST(Difference, TablesAndConclusions) {
  const json::Value about = json::object({{"a", "x"}, {"b", "y"}, {"loss_a", 1.5}, {"loss_b", 2.0}});
  const auto records = records_of(some_operations(), 0.3, about);
  const DifferenceTables tables = difference_tables(records);
  ASSERT_EQ(tables.first.size(), 5u) << "a heading and what differs";
  EXPECT_EQ(tables.first[1][0], "1");
  EXPECT_EQ(tables.largest[1],
            (std::vector<std::string>{"4", "backward", "lm_head.weight", "weight gradient", "-", "A and B"}));
  EXPECT_EQ(tables.largest[2][0], "3");
  EXPECT_EQ(conclusions(records),
            (std::vector<std::string>{"A: x  loss 1.5", "B: y  loss 2",
                                      "first above 0.3: model.layers.0.mlp.down_proj, forward, output, number 2: 0.5",
                                      "first not finite: lm_head, backward, input gradient, number 3: in B"}));
  const std::vector<OperationDifference> equal{some_operations()[0]};
  EXPECT_EQ(conclusions(records_of(equal, 0.3, about))[2], "no operation of 1 differs by more than 0.3");
  EXPECT_EQ(difference_tables(records_of(equal, 0.3, about)).first.size(), 1u);
  EXPECT_TRUE(difference_tables({}).first.empty());
}

}  // namespace
}  // namespace fp8::statistics
