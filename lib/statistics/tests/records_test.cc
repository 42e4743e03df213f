// Sensitivities, groups and recommendations as tables and lines.
#include "fp8/statistics/records.h"

#include <gtest/gtest.h>

#include "fp8/json/json.h"

namespace fp8::statistics {
namespace {

json::Value forward(const std::string& linear, const std::string& change) {
  return json::parse(R"({"type":"sensitivity","linear":")" + linear +
                         R"(","gemm":"forward","recipe":"rowwise","loss_change":)" + change +
                         R"(,"standard_error":0.25,"p_value":0.5})",
                     "record");
}

std::vector<std::string> column(const std::vector<std::vector<std::string>>& rows, std::size_t number) {
  std::vector<std::string> cells;
  for (std::size_t i = 1; i < rows.size(); ++i) cells.push_back(rows[i].at(number));
  return cells;
}

TEST(Tables, TheLargestRiseIsFirstAndNotTheLargestChange) {
  const std::vector<json::Value> records = {
      forward("a", "-3.0"), forward("b", "0.5"),
      json::parse(R"({"type":"sensitivity","linear":"a","gemm":"dgrad","recipe":"rowwise","relative_l2":9.0})",
                  "record"),
      forward("c", "null"), forward("d", "1.0")};
  const auto rows = most_sensitive_first(records);
  EXPECT_EQ(column(rows, 0), (std::vector<std::string>{"c", "d", "b", "a", "a"})) << "not finite first";
  EXPECT_EQ(column(rows, 1).back(), "dgrad");
  EXPECT_EQ(rows[2], (std::vector<std::string>{"d", "forward", "rowwise", "1", "0.25", "0.5", "-", "-"}));
  EXPECT_EQ(most_sensitive_first(records, 2).size(), 3u);
}

TEST(Tables, AGroupHasTheNamesOfItsLinears) {
  const auto rows = most_harmful_first({json::parse(
      R"({"type":"group","linears":["m.0.q_proj.weight","m.0.k_proj.weight","m.1.v_proj.weight"],"recipe":"rowwise",
          "loss_change":0.5,"standard_error":0.25,"p_value":0.001})",
      "record")});
  EXPECT_EQ(rows.at(1),
            (std::vector<std::string>{"m.0.q_proj, k_proj, m.1.v_proj", "rowwise", "0.5", "0.25", "0.001"}));
}

// A row has the worst expert of a layer, and its number; other linears have none.
TEST(Tables, ExpertsOfALayerShareARow) {
  std::vector<json::Value> records;
  const auto add = [&](const std::string& linear, const std::string& error) {
    records.push_back(json::parse(R"({"type":"operand","linear":")" + linear + R"(","gemm":"forward","operand":"input",
        "recipe":"rowwise","amax":1.5,"scale":2,"nonfinite":0,"underflow_share":0,"subnormal_share":0,
        "saturated_share":0,"sqnr_db":31.5})",
                                  "record"));
    records.push_back(json::parse(R"({"type":"gemm","linear":")" + linear +
                                      R"(","gemm":"forward","recipe":"rowwise","relative_error":)" + error + "}",
                                  "record"));
  };
  add("model.layers.0.q_proj.weight", "0.125");
  for (const int layer : {0, 1})
    for (const int expert : {0, 1, 2})
      add("model.layers." + std::to_string(layer) + ".mlp.experts." + std::to_string(expert) + ".w1.weight",
          expert == 1 ? "0.5" : "0.25");
  const auto rows = worst_first(records, kAllRows);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0][1], "expert");
  std::vector<std::string> shown;
  for (std::size_t i = 1; i < rows.size(); ++i) shown.push_back(rows[i][0] + " " + rows[i][1] + " " + rows[i].back());
  EXPECT_EQ(shown, (std::vector<std::string>{"model.layers.0.mlp.experts.*.w1.weight 1 50",
                                             "model.layers.1.mlp.experts.*.w1.weight 1 50",
                                             "model.layers.0.q_proj.weight - 12.5"}));
}

TEST(Tables, ExpertsOfALayerHaveOneName) {
  const auto rows = most_harmful_first({json::parse(
      R"({"type":"group","linears":["m.1.experts.0.w1.weight","m.1.experts.0.w3.weight","m.1.experts.1.w1.weight",
          "m.1.experts.1.w3.weight"],"recipe":"rowwise","loss_change":0.5,"standard_error":0.25,"p_value":0.001})",
      "record")});
  EXPECT_EQ(rows.at(1).front(), "m.1.experts.*.w1, w3");
}

