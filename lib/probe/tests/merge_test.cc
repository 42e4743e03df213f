// The report of a job from reports of its ranks, which are made up.
#include <algorithm>

#include "fp8/json/json.h"
#include "fp8/probe/job.h"
#include "fp8_test.h"

namespace fp8::probe {
namespace {

// A rank on a machine that can train; its diagnosis has the checks of a host if `host`.
RankReport rank_on(const std::string& name, bool host = true) {
  RankReport r{.host = name, .version = "1.0", .processors = "0-3", .processor_count = 4, .threads = 2};
  r.diagnosis.device = "CPU";
  r.diagnosis.emulated = host;
  r.diagnosis.checks = {{"GPU", "GPU", Verdict::none, "no driver", "install one", "no GPU"}};
  if (!host) return r;
  r.diagnosis.checks.push_back({"libraries", "MPI", Verdict::pass, "Open MPI 4.1.4", {}, "Open MPI 4.1.4"});
  r.diagnosis.checks.push_back({"machine", "instruction set", Verdict::pass, "avx512_bf16", {}, "avx512_bf16"});
  r.diagnosis.checks.push_back({"machine", "memory", Verdict::pass, "64 GiB", {}});
  return r;
}

// Two ranks on each of two hosts, and what they measure if all is well.
std::vector<RankReport> four() { return {rank_on("a"), rank_on("a", false), rank_on("b"), rank_on("b", false)}; }
Measurements good(std::size_t ranks) {
  return {.clocks = {std::vector<double>(ranks), 0.002},
          .out = "run",
          .folder = {"run", "", std::vector<std::string>(ranks)},
          .free = std::vector<std::int64_t>(ranks, std::int64_t{3} << 30),
          .all_reduces = {{"MPI", 2, 8, 0x1p-13, true}, {"MPI", 2, 1 << 20, 1e-3, true}}};
}

const Check& check_in(const Diagnosis& job, const std::string& name) {
  const auto check = std::ranges::find(job.checks, name, &Check::name);
  if (check == job.checks.end()) throw Error("no check " + name);
  return *check;
}

Check& check_in(RankReport& report, const std::string& name) {
  return *std::ranges::find(report.diagnosis.checks, name, &Check::name);
}

using Names = std::vector<std::string>;

TEST(Merge, EqualHostsCanTrainTogether) {
  const Diagnosis job = merge(four(), good(4));
  EXPECT_TRUE(job.good());
  EXPECT_EQ(verdict_of(job),
            "4 ranks on 2 hosts can train together; the CPUs emulate FP8: the same results, no speedup");
  Names names;
  for (const Check& c : job.checks) {
    names.push_back(c.name);
    EXPECT_TRUE(c.findings.empty()) << c.name;
    EXPECT_NE(c.verdict, Verdict::fail) << c.name << ": " << c.detail;
  }
  EXPECT_EQ(names, (Names{"GPU", "MPI", "instruction set", "memory", "version", "ranks", "clocks", "folder",
                          "small all-reduce", "large all-reduce"}));
  EXPECT_EQ(check_in(job, "ranks").detail, "2 ranks of 2 threads on 4 processors");
  EXPECT_EQ(check_in(job, "clocks").detail, "equal within 2 ms");
  EXPECT_EQ(check_in(job, "folder").detail, "run: 3 GiB free, the same folder on 2 hosts");
  EXPECT_EQ(check_in(job, "small all-reduce").detail, "8 B in 0.122 ms, between one rank of each host");
  EXPECT_EQ(check_in(job, "large all-reduce").detail,
            "1 MiB in 1 ms, bus bandwidth 1.05 GB/s, between one rank of each host");
}

TEST(Merge, NamesHostsThatDiffer) {
  std::vector<RankReport> reports = four();
  check_in(reports[2], "memory").detail = "32 GiB";
  const Diagnosis job = merge(reports, good(4));
  EXPECT_TRUE(job.good()) << "hosts need not have the same memory";
  const Check& memory = check_in(job, "memory");
  EXPECT_EQ(memory.verdict, Verdict::pass);
  EXPECT_EQ(memory.detail, "a: 64 GiB; b: 32 GiB");
  EXPECT_EQ(lines_of(memory), (Names{"a: 64 GiB", "b: 32 GiB"}));
  EXPECT_EQ(lines_of(memory, 1), (Names{"a: 64 GiB", "and 1 other finding, see --json"}));
}

TEST(Merge, WhatRanksNeedInCommonIsAConflict) {
  std::vector<RankReport> reports = four();
  Check& isa = check_in(reports[2], "instruction set");
  isa.detail = isa.common = "avx2";
  reports[3].version = "1.1";
  const Diagnosis job = merge(reports, good(4));
  EXPECT_FALSE(job.good());
  EXPECT_EQ(job.job->conflicts, (Names{"instruction set", "version"}));
  EXPECT_EQ(verdict_of(job), "4 ranks on 2 hosts cannot train together: instruction set, version");
  EXPECT_EQ(check_in(job, "instruction set").verdict, Verdict::fail);
  EXPECT_EQ(check_in(job, "instruction set").hint, "set FP8_CPU_ISA=avx2 for all ranks, or use equal machines");
  EXPECT_EQ(check_in(job, "version").detail, "a, b rank 2: 1.0; b rank 3: 1.1");
}

// A text that differs where what counts is equal, such as the reason for an instruction set.
TEST(Merge, EqualValuesInOtherWordsAreNoConflict) {
  std::vector<RankReport> reports = four();
  check_in(reports[2], "instruction set").detail = "avx512_bf16, lowered";
  const Diagnosis job = merge(reports, good(4));
  EXPECT_TRUE(job.good());
  EXPECT_EQ(check_in(job, "instruction set").findings.size(), 2u);
}

TEST(Merge, AFailureOnOneHostIsThatOfTheJob) {
  std::vector<RankReport> reports = four();
  Check& memory = check_in(reports[2], "memory");
  memory.verdict = Verdict::fail, memory.hint = "add some";
  std::erase_if(reports[0].diagnosis.checks, [](const Check& c) { return c.name == "MPI"; });
  const Diagnosis job = merge(reports, good(4));
  EXPECT_EQ(check_in(job, "memory").verdict, Verdict::fail);
  EXPECT_EQ(check_in(job, "memory").hint, "add some");
  EXPECT_EQ(check_in(job, "MPI").detail, "a: absent; b: Open MPI 4.1.4");
  EXPECT_EQ(check_in(job, "MPI").verdict, Verdict::none);
}

TEST(Merge, ManyHostsAreCounted) {
  std::vector<RankReport> reports;
  for (int i = 0; i < 9; ++i) reports.push_back(rank_on("n" + std::to_string(i)));
  check_in(reports[8], "memory").detail = "32 GiB";
  const Diagnosis job = merge(reports, good(9));
  EXPECT_EQ(check_in(job, "memory").detail, "n0, n1, n2, n3 and 4 more: 64 GiB; n8: 32 GiB");
  EXPECT_EQ(check_in(job, "memory").findings[0].hosts.size(), 8u);
}

TEST(Merge, ThreadsBeyondProcessorsFailAndDoNotPreventTraining) {
  std::vector<RankReport> reports = four();
  for (RankReport& r : reports) r.threads = r.host == "b" ? 3 : 2;
  const Diagnosis job = merge(reports, good(4));
  EXPECT_TRUE(job.good());
  EXPECT_EQ(check_in(job, "ranks").verdict, Verdict::fail);
  EXPECT_EQ(check_in(job, "ranks").findings[1].detail,
            "2 ranks of 3 threads on 4 processors: more threads than processors, which slows them");
  reports[0].processors = reports[2].processors = "4-7";
  EXPECT_EQ(check_in(merge(reports, good(4)), "ranks").verdict, Verdict::pass) << "bound to others";
  EXPECT_EQ(check_in(merge(reports, good(4)), "ranks").findings[1].detail,
            "2 ranks of 3 threads, each on 4 processors of its own");
}

TEST(Merge, ClocksMayDifferByASecond) {
  Measurements measured = good(4);
  measured.clocks.offsets = {0, 0, -1.0015, -1.0015};
  EXPECT_EQ(check_in(merge(four(), measured), "clocks").verdict, Verdict::pass) << "within the error";
  measured.clocks.offsets = {0, 0, -70, -70};
  const Diagnosis job = merge(four(), measured);
  EXPECT_TRUE(job.good());
  EXPECT_EQ(check_in(job, "clocks").verdict, Verdict::fail);
  EXPECT_EQ(check_in(job, "clocks").detail, "differ from that of a: b 1 min 10 s behind");
}

TEST(Merge, AFolderThatIsNotSharedOrNotWritableIsAConflict) {
  Measurements measured = good(4);
  measured.folder.unseen[3] = "gone";
  Diagnosis job = merge(four(), measured);
  EXPECT_EQ(job.job->conflicts, Names{"folder"});
  EXPECT_EQ(check_in(job, "folder").detail, "run: what a writes there is not seen by b (gone)");
  measured = good(4);
  measured.folder.unwritable = "run: read-only";
  job = merge(four(), measured);
  EXPECT_EQ(job.job->conflicts, Names{"folder"});
  EXPECT_EQ(check_in(job, "folder").detail, "run: read-only");
  measured = good(4);
  measured.out = "";
  EXPECT_EQ(check_in(merge(four(), measured), "folder").verdict, Verdict::none);
}

TEST(Merge, GpusAndSums) {
  std::vector<RankReport> reports = four();
  for (RankReport& r : reports) {
    r.diagnosis.native = true;
    r.diagnosis.device = "H100";
    check_in(r, "GPU") = {"GPU", "GPU", Verdict::pass, "H100", {}, "H100"};
    r.card = r.host + std::to_string(&r - reports.data());
  }
  Measurements measured = good(4);
  measured.all_reduces.push_back({"NCCL", 4, 1 << 20, 1e-3, true});
  Diagnosis job = merge(reports, measured);
  EXPECT_EQ(verdict_of(job), "4 ranks on 2 hosts can train together; FP8 runs on each, on H100");
  EXPECT_EQ(check_in(job, "large NCCL all-reduce").detail, "1 MiB in 1 ms, bus bandwidth 1.57 GB/s, between 4 ranks");
  EXPECT_EQ(to_json(job).as_object().get_string("fp8", "report"), "native");
  measured.all_reduces[2].exact = false;
  EXPECT_EQ(merge(reports, measured).job->conflicts, Names{"large NCCL all-reduce"});
  reports[3].card = reports[2].card;
  EXPECT_EQ(merge(reports, good(4)).job->conflicts, Names{"GPUs"});
  reports[3] = rank_on("b", false);
  job = merge(reports, good(4));
  EXPECT_EQ(job.job->conflicts, Names{"GPU"});
  EXPECT_FALSE(job.native);
  EXPECT_EQ(check_in(job, "GPU").detail, "a, b rank 2: H100; b rank 3: no driver");
}

TEST(Merge, ProgramsOfDifferentVersionsCompareNothingElse) {
  const Diagnosis job = merge({{.host = "a", .version = "1.0"}, {.host = "b", .version = "1.1"}}, {});
  ASSERT_EQ(job.checks.size(), 1u);
  EXPECT_EQ(job.checks[0].detail, "a: 1.0; b: 1.1");
  EXPECT_EQ(job.job->conflicts, Names{"version"});
}

TEST(Merge, OneRankHasItsDiagnosis) {
  const RankReport one = rank_on("a");
  Measurements measured = good(1);
  EXPECT_EQ(merge({one}, measured).checks.size(), one.diagnosis.checks.size() + 1) << "the folder";
  measured.out = "";
  const Diagnosis alone = merge({one}, measured);
  EXPECT_EQ(to_json(alone), to_json(one.diagnosis));
  EXPECT_FALSE(to_json(alone).as_object().contains("together"));
}

TEST(RankReport, ReadsBackFromItsText) {
  RankReport r = rank_on("a");
  r.card = "ab", r.diagnosis.native = true;
  const RankReport again = report_of(text_of(r));
  EXPECT_EQ(text_of(again), text_of(r));
  EXPECT_EQ(check_in(again.diagnosis, "instruction set").common, "avx512_bf16");
  EXPECT_HOLDS(test::error_of([] { report_of("{}"); }), "the report of a rank: ");
}

TEST(Job, JsonHasHostsConflictsAndTimes) {
  std::vector<RankReport> reports = four();
  check_in(reports[2], "memory").detail = "32 GiB";
  EXPECT_EQ(
      json::dump(to_json(merge(reports, good(4))))
              .find(R"({"group":"machine","name":"memory","verdict":"pass","detail":"a: 64 GiB; b: 32 GiB",)"
                    R"("hint":null,"findings":[{"hosts":["a"],"verdict":"pass","detail":"64 GiB","hint":null},)") ==
          std::string::npos,
      false);
  const json::Value record = to_json(merge(reports, good(4)));
  const json::Object& o = record.as_object();
  EXPECT_EQ(json::dump(o.at("hosts")), R"([{"name":"a","ranks":2},{"name":"b","ranks":2}])");
  EXPECT_EQ(json::dump(o.at("conflicts")), "[]");
  EXPECT_EQ(json::dump(o.at("all_reduces").as_array()[0]),
            R"({"library":"MPI","ranks":2,"bytes":8,"seconds":0.0001220703125,"bytes_per_s":65536.0})");
  EXPECT_TRUE(o.get_bool("together", "report"));
}

}  // namespace
}  // namespace fp8::probe
