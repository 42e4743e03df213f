// Checks that compute and measurements, on the host: exact GEMMs under every recipe, a diagnosis, timings, a benchmark
// of the smallest model.
#include <algorithm>
#include <cmath>
#include <set>

#include "exact.h"
#include "fp8/json/json.h"
#include "fp8/model/presets.h"
#include "fp8/probe/bench.h"
#include "fp8/probe/doctor.h"
#include "fp8/probe/report.h"
#include "fp8_test.h"
#include "steps.h"
#include "timing.h"

namespace fp8::probe {
namespace {

TEST(Exact, HostGemmsAreExactUnderEveryRecipe) {
  const device::Device host;
  EXPECT_EQ(check_products(host, nullptr), "y, dx and dw exact, 0 of 3 GEMMs in FP8");
  for (const quant::Recipe& recipe : quant::recipes()) {
    if (recipe.fp4()) continue;  // four bits, of a transform, do not hold the products
    EXPECT_EQ(check_products(host, &recipe),
              "y, dx and dw exact, " + std::to_string(recipe.fp8_gemms()) + " of 3 GEMMs in FP8");
  }
}

TEST(Exact, HostAttentionAndAllReduceAgree) {
  const device::Device host;
  EXPECT_EQ(check_attention(host), 0);
  check_all_reduce(host);
}

TEST(Exact, WrongElementIsReported) {
  const device::Device host;
  const tensor::Tensor t(dtype::DType::bf16, {2, 3});
  t.as<dtype::Bf16>()[4] = dtype::to_bf16(2);
  check_values(host.context(), "y", t.view(), {0, 0, 0, 0, 2, 0});
  EXPECT_EQ(test::error_of([&] {
              check_values(host.context(), "y", t.view(), {0, 0, 0, 0, 3, 0});
            }),
            "y[1, 1] is 2.000000, not 3.000000");
  t.as<dtype::Bf16>()[2].bits = 0x7FC0;
  EXPECT_HOLDS(test::error_of([&] { check_values(host.context(), "y", t.view(), {0, 0, 0, 0, 2, 0}); }), "y[0, 2]");
}

TEST(Doctor, EveryCheckHasAVerdict) {
  const Diagnosis d = diagnose({"", "/nowhere"});
  std::set<std::string> names;
  for (const Check& c : d.checks) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name << " twice";
    EXPECT_FALSE(c.detail.empty()) << c.name;
    EXPECT_TRUE(c.verdict != Verdict::fail || !c.hint.empty()) << c.name << ": " << c.detail;
    EXPECT_EQ(c.detail.find('\n'), std::string::npos) << c.name;
    if (c.name == "GPU" || c.name == "FP8 emulation" || c.name == "instruction set" || c.name == "bf16 GEMMs") {
      EXPECT_NE(c.common, "") << c.name << ": hosts of a job need it in common";
    }
    if (c.name == "MPI") {
      EXPECT_EQ(c.verdict, Verdict::fail);
      EXPECT_HOLDS(c.detail, "no mpirun in PATH");
    }
  }
  for (const char* name : {"GPU", "FP8 tensor cores", "driver", "runtime", "cuBLASLt", "cuDNN", "NCCL", "bf16 linear",
                           "FP8 linear tensorwise", "attention", "NCCL all-reduce", "oneDNN", "HDF5", "InfiniBand"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_TRUE(d.emulated);
  EXPECT_EQ(d.native, device::why_no_cuda().empty() && d.native);  // false without a GPU
  EXPECT_EQ(to_json(d).as_object().get_array("checks", "report").size(), d.checks.size());
}

TEST(Doctor, ReportsTheStackPointerDefectOfOneDnn) {
  const Check c = onednn_check({{3, 11, 1}, true});
  EXPECT_EQ(c.verdict, Verdict::pass);
  EXPECT_HOLDS(c.detail, "oneDNN 3.11.1; ");
  EXPECT_HOLDS(c.detail, "stack pointer");
  EXPECT_HOLDS(c.hint, "sigaltstack");
  EXPECT_HOLDS(onednn_check({{2, 6, 3}, true}).hint, "issue 4845");
  EXPECT_HOLDS(onednn_check({{3, 9, 9}, true}).hint, "issue 4845");
  for (const gemm::HostLibrary& mended :
       {gemm::HostLibrary{{3, 11, 2}, true}, {{3, 13, 0}, true}, {{2, 6, 3}, false}}) {
    EXPECT_EQ(onednn_check(mended).hint, "");
    EXPECT_EQ(onednn_check(mended).detail.find("stack"), std::string::npos);
  }
  const auto [major, minor, patch] = gemm::host_library().version;
  EXPECT_EQ(gemm::library_version(),
            "oneDNN " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch));
}

TEST(Doctor, OverallVerdict) {
  Diagnosis d;
  d.device = "CPU";
  EXPECT_EQ(verdict_of(d), "FP8 cannot run here");
  EXPECT_EQ(to_json(d).as_object().get_string("fp8", "report"), "none");
  d.emulated = true;
  EXPECT_HOLDS(verdict_of(d), "the CPU emulates it");
  EXPECT_EQ(to_json(d).as_object().get_string("fp8", "report"), "emulated");
  d.native = true, d.device = "a GPU";
  EXPECT_EQ(verdict_of(d), "FP8 runs here, on a GPU");
  EXPECT_EQ(to_json(d).as_object().get_string("fp8", "report"), "native");
}

TEST(Timing, MedianAndQuartiles) {
  const Timing t = timing_of({5, 1, 2, 4, 3});
  EXPECT_EQ(t.median, 3);
  EXPECT_EQ(t.low, 2);
  EXPECT_EQ(t.high, 4);
  EXPECT_EQ(t.samples, 5);
  EXPECT_EQ(timing_of({1, 2}).median, 1.5);
  EXPECT_EQ(timing_of({}).samples, 0);
}

TEST(Timing, MedianHasAnIntervalFromSixSamples) {
  EXPECT_EQ(ratio_of({1, 2, 3, 4, 5}).median, 3);
  EXPECT_EQ(ratio_of({1, 2, 3, 4, 5}).low, 0);
  EXPECT_TRUE(std::isinf(ratio_of({1, 2, 3, 4, 5}).high));
  const Ratio six = ratio_of({3, 1, 2, 6, 5, 4});
  EXPECT_EQ(six.low, 1);
  EXPECT_EQ(six.high, 6);
  // The table of the sign test: 5 of 20 samples on either side are outside.
  std::vector<double> twenty;
  for (int i = 1; i <= 20; ++i) twenty.push_back(i);
  EXPECT_EQ(ratio_of(twenty).low, 6);
  EXPECT_EQ(ratio_of(twenty).high, 15);
}

TEST(Timing, UnpairedRatioHasAnIntervalFromFourSamples) {
  const Ratio three = ratio_of({2, 2, 2}, {1, 1, 1});
  EXPECT_EQ(three.median, 2);
  EXPECT_TRUE(std::isinf(three.high));
  const Ratio four = ratio_of({2, 4, 4, 4}, {1, 1, 1, 2});
  EXPECT_EQ(four.low, 1);
  EXPECT_EQ(four.high, 4);
  // The table of the rank-sum test: 2 for five and five samples, so the third smallest ratio of 25 is the end.
  const std::vector<double> one(5, 1), rising = {1, 2, 3, 4, 5};
  EXPECT_EQ(ratio_of(rising, one).low, 1);
  EXPECT_EQ(ratio_of({1, 1, 1, 1, 1}, {1, 1, 1, 1, 2}).low, 0.5);
}

TEST(Timing, VerdictsNeedTheWholeInterval) {
  EXPECT_EQ(speed_of({1.5, 1.1, 1.9}, false), Speed::faster);
  EXPECT_EQ(speed_of({1.5, 0.9, 1.9}, false), Speed::cannot_tell);
  EXPECT_EQ(speed_of({0.9, 0.8, 0.95}, false), Speed::not_faster);
  EXPECT_EQ(speed_of({2}, false), Speed::cannot_tell);
  EXPECT_EQ(speed_of({1.5, 1.1, 1.9}, true), Speed::cannot_tell);
  EXPECT_EQ(speed_of({0.9, 0.8, 0.95}, true), Speed::not_faster);
}

TEST(Timing, CallsBothSidesEquallyOften) {
  const device::Device host;
  int first = 0, second = 0;
  volatile double sink = 0;
  const auto work = [&](int& calls) {
    ++calls;
    for (int i = 0; i < 20000; ++i) sink = sink + i;
  };
  const PairedTiming duel = time_both(
      host.context(), [&] { work(first); }, [&] { work(second); }, 0.01);
  EXPECT_GE(duel.first.samples, 6);
  EXPECT_EQ(duel.first.samples, duel.second.samples);
  EXPECT_GE(first, 5);
  EXPECT_GE(second, 5);
  EXPECT_GT(duel.first.median, 0);
  EXPECT_LE(duel.first.low, duel.first.median);
  EXPECT_GT(duel.ratio.median, 0);
  EXPECT_LE(duel.ratio.low, duel.ratio.median);
  EXPECT_LT(duel.ratio.high, 1000);
}

TEST(Timing, WithoutTimeASampleIsOneCall) {
  const device::Device host;
  int first = 0, second = 0;
  (void)time_both(
      host.context(), [&] { ++first; }, [&] { ++second; }, 0);
  EXPECT_EQ(first, 2 + 6);
  EXPECT_EQ(second, 2 + 6);
}

TEST(Steps, BatchFitsTheModel) {
  hf::ModelConfig model;
  model.max_position_embeddings = 2048;
  EXPECT_EQ(batch_of(model, 8192).sequences, 8);
  EXPECT_EQ(batch_of(model, 8192).length, 1024);
  EXPECT_EQ(batch_of(model, 100).length, 100);
  EXPECT_EQ(batch_of(model, 100).sequences, 1);
  model.sliding_window = 64;
  EXPECT_EQ(batch_of(model, 100).length, 64);
}

class Bench : public test::FolderTest {
 protected:
  Bench() {
    options_.model_name = "tiny";
    options_.model = hf::parse_config(model::read_model_config("tiny"), "tiny");
    options_.tokens = 32, options_.seconds = 0.001, options_.steps = 1;
    options_.recipe = &quant::find_recipe("rowwise_with_gw_hp");
  }
  BenchOptions options_;
};

TEST_F(Bench, MeasuresEveryPassAndStepsOnTheHost) {
  std::vector<std::string> said;
  options_.progress = [&](const std::string& what) { said.push_back(what); };
  const BenchResult r = bench(options_);
  EXPECT_EQ(r.device, "CPU");
  EXPECT_TRUE(r.emulated);
  ASSERT_EQ(r.products.size(), 16u);
  for (const ProductResult& p : r.products) {
    EXPECT_GT(p.bf16_s.median, 0) << p.linear << p.pass;
    EXPECT_GT(p.fp8_s.median, 0) << p.linear << p.pass;
    EXPECT_GT(p.ratio.median, 0);
    EXPECT_LE(p.flops() / p.bf16_s.median, r.peak.bf16) << p.linear << p.pass;
    EXPECT_EQ(p.fp8, p.pass != "wgrad") << p.linear << p.pass;
    EXPECT_TRUE(p.cast_share > 0 || !p.fp8) << p.linear << p.pass;
    EXPECT_LT(p.cast_share, 1) << p.linear << p.pass;
  }
  EXPECT_EQ(r.products[0].linear + " " + r.products[0].pass, "q,k,v forward");
  EXPECT_EQ(r.products[0].n, 64 + 2 * 32);
  EXPECT_EQ(r.products[0].flops(), 2.0 * 32 * 128 * 64);
  EXPECT_EQ(r.products[3].flops(), 2 * r.products[0].flops());
  ASSERT_TRUE(r.bf16_steps && r.fp8_steps);
  EXPECT_EQ(r.fp8_steps->seconds.samples, 1);
  EXPECT_EQ(r.bf16_steps->fp8_flop_share, 0);
  EXPECT_GT(r.fp8_steps->fp8_flop_share, 0.5);
  EXPECT_NE(std::find(said.begin(), said.end(), "FP8 step 2"), said.end());
  const json::Value record = to_json(options_, r);
  const json::Object& o = record.as_object();
  EXPECT_EQ(o.get_array("gemms", "report").size(), 16u);
  EXPECT_TRUE(o.get_object("peak_tflops", "report").at("fp8").is_null());
  EXPECT_GT(o.get_object("linears", "report").get_double("ratio", "linears"), 0);
  EXPECT_EQ(o.get_object("steps", "report").get_int("length", "steps"), 32);
}

TEST_F(Bench, MeasuresOneExpertOfTheMeanNumberOfRows) {
  options_.model = hf::parse_config(model::read_model_config("qwen3-moe-tiny"), "qwen3-moe-tiny");
  options_.steps = 0;
  std::map<std::string, ProductResult> of;
  for (const ProductResult& p : bench(options_).products)
    if (p.pass == "forward") of[p.linear] = p;
  ASSERT_EQ(of.size(), 6u);
  EXPECT_EQ(of["q,k,v"].layers, 3);
  EXPECT_EQ(of["q,k,v"].m, 32);
  EXPECT_EQ(of["gate,up"].layers, 1);
  EXPECT_EQ(of["gate,up"].n, 2 * 192);
  EXPECT_EQ(of["expert gate,up"].layers, 2 * 8);
  EXPECT_EQ(of["expert gate,up"].m, 16) << "32 tokens x 3 of 8 experts, in sixteens";
  EXPECT_EQ(of["expert gate,up"].n, 2 * 48);
  EXPECT_EQ(of["expert down"].k, 48);
  EXPECT_EQ(of["expert down"].n, 64);
}

TEST_F(Bench, ReportsAreAtomicAndNotOverwritten) {
  const json::Value report = json::object({{"type", "bench"}});
  save_report(at("r.json"), false, report);
  EXPECT_EQ(json::parse_file(at("r.json")), report);
  EXPECT_HOLDS(test::error_of([&] { save_report(at("r.json"), false, report); }), ": exists");
  save_report(at("r.json"), true, report);
}

}  // namespace
}  // namespace fp8::probe
