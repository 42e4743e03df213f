// Each group of rows with the functions of one layer, or on a device all with those of several layers.
#include "fp8/linear/groups.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"
#include "layers.h"

namespace fp8::linear {
namespace {

View part_of(const View& v, std::int64_t begin, std::int64_t end) { return v.empty() ? v : v.rows(begin, end); }

// The gradients of one group after those of the groups before it, and their rows.
class GroupGradients {
 public:
  GroupGradients(const Gradients& all, std::int64_t columns) : all_(all), columns_(columns) {}

  // The part of the next group, which has the rows [first, last).
  Gradients next(const Weight& weight, std::int64_t first, std::int64_t last) {
    const AdapterRows rows = adapter_rows({&weight, 1});
    const std::int64_t n = columns_ * group_, a = a_, b = b_;
    ++group_;
    a_ += rows.a;
    b_ += rows.b;
    return {.dx = part_of(all_.dx, first, last),
            .dw = part_of(all_.dw, n, n + columns_),
            .db = part_of(all_.db, n, n + columns_),
            .accumulate = all_.accumulate,
            .a = part_of(all_.a, a, a_),
            .b = part_of(all_.b, b, b_)};
  }

 private:
  const Gradients& all_;
  std::int64_t columns_, group_ = 0, a_ = 0, b_ = 0;
};

void require_groups(const Groups& groups) {
  if (groups.first.size() != groups.weights.size() + 1)
    throw Error("linear: " + std::to_string(groups.weights.size()) + " groups with " +
                std::to_string(groups.first.size()) + " first rows");
}

// Rows of a group in x.
struct GroupRows {
  const Weight* weight;
  std::int64_t first, last;
};

// The groups with rows.
std::vector<GroupRows> groups_with_rows(const Groups& groups) {
  std::vector<GroupRows> rows;
  for (std::size_t g = 0; g < groups.weights.size(); ++g)
    if (groups.first[g] < groups.first[g + 1])
      rows.push_back({&groups.weights[g], groups.first[g], groups.first[g + 1]});
  return rows;
}

// First rows of the groups that run together. In a plan of memory as many groups as possible have rows, which takes the
// most memory for the arrays of GEMMs; casts take the same for all divisions.
std::vector<std::int64_t> divided_rows(const Context& ctx, const Groups& groups) {
  std::vector<std::int64_t> first(groups.first.begin(), groups.first.end());
  if (!device::plans_memory(ctx)) return first;
  const auto n = static_cast<std::int64_t>(groups.weights.size());
  for (std::int64_t g = 0; g <= n; ++g) first[static_cast<std::size_t>(g)] = groups.first.back() * g / n;
  return first;
}

// The gradients of a group without rows.
void without_rows(const Context& ctx, const Gradients& of_group) {
  if (of_group.accumulate) return;
  for (const View& gradient : {of_group.dw, of_group.a, of_group.b})
    if (!gradient.empty()) ops::zero(ctx, gradient);
}

std::vector<quant::Quantized> forward_together(const Context& ctx, gemm::Engine& engine, const Groups& groups,
                                               const View& x, const View& y, const quant::KeptGroups& keep) {
  std::vector<ForwardLayer> layers;
  for (const GroupRows& g : groups_with_rows(groups))
    layers.push_back({g.weight, x.rows(g.first, g.last), y.rows(g.first, g.last)});
  return forward_layers(ctx, engine, groups, x, layers, keep);
}

// The rows of group g as values or codes.
Input input_of(const GroupInput& x, const Groups& groups, std::size_t g, const View& dy) {
  return {.values = part_of(x.values, groups.first[g], groups.first[g + 1]),
          .columns = x.columns.empty() ? quant::Quantized{} : x.columns[g],
          .activation = dy.dtype};
}

void backward_together(const Context& ctx, gemm::Engine& engine, const Groups& groups, const GroupInput& x,
                       const View& dy, const Gradients& gradients) {
  std::vector<Gradients> of_group;
  GroupGradients each(gradients, dy.shape[1]);
  for (std::size_t g = 0; g < groups.weights.size(); ++g)
    of_group.push_back(each.next(groups.weights[g], groups.first[g], groups.first[g + 1]));
  std::vector<BackwardLayer> layers;
  for (const GroupRows& rows : groups_with_rows(groups)) {
    const auto g = static_cast<std::size_t>(rows.weight - groups.weights.data());
    layers.push_back({rows.weight, input_of(x, groups, g, dy), dy.rows(rows.first, rows.last), of_group[g]});
  }
  for (std::size_t g = 0; g < of_group.size(); ++g)
    if (groups.first[g] == groups.first[g + 1]) without_rows(ctx, of_group[g]);
  backward_layers(ctx, engine, groups, x, dy, layers);
}

}  // namespace

AdapterRows adapter_rows(std::span<const Weight> weights) {
  AdapterRows rows;
  for (const Weight& weight : weights)
    for (const Adapter& adapter : weight.adapters) {
      rows.a += adapter.a.shape[0];
      rows.b += adapter.b.shape[0];
    }
  return rows;
}

std::vector<quant::Quantized> forward_groups(const Context& ctx, gemm::Engine& engine, const Groups& groups,
                                             const View& x, const View& y, const quant::KeptGroups& keep) {
  require_groups(groups);
  const gemm::VaryingRows varying(engine);
  const bool together = forward_runs_together(ctx, groups, x);
  std::vector<quant::Quantized> kept;
  if (together) {
    const std::vector<std::int64_t> first = divided_rows(ctx, groups);
    kept = forward_together(ctx, engine, {groups.weights, first}, x, y, keep);
  }
  for (std::size_t g = 0; g < groups.weights.size() && (!together || device::plans_memory(ctx)); ++g) {
    const std::int64_t first = groups.first[g], last = groups.first[g + 1];
    if (first < last) forward(ctx, engine, groups.weights[g], x.rows(first, last), y.rows(first, last));
  }
  return kept;
}

void backward_groups(const Context& ctx, gemm::Engine& engine, const Groups& groups, const GroupInput& x,
                     const View& dy, const Gradients& gradients) {
  require_groups(groups);
  const gemm::VaryingRows varying(engine);
  const bool together = backward_runs_together(ctx, groups, x, dy, gradients);
  const std::vector<std::int64_t> first = divided_rows(ctx, groups);
  const Groups divided{groups.weights, first};
  if (together) backward_together(ctx, engine, divided, x, dy, gradients);
  if (together && !device::plans_memory(ctx)) return;
  const Groups& apart = x.columns.empty() ? groups : divided;  // codes are of the rows that forward had
  GroupGradients each(gradients, dy.shape[1]);
  for (std::size_t g = 0; g < apart.weights.size(); ++g) {
    const std::int64_t begin = apart.first[g], end = apart.first[g + 1];
    const Gradients of_group = each.next(apart.weights[g], begin, end);
    if (begin < end)
      backward(ctx, engine, apart.weights[g], input_of(x, apart, g, dy), dy.rows(begin, end), of_group);
    else
      without_rows(ctx, of_group);
  }
}

}  // namespace fp8::linear
