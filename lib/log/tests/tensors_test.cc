// Statistics of tensors: reading, resumed runs, lines that were cut off, worst values, CSV, heatmaps.
#include "fp8/log/tensors.h"

#include <cmath>

#include "fp8/base/file.h"
#include "fp8/json/json.h"
#include "fp8_test.h"

namespace fp8::log {
namespace {

// Figures of one operand of a linear.
struct Figures {
  std::string sqnr = "31.5", underflow = "0.25", saturated = "0.0";
  int nonfinite = 0;
};

std::string operand(int step, const std::string& linear, const std::string& name, const Figures& f) {
  return R"({"type":"operand","linear":"model.layers.)" + linear + R"(.weight","gemm":"forward","operand":")" + name +
         R"(","recipe":"tensorwise","format":"e4m3","nonfinite":)" + std::to_string(f.nonfinite) +
         R"(,"amax":2.0,"scale":224.0,"underflow_share":)" + f.underflow + R"(,"saturated_share":)" + f.saturated +
         R"(,"sqnr_db":)" + f.sqnr + R"(,"histogram":{"lowest":null,"counts":[]},"step":)" + std::to_string(step) +
         "}\n";
}

std::string product(int step, const std::string& linear, const std::string& error) {
  return R"({"type":"gemm","linear":"model.layers.)" + linear +
         R"(.weight","gemm":"wgrad","recipe":"tensorwise","relative_error":)" + error + R"(,"step":)" +
         std::to_string(step) + "}\n";
}

// Two operands and a product.
std::string records(int step, const std::string& sqnr = "31.5", const std::string& error = "0.03") {
  return operand(step, "0.mlp.up_proj", "input", {sqnr}) + operand(step, "0.mlp.up_proj", "weight", {"20.0"}) +
         product(step, "1.mlp.up_proj", error);
}

class Tensors : public test::FolderTest {
 protected:
  TensorRun read(const std::string& text) { return read_tensors(write("tensors.jsonl", text)); }
  std::string complaint(const std::string& text) {
    const std::string file = write("tensors.jsonl", text), error = test::error_of([&] { (void)read_tensors(file); });
    return error.starts_with(file + ": ") ? error.substr(file.size() + 2) : error;
  }
};

constexpr std::size_t kSqnr = 6, kUnderflow = 3, kSaturated = 5, kError = 8;

// The backward pass visits the linears in another order.
TEST_F(Tensors, RowsOfAHeatmapAreInTheOrderOfTheModel) {
  const TensorRun run =
      read(operand(1, "10.mlp.down_proj", "input", {}) + operand(1, "2.mlp.experts.10.up_proj", "input", {}) +
           operand(1, "2.mlp.experts.9.up_proj", "input", {}) + operand(1, "2.self_attn.o_proj", "input", {}) +
           operand(1, "2.self_attn.q_proj", "input", {}) + operand(1, "2.mlp.gate_proj", "input", {}));
  EXPECT_EQ(heatmap(run, kSqnr, 10).rows, (std::vector<std::string>{"2 q_proj", "2 o_proj", "2 gate_proj", "2 up_proj",
                                                                    "2 up_proj", "10 down_proj"}));
}

