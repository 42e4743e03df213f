// Prices of operations and exchanges, overlap, pipelines, and machine files.
#include "fp8/plan/price.h"

#include <gtest/gtest.h>

#include <fstream>

#include "fp8/base/error.h"
#include "fp8_test.h"

namespace fp8::plan {
namespace {

using device::Exchange;
using device::ExchangeKind;
using device::OperandKind;
using device::Span;
using device::SpanKind;
using device::Work;
using test::error_of;

// Rates of which times are easy to say: a GEMM of 1e12 FLOPs takes a second in bf16 and half of one in FP8, kernels
// move 1e9 bytes/s, a link 1e9 and the network 1e8.
Machine simple() {
  Machine m;
  m.processors = 1;
  m.f32 = {{1e11, 1e11}, 0};
  m.bf16 = {{1e12, 1e12}, 0};
  m.fp8 = {{2e12, 4e12}, 0};
  m.fp8_accurate = {{1e12, 2e12}, 0};
  m.fp8_blocks = {{5e11, 1e12}, 0};
  m.attention_forward = {{1024, {1e12, 1e12}}, {4096, {3e12, 3e12}}};
  m.attention_backward = {{1024, {5e11, 5e11}}};
  m.attention_heads = {{1, {1, 1}}};
  m.cast = m.kernel = m.optimizer = {1e9, 1e9};
  m.link = {{1e9, 1e9}, {0, 0}};
  m.network = {{1e8, 1e8}, {0, 0}};
  m.linked_ranks = 4;
  return m;
}

Span gemm(Work work, OperandKind kind, double flops) {
  Span s{.work = work, .bytes = 8, .flops = flops, .mnk = {100, 100, 100}};
  s.launches = 0;
  s.gemms = 1;
  s.operands = kind;
  return s;
}
Span kernel(double seconds, int launches = 0) {
  Span s{.work = Work::elementwise, .bytes = seconds * 1e9};
  s.launches = launches;
  return s;
}
Span of_kind(SpanKind kind, std::int64_t number) {
  Span s{.work = Work::communication};
  s.kind = kind;
  s.number = number;
  return s;
}
Span start(std::int64_t number, double seconds) {
  Span s = of_kind(SpanKind::start, number);
  s.exchange = {ExchangeKind::all_to_all, 2, 1, seconds * 1e9};
  return s;
}
Span wait(std::int64_t number) { return of_kind(SpanKind::wait, number); }
Span mark(std::string_view name, std::int64_t number) {
  Span s = of_kind(SpanKind::mark, number);
  s.name = name;
  return s;
}

double total(const Machine& m, const std::vector<Span>& record, const Habits& habits = {}) {
  double seconds = 0;
  for (const Pass& p : passes_of({m, {}, habits}, Record(record))) seconds += p.times.total();
  return seconds;
}

TEST(Price, OfGemmsIsThatOfTheirKindAndDirection) {
  const Machine m = simple();
  const auto seconds = [&](Work work, OperandKind kind, device::Scaling scaling, bool fast) {
    Span s = gemm(work, kind, 1e12);
    s.scaling = scaling;
    return seconds_of(m, {fast}, s);
  };
  EXPECT_DOUBLE_EQ(seconds(Work::matmul_forward, OperandKind::bf16, {}, false), 1);
  EXPECT_DOUBLE_EQ(seconds(Work::matmul_forward, OperandKind::f32, {}, false), 10);
  EXPECT_DOUBLE_EQ(seconds(Work::matmul_forward, OperandKind::fp8, device::Scaling::tensor, false), 0.5);
  EXPECT_DOUBLE_EQ(seconds(Work::matmul_forward, OperandKind::fp8, device::Scaling::tensor, true), 0.25);
  EXPECT_DOUBLE_EQ(seconds(Work::matmul_wgrad, OperandKind::fp8, device::Scaling::row, false), 1);
  EXPECT_DOUBLE_EQ(seconds(Work::matmul_dgrad, OperandKind::fp8, device::Scaling::block1x128, false), 2);
}

TEST(Price, OfFp4IsThatOfTheChipOrOfBf16) {
  Machine m = simple();
  const Span s = gemm(Work::matmul_wgrad, OperandKind::fp4, 1e12);
  EXPECT_DOUBLE_EQ(seconds_of(m, {}, s), 1) << "a CPU multiplies FP4 values as bf16";
  m.fp4 = {{4e12, 5e12}, 0};
  EXPECT_DOUBLE_EQ(seconds_of(m, {}, s), 0.25);
  m.cores = 4;
  EXPECT_DOUBLE_EQ(seconds_of(m.share_of(4), {}, s), 1);
}

TEST(Price, OfAGemmIsThatOfTheMeasuredShapesNearIt) {
  Machine m = simple();
  m.bf16.shapes = {{100, 100, 100, {5e11, 1e12}}, {1600, 100, 100, {2e12, 4e12}}, {100, 1e9, 1e9, {1, 1}}};
  Span s = gemm(Work::matmul_forward, OperandKind::bf16, 1e12);
  EXPECT_NEAR(seconds_of(m, {false}, s), 2, 1e-6);
  EXPECT_NEAR(seconds_of(m, {true}, s), 1, 1e-6);
  s.mnk = {800, 100, 100};
  s.gemms = 2;  // of 400 rows each, in the middle of both
  EXPECT_NEAR(seconds_of(m, {false}, s), 1, 0.01);
  EXPECT_DOUBLE_EQ(seconds_of(m, {}, gemm(Work::matmul_forward, OperandKind::f32, 1e12)), 10) << "has no shapes";
}

TEST(Price, OfAnOperationIsThatOfItsNameIfItWasMeasured) {
  Machine m = simple();
  m.operations["rope"] = {{1e3, {1e6, 2e6}}, {1e9, {5e9, 5e9}}};
  Span s{.work = Work::elementwise, .name = "rope", .bytes = 1e3};
  EXPECT_DOUBLE_EQ(seconds_of(m, {}, s), 1e-3);
  s.bytes = 1e10;
  EXPECT_DOUBLE_EQ(seconds_of(m, {}, s), 2);
  s.name = "add";
  EXPECT_DOUBLE_EQ(seconds_of(m, {}, s), 10);
}

TEST(Price, RanksOfAHostShareItsCores) {
  Machine m = simple();
  m.memory = 8;
  m.bf16.shapes = {{100, 100, 100, {1e12, 1e12}}};
  m.operations["rope"] = {{1, {1e9, 1e9}}};
  const auto seconds = [](const Machine& machine) {
    return std::vector{
        seconds_of(machine, {}, gemm(Work::matmul_forward, OperandKind::bf16, 1e12)),
        seconds_of(machine, {}, gemm(Work::matmul_forward, OperandKind::f32, 1e12)),
        seconds_of(machine, {}, Span{.work = Work::elementwise, .name = "rope", .bytes = 1e9}),
        seconds_of(machine, {}, kernel(1)),
        seconds_of(machine, {},
                   Span{.work = Work::attention, .name = "attention", .flops = 1e12, .mnk = {8, 1024, 64}})};
  };
  const std::vector<double> alone = seconds(m.share_of(4));
  m.cores = 4;
  const std::vector<double> shared = seconds(m.share_of(4));
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(shared[i], 4 * alone[i], 1e-5 * shared[i]) << i;
  EXPECT_EQ(m.share_of(4).memory, 2U);
  EXPECT_EQ(m.share_of(4).link.rate.slow, m.link.rate.slow);
}

TEST(Price, OfAGemmIsThatOfItsBytesIfTheyTakeLonger) {
  Span s = gemm(Work::matmul_forward, OperandKind::bf16, 1e9);
  s.bytes = 2e9;
  EXPECT_DOUBLE_EQ(seconds_of(simple(), {}, s), 2);
}

TEST(Price, OfASmallGemmGrowsWithEmptyTilesAndAShallowSum) {
  Machine m = simple();
  m.processors = 100;
  Span s = gemm(Work::matmul_forward, OperandKind::bf16, 1e12);
  s.mnk = {1280, 2560, 100};  // 100 tiles of 128 x 256, one wave
  EXPECT_DOUBLE_EQ(seconds_of(m, {}, s), 1);
  s.mnk = {1280, 2561, 100};  // another column of tiles
  EXPECT_GT(seconds_of(m, {}, s), 1.15);
  s.mnk = {1280, 2560, 100};
  m.bf16.depth = 100;
  EXPECT_DOUBLE_EQ(seconds_of(m, {}, s), 2);
}

TEST(Price, OfAttentionFollowsTheCurveOfItsPositions) {
  const Machine m = simple();
  const auto seconds = [&](std::string_view name, std::int64_t positions) {
    return seconds_of(m, {}, Span{.work = Work::attention, .name = name, .flops = 1e12, .mnk = {8, positions, 64}});
  };
  EXPECT_DOUBLE_EQ(seconds("attention", 512), 1);
  EXPECT_DOUBLE_EQ(seconds("attention", 2048), 0.5);  // the middle of the logarithms of 1024 and 4096
  EXPECT_DOUBLE_EQ(seconds("attention", 8192), 1.0 / 3);
  EXPECT_DOUBLE_EQ(seconds("attention backward", 8192), 2);
}

TEST(Price, OfExchangesIsThatOfTheirSlowestLink) {
  const Machine m = simple();
  const auto seconds = [&](ExchangeKind kind, int ranks, int machines) {
    return seconds_of(m, {}, Exchange{kind, ranks, machines, 1e9});
  };
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_gather, 1, 1), 0);
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_gather, 4, 1), 0.75);
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::reduce_scatter, 4, 1), 0.75);
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_reduce, 4, 1), 1.5);
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_gather, 8, 2), 1.25);  // half of it through four ranks' networks
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_gather, 2, 2), 5);
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::message, 2, 1), 1);
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::message, 2, 2), 10);
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_to_all, 4, 1), 1);
  EXPECT_NEAR(seconds(ExchangeKind::all_to_all, 8, 2), 10 * 4.0 / 7, 1e-12);
}