json::Value operand(const std::string& linear, const std::string& operand, const std::string& shares) {
  return json::parse(R"({"type":"operand","linear":")" + linear + R"(","gemm":"forward","operand":")" + operand +
                         R"(",)" + shares + "}",
                     "record");
}

TEST(Tables, RecipesAreALineEachTheLeastMeanErrorFirst) {
  std::vector<json::Value> records;
  const auto add = [&](const std::string& recipe, const std::string& error, const std::string& other) {
    records.push_back(json::parse(R"({"type":"inspect","loss":2.5,"recipe":")" + recipe + R"("})", "record"));
    EXPECT_EQ(recipes_in_short(records).empty(), records.size() < 2);
    records.push_back(operand("a", "input", R"("underflow_share":0.25)"));
    records.push_back(operand("a", "weight", R"("underflow_share":null)"));
    for (const auto& [linear, text] : {std::pair("model.layers.1.mlp.up_proj.weight", error), {"b", other}})
      records.push_back(json::parse(
          std::string(R"({"type":"gemm","linear":")") + linear + R"(","gemm":"dgrad","relative_error":)" + text + "}",
          "record"));
  };
  add("tensorwise", "0.5", "0.25");
  add("broken", "null", "0.25");
  add("rowwise", "0.0625", "0.125");
  const auto rows = recipes_in_short(records);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[1], (std::vector<std::string>{"rowwise", "2.5", "9.38", "12.5", "b dgrad", "25"}));
  EXPECT_EQ(rows[2], (std::vector<std::string>{"tensorwise", "2.5", "37.5", "50", "1.up_proj dgrad", "25"}));
  EXPECT_EQ(rows[3], (std::vector<std::string>{"broken", "2.5", "-", "-", "1.up_proj dgrad", "25"}));
  // The sequences of the batch, and then those of another batch too.
  for (const auto& [sequences, count] : {std::pair("8", 4U), {"4", 5U}}) {
    std::vector<json::Value> more = records;
    more[0].as_object().set("batch_size", 4);
    more.push_back(json::parse(std::string(R"({"type":"sensitivity","linear":"a","gemm":"forward","loss":2.25,
                                               "loss_change":0.25,"sequences":)") +
                                   sequences + "}",
                               "record"));
    EXPECT_EQ(recipes_in_short(more).size(), count) << sequences;
    if (count == 5) {
      EXPECT_EQ(recipes_in_short(more)[1], (std::vector<std::string>{"bf16", "2", "-", "-", "-", "-"}));
    }
  }
}

TEST(Recommendations, NameTheWorstCastAndItsEffect) {
  const auto last = [](const std::string& hurts, const std::string& shares, const std::string& of = "weight") {
    return recommendations({operand("m.0.up.weight", "input", R"("underflow_share":0.125,"saturated_share":0)"),
                            operand("m.1.up.weight", of, shares),
                            json::parse(R"({"type":"group","linears":["m.1.gate.weight","m.1.up.weight"],
                                "loss_change":0.001,"standard_error":0.002,"hurts":)" +
                                            hurts + "}",
                                        "record"),
                            json::parse(R"({"type":"recommendation","fp8_linears":12,"limit":0.1,"loss_change":0.02,
                                "standard_error":0.01,"skip":[],"in_other_recipe":[],"hurting_groups":0,"sum":0})",
                                        "record")})
        .back();
  };
  EXPECT_EQ(
      last("false", R"("underflow_share":0.625,"saturated_share":0)"),
      "worst cast: 62.5 % underflow in the weight of m.1.up, no effect on the loss of this model beyond noise: 0.001 "
      "\u00b1 0.002 nats (standard error)");
  EXPECT_EQ(last("true", R"("underflow_share":0.25,"saturated_share":0.5)", "input"),
            "worst cast: 50 % saturation in the input of m.1.up, which raises the loss: 0.001 \u00b1 0.002 nats "
            "(standard error)");
  EXPECT_EQ(
      last("false", R"("underflow_share":0.25,"saturated_share":null)", "grad_output"),
      "worst cast: 25 % underflow in the grad_output of m.1.up, which acts on gradients and not on the loss of this "
      "batch");
  EXPECT_EQ(last("false", R"("underflow_share":null,"saturated_share":0)"),
            "worst cast: 12.5 % underflow in the input of m.0.up");
}