TEST_F(Tensors, AreReadByLinearGemmAndOperand) {
  const TensorRun run = read(records(2) + records(4, "12.0"));
  EXPECT_EQ(run.steps, (std::vector<std::int64_t>{2, 4}));
  ASSERT_EQ(run.series.size(), 3u);
  EXPECT_EQ(run.series[0].linear, "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(run.series[0].operand, "input");
  EXPECT_EQ(run.series[0].values[1][kSqnr], 12);
  EXPECT_EQ(run.series[0].values[1][0], 2) << "amax";
  EXPECT_TRUE(std::isnan(run.series[0].values[1][kError]));
  EXPECT_EQ(run.series[2].operand, "");
  EXPECT_EQ(run.series[2].values[0][kError], 0.03);
  EXPECT_EQ(read_tensors(path()).steps.size(), 2u) << "the folder of a run";
}

TEST_F(Tensors, StepsOfAResumedRunReplaceLaterOnes) {
  const TensorRun run = read(records(2) + records(4, "1.0") + records(6, "1.0") + records(4, "30.0"));
  EXPECT_EQ(run.steps, (std::vector<std::int64_t>{2, 4}));
  for (const TensorSeries& s : run.series) EXPECT_EQ(s.at, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(run.series[0].values[1][kSqnr], 30);
  const TensorRun same = read(records(2) + records(4, "1.0") + records(4, "30.0"));
  EXPECT_EQ(same.steps, (std::vector<std::int64_t>{2, 4})) << "the last step again";
  EXPECT_EQ(same.series[0].values[1][kSqnr], 30);
  EXPECT_EQ(same.series[0].values.size(), 2u);
}

TEST_F(Tensors, LinesThatWereCutOffAreIgnored) {
  const std::string whole = records(2) + records(4);
  const std::string torn = whole.substr(0, whole.size() - 30);
  EXPECT_EQ(read(torn).steps.size(), 2u);
  EXPECT_EQ(read(torn).series[2].at.size(), 1u) << "of the last line nothing is known";
  EXPECT_EQ(read(torn + "\n" + records(4)).series[2].at.size(), 2u) << "the step again";
  EXPECT_EQ(read(torn + "\n" + records(6)).steps.size(), 3u) << "a later step";
  const std::string first = records(2).substr(0, 50);
  EXPECT_EQ(read(records(2) + first + "\n" + records(2)).steps.size(), 1u);
  EXPECT_HOLDS(complaint(operand(2, "0.mlp.up_proj", "input", {}) + "x\n" + product(2, "0.mlp.up_proj", "1.0")),
               "line 2 column 1: ");
}

TEST_F(Tensors, BadLinesAreNamed) {
  EXPECT_EQ(complaint(""), "contains no statistics of tensors");
  EXPECT_HOLDS(complaint("no json\n"), "line 1 column ");
  EXPECT_EQ(complaint("[]\n"), "line 1: not an object");
  EXPECT_EQ(complaint("{\"type\":\"step\",\"step\":1}\n"),
            "line 1: no record of an operand, a GEMM, experts or routes");
  EXPECT_EQ(complaint(records(2) + operand(0, "0.mlp.up_proj", "input", {})), "line 4: step 0: steps count from 1");
  EXPECT_EQ(complaint(operand(1, "0.mlp.up_proj", "input", {"\"x\""})),
            "line 1: record: \"sqnr_db\": expected a number, found string");
  EXPECT_EQ(test::error_of([&] { (void)read_tensors(at("none")); }), at("none") + ": No such file or directory");
  const std::string folder = path() + "/empty";
  std::filesystem::create_directory(folder);
  EXPECT_EQ(test::error_of([&] { (void)read_tensors(folder); }),
            folder + ": contains no tensors.jsonl; fp8-step --tensor-stats-every writes it");
}

TEST_F(Tensors, WorstFirst) {
  const TensorRun run = read(records(2, "25.0", "0.5") + records(4, "null", "0.1"));
  const auto sqnr = worst_tensors(run, kSqnr);
  ASSERT_EQ(sqnr.size(), 2u);
  EXPECT_EQ(sqnr[0].series->operand, "weight");
  EXPECT_EQ(sqnr[1].value, 25);
  EXPECT_EQ(sqnr[1].step, 2);
  EXPECT_EQ(sqnr[1].last, HUGE_VAL) << "exact at step 4";
  const auto error = worst_tensors(run, kError);
  ASSERT_EQ(error.size(), 1u);
  EXPECT_EQ(error[0].value, 0.5);
  EXPECT_EQ(error[0].last, 0.1);
  EXPECT_TRUE(worst_tensors(run, kSaturated).empty()) << "0 is harmless";
  EXPECT_EQ(worst_tensors(run, kUnderflow)[0].step, 2) << "the first of equal steps";
  const TensorRun nan = read(operand(3, "0.mlp.up_proj", "input", {"null", "0.0", "0.0", 2}));
  EXPECT_EQ(worst_tensors(nan, kSqnr)[0].value, -HUGE_VAL);
  EXPECT_EQ(tensor_metric("sqnr_db"), kSqnr);
  EXPECT_HOLDS(test::error_of([] { (void)tensor_metric("loss"); }), "no metric \"loss\" of tensors; available: amax, ");
  EXPECT_HOLDS(test::error_of([] { (void)tensor_metric("loss"); }), ", relative_error, exponents, expert_load, differ");
}

TEST_F(Tensors, RecordsAndCsv) {
  const TensorRun run = read(records(2, "null") + records(4));
  EXPECT_EQ(json::dump(tensor_records(run).at(2)),
            R"({"type":"tensor","linear":"model.layers.1.mlp.up_proj.weight","gemm":"wgrad","operand":null,)"
            R"("recipe":"tensorwise","steps":2,"relative_error":0.03,"relative_error_step":2})");
  std::string csv;
  write_tensor_csv(run, [&](std::string_view piece) { csv += piece; });
  EXPECT_EQ(csv.substr(0, csv.find("\n4,")),
            "step,linear,gemm,operand,recipe,amax,scale,scale_max,underflow_share,subnormal_share,saturated_share,"
            "sqnr_db,dynamic_range,relative_error\n"
            "2,model.layers.0.mlp.up_proj.weight,forward,input,tensorwise,2,224,,0.25,,0,,,\n"
            "2,model.layers.0.mlp.up_proj.weight,forward,weight,tensorwise,2,224,,0.25,,0,20,,\n"
            "2,model.layers.1.mlp.up_proj.weight,wgrad,,tensorwise,,,,,,,,,0.03");
}

TEST_F(Tensors, ACastOfSeveralGemmsIsThereOnce) {
  const auto as = [](std::string line, const std::string& gemm) { return line.replace(line.find("forward"), 7, gemm); };
  const std::string weight = operand(1, "0.mlp.up_proj", "weight", {"20.0"});
  const TensorRun run =
      read(weight + as(weight, "dgrad") + as(operand(1, "0.mlp.up_proj", "weight", {"21.0"}), "wgrad"));
  const auto worst = worst_tensors(run, kSqnr);
  ASSERT_EQ(worst.size(), 2u);
  EXPECT_EQ(worst[0].gemms, "forward,dgrad");
  EXPECT_EQ(worst[1].gemms, "wgrad") << "another cast";
}

// The mean share of the square of the error of values that are uniform in log u over a binade, by integration.
TEST(Sqnr, OfAnIdealCast) {
  for (const auto& [format, bits] : {std::pair("e4m3", 3), {"e5m2", 2}}) {
    constexpr int kParts = 20000;
    double share = 0;
    for (int i = 0; i < kParts; ++i) {
      const double u = std::exp2((i + 0.5) / kParts), spacing = std::exp2(-bits);
      share += spacing * spacing / 12 / (u * u) / kParts;
    }
    EXPECT_NEAR(ideal_sqnr_db(format), -10 * std::log10(share), 1e-6) << format;
  }
  EXPECT_NEAR(ideal_sqnr_db("e4m3"), 31.52, 0.005);
  EXPECT_NEAR(ideal_sqnr_db("e5m2"), 25.50, 0.005);
  EXPECT_TRUE(std::isnan(ideal_sqnr_db("bf16")));
}

TEST_F(Tensors, HeatmapHasTheWorstOfEachCell) {
  std::string text;
  for (int step = 1; step <= 5; ++step) text += records(step, step == 2 ? "10.0" : "31.0");
  const TensorRun run = read(text);
  const double ideal = ideal_sqnr_db("e4m3");
  const plot::Heatmap all = heatmap(run, kSqnr, 10);
  EXPECT_EQ(all.rows, (std::vector<std::string>{"0 up_proj", "1 up_proj"}));
  EXPECT_EQ(all.steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 5}));
  ASSERT_EQ(all.panels.size(), 2u) << "without operands that no record has";
  EXPECT_EQ(all.panels[0].title, "input");
  EXPECT_EQ(std::vector<double>(all.panels[0].values.begin(), all.panels[0].values.begin() + 3),
            (std::vector<double>{ideal - 31, ideal - 10, ideal - 31}));
  EXPECT_TRUE(std::isnan(all.panels[0].values[5]));
  EXPECT_EQ(all.high, 12) << "20 dB below the ideal are as bad";
  const plot::Heatmap few = heatmap(run, kSqnr, 2);
  EXPECT_EQ(few.steps, (std::vector<std::int64_t>{1, 4, 5})) << "three steps in a column";
  EXPECT_EQ(few.panels[0].values[0], ideal - 10);
  EXPECT_EQ(heatmap(run, kError, 10).panels[0].title, "wgrad");
  EXPECT_HOLDS(test::error_of([&] { (void)heatmap(run, 4, 10); }), ": no record has a value of subnormal_share");
  const plot::Heatmap better = heatmap(read(records(1, "95.0")), kSqnr, 10);
  EXPECT_EQ(better.panels[0].values[0], ideal - 95);
  EXPECT_EQ(better.low, -1) << "few large elements make the norm, which is no better cast";
  EXPECT_EQ(heatmap(read(operand(1, "0.mlp.up_proj", "input", {"31.4"})), kSqnr, 10).high, 1)
      << "casts that are nearly ideal differ";
}