TEST(Price, HopsAddToEachExchange) {
  Machine m = simple();
  m.link.hop = {1, 1};
  EXPECT_DOUBLE_EQ(seconds_of(m, {}, Exchange{ExchangeKind::all_gather, 4, 1, 0}), 3);
  EXPECT_DOUBLE_EQ(seconds_of(m, {}, Exchange{ExchangeKind::all_reduce, 4, 1, 0}), 6);
  EXPECT_DOUBLE_EQ(seconds_of(m, {}, Exchange{ExchangeKind::all_reduce, 4096, 1, 0}), 144);
}

TEST(Price, AnExchangeCostsWhatNoOperationHides) {
  const Machine m = simple();
  EXPECT_DOUBLE_EQ(total(m, {start(1, 2), kernel(3), wait(1)}), 3);
  EXPECT_DOUBLE_EQ(total(m, {start(1, 2), kernel(0.5), wait(1)}), 2);
  EXPECT_DOUBLE_EQ(total(m, {start(1, 2), wait(1), kernel(0.5)}), 2.5);
  EXPECT_DOUBLE_EQ(total(m, {start(1, 2), start(2, 2), kernel(3), wait(1), wait(2)}), 4);  // one after the other
}

TEST(Price, AHiddenExchangeSlowsTheOperationsBesideIt) {
  Machine m = simple();
  m.contention = {0.1, 0.1};
  EXPECT_DOUBLE_EQ(total(m, {start(1, 2), kernel(3), wait(1)}), 3.2);
}