std::vector<std::string> lines_of(const std::string& members) {
  return recommendations({json::parse(
      R"({"type":"recommendation","fp8_linears":12,"limit":0.1,"loss_change":0.02,"standard_error":0.01,)" + members +
          "}",
      "record")});
}

TEST(Recommendations, WarnWhereTheLossRisesBeyondTheLimit) {
  const auto last = [](const std::string& change, const std::string& others, int linears = 12) {
    return recommendations({json::parse(R"({"type":"recommendation","limit":0.01,"standard_error":0.02,"skip":[],
                                            "other_recipe":"rowwise","hurting_groups":1,"sum":0,"in_other_recipe":)" +
                                            others + R"(,"fp8_linears":)" + std::to_string(linears) +
                                            R"(,"loss_change":)" + change + "}",
                                        "record")})
        .back();
  };
  EXPECT_EQ(last("0.05", R"(["a"])"), "  a");
  EXPECT_EQ(last("-0.5", R"(["a"])"), "  a");
  EXPECT_EQ(last("0.5", R"(["a"])"),
            "warning: the loss still rises by 0.5 nats with these linears in rowwise, more than 0.01: leave them in "
            "bf16, without --recommend-recipe");
  EXPECT_TRUE(last("0.05", "[]").starts_with("left in bf16: "));
  EXPECT_EQ(last("0.0503", "[]"),
            "warning: the loss rises by 0.0503 nats in this configuration, more than 0.01: more --batches find groups "
            "whose harm is below noise now");
  EXPECT_EQ(last("null", "[]"), "warning: the loss is not finite in this configuration");
  EXPECT_TRUE(last("0.5", "[]", 0).starts_with("left in bf16: ")) << "no configuration";
}

TEST(Recommendations, AreStatedInLines) {
  EXPECT_EQ(
      lines_of(R"("skip":[],"in_other_recipe":[],"hurting_groups":0,"sum":0,"groups":8,"sequences":16,"noise":0.002,
                        "more_sequences":40,"more_would_show":0.001)"),
      (std::vector<std::string>{
          "no linear hurts beyond noise (detection limit 0.002 nats over 16 sequences; 40 more would show 0.001)",
          "left in bf16: 0, in FP8: 12; change of the loss together 0.02 \u00b1 0.01 nats (standard error)"}));
  EXPECT_EQ(
      lines_of(R"("skip":["a"],"in_other_recipe":[],"hurting_groups":2,"sum":0.05)"),
      (std::vector<std::string>{
          "2 groups hurt beyond noise; those that stay raise the loss by 0.05 nats, less than 0.1",
          "left in bf16: 1, in FP8: 12; change of the loss together 0.02 \u00b1 0.01 nats (standard error)", "  a"}));
  EXPECT_EQ(
      lines_of(R"("skip":["m.experts.0.w2","b","m.experts.1.w2"],"in_other_recipe":[],"hurting_groups":1,"sum":0)"),
      (std::vector<std::string>{
          "1 group hurts beyond noise",
          "left in bf16: 3, in FP8: 12; change of the loss together 0.02 \u00b1 0.01 nats (standard error)",
          "  m.experts.*.w2 (2 linears)", "  b"}));
  EXPECT_EQ(lines_of(R"("skip":[],"other_recipe":"rowwise","in_other_recipe":["a","b"],"hurting_groups":1,"sum":0)"),
            (std::vector<std::string>{
                "1 group hurts beyond noise",
                "left in bf16: 0, in FP8: 12; change of the loss together 0.02 \u00b1 0.01 nats (standard error)",
                "in rowwise: 2", "  a", "  b"}));
  EXPECT_EQ(lines_of(R"("skip":[],"in_other_recipe":[],"hurting_groups":0,"sum":0,"sequences":9,"noise":0.5)").front(),
            "no linear hurts beyond noise (detection limit 0.5 nats over 9 sequences; more would not show less)");
  EXPECT_EQ(lines_of(R"("skip":[],"in_other_recipe":[],"hurting_groups":0,"sum":0,"sequences":1,"noise":0)").front(),
            "no linear changes the loss of 1 sequence");
}

}  // namespace
}  // namespace fp8::statistics