// The records of an inspection at a step.
std::string inspected(int step, const std::string& recipe, const std::string& sqnr) {
  std::string text = R"({"type":"inspect","loss":2.0,"step":)" + std::to_string(step) + "}\n";
  for (std::string line : {operand(0, "0.mlp.up_proj", "input", {sqnr}),
                           operand(0, "1.mlp.down_proj", "input", {"20.0"}), product(0, "1.mlp.down_proj", "0.03")}) {
    line.replace(line.find("tensorwise"), 10, recipe);
    line.erase(line.find(",\"step\""));
    const std::string histogram = R"(,"scaled_histogram":{"lowest":-12,"counts":[1,0,2,0,0,0,1,4]})";
    text += line + (line.find("operand") != std::string::npos ? histogram : "") + "}\n";
  }
  return text + R"({"type":"sensitivity","linear":"x"})" + "\n" + R"({"type":"recommendation"})" + "\n";
}

TEST_F(Tensors, RecordsOfAnInspectionHaveItsStep) {
  const TensorRun run = read(inspected(7, "tensorwise", "30.0"));
  EXPECT_EQ(run.steps, std::vector<std::int64_t>{7});
  EXPECT_EQ(run.series.size(), 3u);
  const plot::Heatmap map = heatmap(run, kSqnr, 10);
  EXPECT_EQ(map.rows, (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(map.columns, (std::vector<std::string>{"up_proj", "down_proj"}));
  EXPECT_DOUBLE_EQ(map.panels.at(0).values[0], ideal_sqnr_db("e4m3") - 30);
  EXPECT_TRUE(std::isnan(map.panels[0].values[1]));
  const TensorRun two = read(inspected(7, "tensorwise", "30.0") + inspected(7, "rowwise", "31.0"));
  EXPECT_EQ(two.series.size(), 6u) << "each recipe has its own";
  EXPECT_EQ(recipes_of(two), (std::vector<std::string>{"tensorwise", "rowwise"}));
  EXPECT_EQ(worst_tensors(two, kSqnr).size(), 4u);
  EXPECT_HOLDS(test::error_of([&] { (void)heatmap(two, kSqnr, 10); }),
               ": a plot needs one recipe, found tensorwise, rowwise;");
  EXPECT_EQ(complaint(R"({"type":"inspect","step":1})"
                      "\n"),
            "contains no statistics of tensors");
  EXPECT_EQ(complaint(R"({"type":"sensitivity"})"
                      "\n"),
            "line 1: no record of an operand, a GEMM, experts or routes")
      << "of no inspection";
}

TEST_F(Tensors, ExponentsAgainstTheRangeOfTheFormat) {
  const plot::ExponentChart chart = exponent_chart(read(inspected(1, "tensorwise", "30.0")));
  ASSERT_EQ(chart.panels.size(), 1u);
  const plot::ExponentPanel& panel = chart.panels[0];
  EXPECT_EQ(panel.title, "input, e4m3");
  EXPECT_EQ(panel.lowest, -12);
  EXPECT_EQ(panel.shares, (std::vector<double>{0.125, 0, 0.25, 0, 0, 0, 0.125, 0.5}));
  EXPECT_EQ(panel.worst_shares, panel.shares);
  EXPECT_EQ(panel.range.zero, -11) << "2^-10 is half of the smallest code";
  const std::string text = plot::terminal_exponents(chart, 80);
  EXPECT_HOLDS(text, "zero 12 %, subnormal 25 %");
  EXPECT_HOLDS(test::error_of([&] { (void)exponent_chart(read(records(1))); }), ": no record has a histogram");
}

// The records of an inspection with another histogram in place of those of its operands; the second may have its own.
std::string with_histogram(const std::string& counts, const std::string& second) {
  std::string text = inspected(1, "tensorwise", "30.0");
  const std::string old = R"("lowest":-12,"counts":[1,0,2,0,0,0,1,4])";
  std::size_t at = text.find(old);
  text.replace(at, old.size(), counts);
  at = text.find(old);
  return text.replace(at, old.size(), second);
}

TEST_F(Tensors, ExponentsAllBelowOrAboveTheRange) {
  const std::string below = R"("lowest":-8,"counts":[7])", above = R"("lowest":9,"counts":[7])";
  const plot::ExponentChart chart = exponent_chart(read(with_histogram(R"("lowest":0,"counts":[7])", above)));
  EXPECT_EQ(chart.panels.at(0).worst, "1 down_proj") << "saturated codes are not normal";
  EXPECT_HOLDS(plot::terminal_exponents(exponent_chart(read(with_histogram(below, below))), 80), "subnormal 100 %;");
}

TEST_F(Tensors, HistogramsThatNoOperandHasAreRefused) {
  const std::string good = R"("lowest":-8,"counts":[7])";
  for (const char* bad : {R"("lowest":-9000000000000000000,"counts":[1])", R"("lowest":-200000000,"counts":[1])",
                          R"("lowest":9223372036854775807,"counts":[1])"})
    EXPECT_HOLDS(complaint(with_histogram(good, bad)), "scaled_histogram: exponents beyond +-1100");
  for (const char* bad :
       {R"("lowest":0,"counts":[1,-5])", R"("lowest":0,"counts":[1e300])", R"("lowest":0,"counts":["1"])"})
    EXPECT_HOLDS(complaint(with_histogram(good, bad)), "scaled_histogram: \"counts\": not whole numbers from 0");
}

std::string experts(int step, int layer, const std::string& rows) {
  return R"({"type":"experts","layer":)" + std::to_string(layer) + R"(,"module":"model.layers.)" +
         std::to_string(layer) + R"(.mlp.experts","rows":[)" + rows + R"(],"step":)" + std::to_string(step) + "}\n";
}