TEST(Price, AHostThatLaunchesSlowlyIsWaitedFor) {
  Machine m = simple();
  m.launch = {0.25, 0.25};
  EXPECT_DOUBLE_EQ(total(m, {kernel(1, 2)}), 1.5);
  m.host_launch = {1, 1};
  EXPECT_DOUBLE_EQ(total(m, {kernel(1, 2)}), 2);
  Habits graphs;
  graphs.graphs = true;
  EXPECT_DOUBLE_EQ(total(m, {kernel(1, 2)}, graphs), 1.5);
}

TEST(Price, HabitsShortenWaitsAndFuseKernels) {
  const Machine m = simple();
  Habits overlap, fused, repeated;
  overlap.awaited = fused.fused = repeated.repeated_gemms = 0.5;
  EXPECT_DOUBLE_EQ(total(m, {start(1, 2), wait(1)}, overlap), 1);
  EXPECT_DOUBLE_EQ(total(m, {start(1, 2), kernel(1), wait(1)}, overlap), 2);
  EXPECT_DOUBLE_EQ(total(m, {kernel(1)}, fused), 0.5);
  const Span forward = gemm(Work::matmul_forward, OperandKind::bf16, 1e12);
  EXPECT_DOUBLE_EQ(total(m, {mark(device::kForwardMark, 0), forward, mark(device::kBackwardMark, 0)}, repeated), 1.5);
}

