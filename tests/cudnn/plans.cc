// Makes cuDNN's plans of attention for an H100 without a GPU, prints the workspace of each, and compares it with the
// estimate that a plan of a run without a GPU uses, and with a bound. Run by tests/cudnn/run with a stand-in for the
// driver. Status 1 if a graph has no plan or takes more, or if a call that ordered sums compute at once is divided.
#include <cstdio>
#include <string>

#include "../../lib/ops/tests/fused_layer.h"
#include "hopper_graph.h"

// In builds with CUDA attention_cudnn.cu defines it.
namespace cudnn_frontend {
__attribute__((weak)) void* cudnn_dlhandle = nullptr;
}

namespace fp8::ops {
namespace {

constexpr double kMiB = 1 << 20;
constexpr std::int64_t kSmall = 4 << 20;  // bytes that a plan may take besides what is counted

struct Case {
  std::int64_t positions, heads, groups, dim;
  bool documents;
};

struct Table {
  int plans = 0, failures = 0;

  // One part of a call. `bound`: bytes of its workspace. `most`: the most parts that the call may have, or 0.
  void add(const Case& c, const char* pass, const FusedParts& parts, std::int64_t bound, std::int64_t most) {
    const std::int64_t count = parts.sequences * parts.groups;
    std::string verdict;
    std::int64_t workspace = 0;
    try {
      const auto graph = planned_on_hopper(parts.each);
      check(graph->check_support());
      check(graph->build_plans());
      check(graph->get_workspace_size(workspace));
      const std::int64_t assumed = parts.each.assumed_workspace();
      const bool near = workspace <= assumed + assumed / 50 + kSmall && assumed <= workspace + workspace / 50 + kSmall;
      verdict = !near                      ? "not as estimated"
                : workspace > bound        ? "above the bound"
                : most > 0 && count > most ? "more parts than " + std::to_string(most)
                                           : "ok";
    } catch (const std::exception& e) {
      verdict = e.what();
    }
    ++plans;
    failures += verdict == "ok" ? 0 : 1;
    std::printf("%7lld %3lld/%-3lld %4lld  %-9s  %-22s %4lld x %10.1f MiB  %10.1f  %10.1f  %s\n",
                static_cast<long long>(c.positions), static_cast<long long>(c.heads), static_cast<long long>(c.groups),
                static_cast<long long>(c.dim), c.documents ? "documents" : "whole", pass, static_cast<long long>(count),
                static_cast<double>(workspace) / kMiB, static_cast<double>(parts.each.assumed_workspace()) / kMiB,
                static_cast<double>(bound) / kMiB, verdict.c_str());
    std::fflush(stdout);
  }
};

// Bytes of dq in f32, dk and dv of all heads and statistics, which grow with the length.
std::int64_t linear_bytes(const FusedAttention& call) {
  return call.batch * call.heads * call.positions * (8 * call.dim + 16) + kSmall;
}

void add(Table& table, const Case& c, bool ordered) {
  const Layer layer(1, c.positions, c.heads, c.groups, c.dim);
  const Documents documents = c.documents ? layer.documents(8, c.positions / 4) : Documents{};
  table.add(c, "forward", parts_of(layer.forward(documents), ordered), kSmall, 1);
  const FusedParts fixed = parts_of(layer.backward(documents), ordered);
  // Without ordered sums the scores of one group are stored whatever they take.
  const std::int64_t scores = ordered ? kMostScores : std::max(kMostScores, fixed.each.score_bytes());
  table.add(c, fixed.each.sums == FusedSums::ordered ? "gradients, ordered" : "gradients, scores", fixed,
            linear_bytes(fixed.each) + (fixed.each.sums == FusedSums::ordered ? 0 : scores),
            ordered && !c.documents ? 1 : 0);
  const FusedParts atomic = parts_of(layer.backward(documents, false), ordered);
  table.add(c, "gradients, atomic", atomic, linear_bytes(atomic.each), c.documents ? 0 : 1);
}

int run() {
  load_library();
  const bool ordered = has_ordered_sums({});
  std::printf("%s, H100: %s\n", attention_library().c_str(), ordered ? "ordered sums" : "no ordered sums");
  std::printf("%7s %7s %4s  %-9s  %-22s %21s  %10s  %10s\n", "length", "heads", "dim", "sequences", "pass",
              "parts x workspace", "estimate", "bound");
  Table table;
  for (const std::int64_t positions : {1024, 8192, 32768, 131072}) {
    for (const std::int64_t dim : {64, 128}) {
      for (const std::int64_t groups : {8, 32}) {
        for (const bool documents : {false, true}) add(table, {positions, 32, groups, dim, documents}, ordered);
      }
    }
  }
  std::printf("%d plans, %d not as stated\n", table.plans, table.failures);
  return table.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace fp8::ops

int main() {
  try {
    return fp8::ops::run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "check-cudnn: %s\n", e.what());
    return 2;
  }
}