TEST_F(Tensors, LoadsOfExpertsAreRowsOverTheMean) {
  const TensorRun run = read(experts(2, 3, "2,4,0,2") + experts(2, 1, "1,1") + experts(4, 3, "1,1,1,5"));
  EXPECT_EQ(run.steps, (std::vector<std::int64_t>{2, 4}));
  EXPECT_TRUE(run.series.empty()) << "a run in bf16 has loads alone";
  ASSERT_EQ(run.experts.size(), 2u);
  EXPECT_EQ(run.experts[0].layer, 3);
  EXPECT_EQ(run.experts[0].at, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(run.experts[0].loads[0], (std::vector<double>{1, 2, 0, 1}));
  EXPECT_EQ(run.experts[1].at, std::vector<std::size_t>{0});
  const auto worst = worst_loads(run);
  ASSERT_EQ(worst.size(), 2u);
  EXPECT_EQ(worst[0].layer, 3) << "the largest load first";
  EXPECT_EQ(worst[0].expert, 3u);
  EXPECT_EQ(worst[0].load, 2.5);
  EXPECT_EQ(worst[0].step, 4);
  EXPECT_EQ(worst[0].last, 2.5);
  EXPECT_EQ(worst[0].idle, 0) << "at the last step";
  EXPECT_EQ(worst[1].load, 1);
  const std::string records = json::dump(tensor_records(run).at(0));
  EXPECT_EQ(records, R"({"type":"experts","layer":3,"experts":4,"steps":2,"load_max":2.5,"load_max_expert":3,)"
                     R"("load_max_step":4,"last_load_max":2.5,"last_idle":0})");
}

TEST_F(Tensors, LoadsStandBesideOperands) {
  const TensorRun run = read(records(2) + experts(2, 0, "3,1") + records(4) + experts(4, 0, "2,2"));
  EXPECT_EQ(run.series.size(), 3u);
  ASSERT_EQ(run.experts.size(), 1u);
  EXPECT_EQ(run.experts[0].loads[1], (std::vector<double>{1, 1}));
  EXPECT_EQ(heatmap(run, kSqnr, 10).rows.size(), 2u);
  EXPECT_EQ(tensor_records(run).size(), 4u);
  std::string csv;
  write_tensor_csv(run, [&](std::string_view piece) { csv += piece; });
  EXPECT_HOLDS(csv, "dynamic_range,relative_error,expert_load\n2,model.layers.0.mlp.up_proj.weight,forward,");
  EXPECT_HOLDS(csv,
               "2,model.layers.1.mlp.up_proj.weight,wgrad,,tensorwise,,,,,,,,,0.03,\n"
               "2,model.layers.0.mlp.experts.0,,,,,,,,,,,,,1.5\n"
               "2,model.layers.0.mlp.experts.1,,,,,,,,,,,,,0.5\n4,model.layers.0");
  for (std::size_t from = 0, end = csv.find('\n'); end != std::string::npos; from = end + 1, end = csv.find('\n', from))
    EXPECT_EQ(std::count(csv.begin() + static_cast<std::ptrdiff_t>(from),
                         csv.begin() + static_cast<std::ptrdiff_t>(end), ','),
              14)
        << csv.substr(from, end - from);
}

// The experts of each family have its own name.
TEST_F(Tensors, LoadsHaveTheModuleOfTheirRecords) {
  std::string mixtral = experts(2, 0, "3,1");
  mixtral.replace(mixtral.find("mlp"), 3, "block_sparse_moe");
  const TensorRun run = read(mixtral);
  EXPECT_EQ(run.experts.at(0).module, "model.layers.0.block_sparse_moe.experts");
  std::string csv;
  write_tensor_csv(run, [&](std::string_view piece) { csv += piece; });
  EXPECT_HOLDS(csv, "\n2,model.layers.0.block_sparse_moe.experts.1,");
}

std::string routes(const std::string& recipe, int layer, const std::string& differ) {
  return R"({"type":"routes","recipe":")" + recipe + R"(","reference":"fp32","layer":)" + std::to_string(layer) +
         R"(,"tokens":128,"experts_per_token":2,"differ":)" + differ + R"(,"experts_differ":0.125})" + "\n";
}

// Routes as fp8-inspect --routes fp32 writes them: the records of bf16 come before the inspection.
TEST_F(Tensors, RoutesAreShownByLayer) {
  const std::string inspection = "{\"type\":\"inspect\",\"step\":7}\n";
  const TensorRun run = read(routes("bf16", 10, "0.25") + routes("bf16", 2, "0.0") + inspection +
                             routes("rowwise", 10, "0.5") + routes("rowwise", 2, "null"));
  ASSERT_EQ(run.routes.size(), 4U);
  const auto worst = worst_routes(run);
  EXPECT_EQ(worst.at(0).recipe + " " + std::to_string(worst.at(0).layer), "rowwise 10");
  EXPECT_EQ(worst.at(1).recipe, "bf16");
  EXPECT_TRUE(std::isnan(worst.back().differ)) << "a share of no tokens comes last";
  EXPECT_EQ(json::dump(tensor_records(run).front()),
            R"({"type":"routes","recipe":"bf16","reference":"fp32","layer":10,"tokens":128,"differ":0.25,)"
            R"("experts_differ":0.125})");
  const plot::Heatmap map = route_heatmap(run);
  EXPECT_EQ(map.rows, (std::vector<std::string>{"2", "10"}));
  EXPECT_EQ(map.columns, (std::vector<std::string>{"bf16", "rowwise"}));
  ASSERT_EQ(map.panels.size(), 1U);
  EXPECT_EQ(map.panels[0].title, "against fp32");
  EXPECT_EQ(map.panels[0].values[0], 0);
  EXPECT_TRUE(std::isnan(map.panels[0].values[1]));
  EXPECT_EQ(map.panels[0].values[2], 25);
  EXPECT_EQ(map.high, 50);
  EXPECT_HOLDS(test::error_of([&] { (void)heatmap(run, kSqnr, 10); }), ": no record has a value of sqnr_db");
  EXPECT_HOLDS(test::error_of([&] { (void)exponent_chart(run); }), ": no record has a histogram");
  EXPECT_HOLDS(test::error_of([&] { (void)expert_heatmap(run, 10); }), ": no record of experts");
  EXPECT_HOLDS(test::error_of([&] { (void)route_heatmap(read(records(2))); }), ": no record of routes");
}

TEST_F(Tensors, RoutesInCsvHaveColumnsOfTheirOwn) {
  const auto csv_of = [&](const std::string& text) {
    std::string csv;
    write_tensor_csv(read(text), [&](std::string_view piece) { csv += piece; });
    return csv;
  };
  const std::string alone = csv_of(routes("bf16", 1, "0.25"));
  EXPECT_HOLDS(alone, "relative_error,differ,experts_differ\n,model.layers.1,,,bf16,,,,,,,,,,0.25,0.125\n");
  const std::string all = csv_of(records(2) + experts(2, 0, "3,1") + routes("bf16", 1, "0.25"));
  EXPECT_HOLDS(all, "relative_error,expert_load,differ,experts_differ\n");
  EXPECT_HOLDS(all, "\n2,model.layers.1,,,bf16,,,,,,,,,,,0.25,0.125\n");
  for (std::size_t from = 0, end = all.find('\n'); end != std::string::npos; from = end + 1, end = all.find('\n', from))
    EXPECT_EQ(std::ranges::count(all.substr(from, end - from), ','), 16) << all.substr(from, end - from);
}

TEST_F(Tensors, BadRoutesAreNamed) {
  EXPECT_EQ(complaint(routes("bf16", -1, "0.5")), "line 1: layer -1: layers count from 0");
  for (const char* differ : {"1.5", "-0.5"})
    EXPECT_EQ(complaint(routes("bf16", 1, differ)), "line 1: record: \"differ\": not a share from 0 to 1");
  const TensorRun again = read(routes("bf16", 1, "0.5") + routes("bf16", 1, "0.25"));
  ASSERT_EQ(again.routes.size(), 1U) << "the last record of a layer and recipe counts";
  EXPECT_EQ(again.routes[0].differ, 0.25);
}

TEST_F(Tensors, LoadsOfAResumedRunReplaceLaterOnes) {
  const std::string two = experts(2, 0, "3,1"), four = experts(4, 0, "4,0"), again = experts(4, 0, "1,3");
  for (const std::string& text : {two + four + experts(6, 0, "4,0") + again, two + four + again,
                                  two + four.substr(0, four.size() - 9) + "\n" + again}) {
    const TensorRun run = read(text);
    EXPECT_EQ(run.steps, (std::vector<std::int64_t>{2, 4}));
    EXPECT_EQ(run.experts.at(0).loads, (std::vector<std::vector<double>>{{1.5, 0.5}, {0.5, 1.5}}));
  }
  const TensorRun none = read(two + operand(1, "0.mlp.up_proj", "input", {}));
  EXPECT_TRUE(worst_loads(none).empty()) << "step 1 came again, without experts";
  EXPECT_HOLDS(test::error_of([&] { (void)expert_heatmap(none, 10); }), ": no record of experts");
}

TEST_F(Tensors, BadLoadsAreNamed) {
  EXPECT_EQ(complaint(experts(1, -1, "1")), "line 1: layer -1: layers count from 0");
  EXPECT_EQ(complaint(experts(0, 0, "1")), "line 1: step 0: steps count from 1");
  for (const char* rows : {"1,-1", "1.5", "\"1\"", "1,null"})
    EXPECT_EQ(complaint(experts(1, 0, rows)), "line 1: record: \"rows\": not whole numbers from 0") << rows;
  for (const char* rows : {"", "0,0"})
    EXPECT_EQ(complaint(experts(1, 0, rows)), "line 1: record: \"rows\": no expert has any") << rows;
  EXPECT_EQ(complaint(experts(1, 0, "1,2") + experts(2, 0, "1,2,3")), "line 2: record: \"rows\": 3 experts, 2 before");
}

TEST_F(Tensors, HeatmapOfLoadsHasMeansOfSteps) {
  std::string text;
  for (int step = 1; step <= 4; ++step)
    text += experts(step, 10, "1,1") + experts(step, 2, step == 2 ? "0,3,0" : "1,1,1");
  const TensorRun run = read(text);
  const plot::Heatmap all = expert_heatmap(run, 10);
  EXPECT_EQ(all.rows,
            (std::vector<std::string>{"2 expert 0", "2 expert 1", "2 expert 2", "10 expert 0", "10 expert 1"}));
  EXPECT_EQ(all.steps, (std::vector<std::int64_t>{1, 2, 3, 4, 4}));
  ASSERT_EQ(all.panels.size(), 1u);
  EXPECT_EQ(std::vector<double>(all.panels[0].values.begin(), all.panels[0].values.begin() + 8),
            (std::vector<double>{1, 0, 1, 1, 1, 3, 1, 1}));
  EXPECT_EQ(all.low, 0);
  EXPECT_EQ(all.high, 3);
  const plot::Heatmap few = expert_heatmap(run, 2);
  EXPECT_EQ(few.steps, (std::vector<std::int64_t>{1, 3, 4}));
  EXPECT_EQ(few.panels[0].values, (std::vector<double>{0.5, 1, 2, 1, 0.5, 1, 1, 1, 1, 1}));
  EXPECT_EQ(few.high, 2) << "the mean load is in the middle of the colours at least";
  EXPECT_HOLDS(few.title, "mean of 2 steps");
  EXPECT_HOLDS(test::error_of([&] { (void)heatmap(run, kSqnr, 10); }), ": no record has a value of sqnr_db");
  EXPECT_HOLDS(test::error_of([&] { (void)exponent_chart(run); }), ": no record has a histogram");
}

}  // namespace
}  // namespace fp8::log