std::vector<Pass> stage(double forward, double backward, std::int64_t count) {
  std::vector<Span> record;
  for (std::int64_t i = 0; i < count; ++i)
    record.insert(record.end(),
                  {mark(device::kForwardMark, i), kernel(forward), mark(device::kBackwardMark, i), kernel(backward)});
  record.insert(record.end(), {mark(device::kUpdateMark, 0), kernel(1)});
  const Machine m = simple();
  return passes_of({m, {}, {}}, Record(record));
}

TEST(Pipeline, OfOneStageIsTheSumOfItsPasses) {
  const std::vector<std::vector<Pass>> one{stage(1, 2, 3)};
  EXPECT_DOUBLE_EQ(step_of(one, {.micro_batches = 3}).total(), 10);
  const Times many = step_of(one, {.micro_batches = 1000000});
  EXPECT_NEAR(many.total(), 3e6 + 1, 1e-3);
  EXPECT_DOUBLE_EQ(many[Term::bubble], 0);
  EXPECT_DOUBLE_EQ(many[Term::update], 1);
}

TEST(Pipeline, OfEqualStagesHasTheKnownBubble) {
  for (const int stages : {2, 4})
    for (const std::int64_t count : {1, 4, 64}) {
      const std::vector<std::vector<Pass>> each(static_cast<std::size_t>(stages), stage(1, 2, 3));
      const Times t = step_of(each, {.micro_batches = count});
      EXPECT_NEAR(t.total(), 3.0 * static_cast<double>(count + stages - 1) + 1, 1e-9) << stages << " " << count;
      EXPECT_NEAR(t[Term::bubble], 3.0 * (stages - 1), 1e-9);
      const Times interleaved = step_of(each, {.micro_batches = count, .virtual_stages = 3});
      EXPECT_NEAR(interleaved[Term::bubble], stages - 1.0, 1e-9);
    }
}

TEST(Pipeline, WaitsForItsSlowestStage) {
  const std::vector<std::vector<Pass>> two{stage(1, 1, 3), stage(2, 3, 3)};
  EXPECT_NEAR(step_of(two, {.micro_batches = 1000}).total(), 5 * 1000 + 2 + 1, 1e-6);
  EXPECT_GT(step_of(two, {.micro_batches = 1000, .message = 0.25}).total(), 5003);
}

TEST(Habits, OfAnUnknownProgramAreRefused) {
  EXPECT_EQ(error_of([] { habits_of("nemo"); }), "--as: 'nemo' is not one of megatron, fsdp2");
}

class MachineFile : public test::FolderTest {
 public:
  // The message for an installed file in which `from` is `to`, without the path.
  std::string error(const std::string& from, const std::string& to) const {
    std::string text;
    std::ifstream in("share/machines/h100-sxm.json");
    std::getline(in, text, '\0');
    text.replace(text.find(from), from.size(), to);
    const std::string file = at("m.json");
    std::ofstream(file) << text;
    const std::string message = error_of([&] { open_machine(file, {}); });
    return message.starts_with(file + ": ") ? message.substr(file.size() + 2) : message;
  }
};

