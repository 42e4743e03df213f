// Counts of routes that differ, their record, table and lines.
#include "fp8/statistics/routes.h"

#include <cmath>

#include "fp8/json/json.h"
#include "fp8_test.h"

namespace fp8::statistics {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(Routes, CountTokensAndExpertsWithoutPadding) {
  const Ids a = {0, 1, 2, /**/ 1, 4, 5, /**/ -1, -1, -1, /**/ 0, 2, 3},
            b = {0, 1, 2, /**/ 1, 3, 5, /**/ -1, -1, -1, /**/ 1, 4, 5};
  const RouteDifference d = route_difference(a, b, 3);
  EXPECT_EQ(d.tokens, 3);
  EXPECT_EQ(d.differing, 2);
  EXPECT_EQ(d.experts, 9);
  EXPECT_EQ(d.other_experts, 4);
  const RouteDifference back = route_difference(b, a, 3), none = route_difference(a, a, 3);
  EXPECT_EQ(back.other_experts, 4) << "sets of one size differ as much either way";
  EXPECT_EQ(none.differing + none.other_experts, 0);
  EXPECT_EQ(none.tokens, 3);
}

TEST(Routes, OfOtherTokensAreRefused) {
  EXPECT_HOLDS(test::error_of([] {
                 (void)route_difference(Ids{0, 1}, Ids{0, 1, 2, 3}, 2);
               }),
               "routes: 2 and 4 experts");
  EXPECT_HOLDS(test::error_of([] {
                 (void)route_difference(Ids{0, 1, 2}, Ids{0, 1, 2}, 2);
               }),
               "routes: 3 and 3 experts");
  EXPECT_HOLDS(test::error_of([] { (void)route_difference(Ids{0, 1}, Ids{-1, -1}, 2); }), "other tokens are padding");
}

TEST(Routes, AreShownByLayerTheLargestShareFirst) {
  const std::vector<json::Value> records = {
      json::parse(R"({"type":"inspect"})", "record"), record_of({100, 5, 200, 5}, 1, "rowwise", "bf16"),
      record_of({100, 20, 200, 22}, 2, "rowwise", "bf16"), record_of({100, 10, 200, 10}, 1, "delayed", "bf16")};
  EXPECT_EQ(json::dump(records[2]),
            R"({"type":"routes","recipe":"rowwise","reference":"bf16","layer":2,"tokens":100,"experts_per_token":2,)"
            R"("differ":0.2,"experts_differ":0.11})");
  const auto rows = most_rerouted_first(records, 2);
  EXPECT_EQ(rows, (std::vector<std::vector<std::string>>{
                      {"layer", "recipe", "reference", "tokens differ %", "experts differ %"},
                      {"2", "rowwise", "bf16", "20", "11"},
                      {"1", "delayed", "bf16", "10", "5"}}));
  EXPECT_EQ(
      rerouted(records),
      (std::vector<std::string>{"rowwise: 12.5 % of the routes have other experts than in bf16; most in layer 2, 20 %",
                                "delayed: 10 % of the routes have other experts than in bf16; most in layer 1, 10 %"}));
  EXPECT_EQ(rerouted({records[0]}), std::vector<std::string>());
}

TEST(Routes, WithoutTokensHaveNoShare) {
  const json::Value record = record_of({}, 0, "rowwise", "bf16");
  EXPECT_TRUE(std::isnan(record.as_object().get_double_or("differ", NAN, "record")));
  EXPECT_EQ(most_rerouted_first({record}, 9).at(1), (std::vector<std::string>{"0", "rowwise", "bf16", "-", "-"}));
}

}  // namespace
}  // namespace fp8::statistics