TEST_F(MachineFile, OfTheSuiteIsReadWhole) {
  for (const char* name : {"h100-sxm", "h200", "b200", "gb200"}) {
    const Machine m = open_machine(name, {});
    EXPECT_GT(m.memory, std::size_t{80} * 1000 * 1000 * 1000) << name;
    for (const Range& r : {m.bf16.rate, m.fp8.rate, m.cast, m.kernel, m.link.rate, m.network.rate})
      EXPECT_LT(r.slow, r.fast) << name;
    for (const Range& r : {m.launch, m.host_launch, m.link.hop, m.contention}) EXPECT_GT(r.slow, r.fast) << name;
    EXPECT_GT(m.fp8.rate.slow / m.bf16.rate.slow, 1.6) << name;
    EXPECT_EQ(m.fp4.has_value(), m.compute_capability >= 100) << name;
    EXPECT_TRUE(!m.fp4 || m.fp4->rate.slow / m.fp8.rate.slow > 1.6) << name;
  }
}

TEST_F(MachineFile, ValuesAreSetByTheirKeys) {
  const Machine m = open_machine("h100-sxm", {"memory=141e9", "gemm.bf16.rate=[1e12,2e12]", "network.hop=0"});
  EXPECT_EQ(m.memory, 141000000000U);
  EXPECT_EQ(m.bf16.rate.slow, 1e12);
  EXPECT_EQ(m.bf16.rate.fast, 2e12);
  EXPECT_EQ(m.network.hop.slow, 0);
  for (const auto& [wrong, hint] : {std::pair<std::string, std::string>("memory", ""),
                                    {"gemm.bf16=1", ""},
                                    {"name=x", ""},
                                    {"memry=1", " (did you mean machine.memory?)"},
                                    {"gemm.fb16.rate=1", " (did you mean machine.gemm.bf16?)"}})
    EXPECT_EQ(
        error_of([&, &key = wrong] { open_machine("h100-sxm", {key}); }),
        "--set machine." + wrong + ": needs KEY=VALUE with a key of the machine's file, as gemm.bf16.rate" + hint);
}

TEST_F(MachineFile, ErrorsNameTheFigure) {
  EXPECT_EQ(error("\"memory\"", "\"memroy\""), "\"memory\" is missing");
  EXPECT_EQ(error("\"hop\"", "\"hops\""), "link: \"hop\" is missing");
  EXPECT_EQ(error("\"contention\"", "\"contntion\": {\"value\": 1}, \"contention\""),
            "unknown key 'contntion' (did you mean contention?)");
  EXPECT_EQ(error("\"depth\"", "\"shape\": {\"value\": 1}, \"depth\""),
            "gemm: f32: unknown key 'shape' (did you mean shapes?)");
  EXPECT_EQ(error("\"value\": 84.9e9", "\"value\": 84.9e9, \"sorce\": \"\""),
            "memory: unknown key 'sorce' (did you mean source?)");
  EXPECT_EQ(error("84.9e9", "-1"), "memory: needs a number from 1e-12 to 1e24");
  EXPECT_EQ(error("84.9e9", "\"80 GB\""), "memory: needs a number");
  EXPECT_EQ(error("\"device\": \"cuda\"", "\"device\": \"tpu\""), "device: 'tpu' is not cuda or cpu");
  EXPECT_EQ(error("[643e12, 770e12]", "[643e12]"),
            "gemm: bf16: rate: needs a number, or two: that which makes a step slow, and that which makes it fast");
  EXPECT_EQ(error("[643e12, 770e12]", "[770e12, 643e12]"),
            "gemm: bf16: rate: needs the smaller rate first, which makes a step slow");
  EXPECT_EQ(error("[0.15, 0]", "[0, 0.15]"), "contention: needs the larger value first, which makes a step slow");
  EXPECT_EQ(error("84.9e9", "1e30"), "memory: needs a number from 1e-12 to 1e24");
  EXPECT_EQ(error("84.9e9", "0.5"), "memory: needs bytes from 1e6 to 1e15");
  EXPECT_EQ(error("[1024, 291.2e12", "[9024, 291.2e12"), "attention: forward: needs increasing sizes");
}

}  // namespace
}  // namespace fp8::plan
