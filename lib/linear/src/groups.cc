// Each group of rows with the functions of one layer, or on a device all with those of several layers.
#include "fp8/linear/groups.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/device/profile.h"
#include "fp8/linear/produced.h"
#include "fp8/ops/norm.h"
#include "layers.h"
#include "operands.h"
#include "precision.h"

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

// x is empty if forward reads its codes alone.
std::vector<ForwardLayer> layers_of(const Groups& groups, const View& x, const View& y) {
  std::vector<ForwardLayer> layers;
  for (const GroupRows& g : groups_with_rows(groups))
    layers.push_back({g.weight, part_of(x, g.first, g.last), y.rows(g.first, g.last)});
  return layers;
}

// The codes for wgrad.
std::vector<quant::Quantized> columns_of(std::span<const quant::QuantizedPair> codes) {
  std::vector<quant::Quantized> columns;
  for (const quant::QuantizedPair& pair : codes) columns.push_back(pair.first);
  return columns;
}

std::vector<quant::Quantized> forward_together(const Context& ctx, gemm::Engine& engine, const Groups& groups,
                                               const View& x, const View& y, const quant::KeptGroups& keep) {
  const std::vector<ForwardLayer> layers = layers_of(groups, x, y);
  if (layers.empty()) return {};
  const device::Scope scope(*ctx.arena);
  const std::vector<quant::QuantizedPair> codes = cast_groups(ctx, groups, x, keep);
  forward_layers(ctx, engine, groups, layers, codes);
  return keep.memory != nullptr ? columns_of(codes) : std::vector<quant::Quantized>{};
}

// The rows of group g as values or codes.
Input input_of(const GroupInput& x, const Groups& groups, std::size_t g, const View& dy) {
  return {.values = part_of(x.values, groups.first[g], groups.first[g + 1]),
          .columns = x.columns.empty() ? quant::Quantized{} : x.columns[g],
          .activation = dy.dtype};
}

void backward_together(const Context& ctx, gemm::Engine& engine, const Groups& groups, const GroupInput& x,
                       const View& dy, const Gradients& gradients,
                       std::span<const quant::ProducedGroups> codes_of_dy = {}) {
  std::vector<Gradients> of_group;
  GroupGradients each(gradients, dy.shape[1]);
  for (std::size_t g = 0; g < groups.weights.size(); ++g)
    of_group.push_back(each.next(groups.weights[g], groups.first[g], groups.first[g + 1]));
  std::vector<BackwardLayer> layers;
  for (const GroupRows& rows : groups_with_rows(groups)) {
    const auto g = static_cast<std::size_t>(rows.weight - groups.weights.data());
    View own = dy;
    own.shape[0] = rows.last - rows.first;
    if (codes_of_dy.empty()) own = dy.rows(rows.first, rows.last);
    layers.push_back({rows.weight, input_of(x, groups, g, dy), own, of_group[g]});
  }
  for (std::size_t g = 0; g < of_group.size(); ++g)
    if (groups.first[g] == groups.first[g + 1]) without_rows(ctx, of_group[g]);
  backward_layers(ctx, engine, groups, x, dy, layers, codes_of_dy);
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

quant::ProducedGroups begin_input(const Context& ctx, const Groups& groups, std::int64_t columns,
                                  const quant::KeptGroups& keep) {
  require_groups(groups);
  const Weight& weight = groups.weights.front();
  const View shape = tensor::make_view(nullptr, dtype::DType::bf16, ctx.device, {groups.first.back(), columns});
  return quant::begin_produced_groups(ctx, shape, divided_rows(ctx, groups), casts_of_x(weight, keep.memory != nullptr),
                                      cast_options(weight.precision, {}), known_x(groups), keep);
}

std::vector<quant::Quantized> forward_groups(const Context& ctx, gemm::Engine& engine, std::span<const Weight> weights,
                                             const quant::ProducedGroups& x, const View& y) {
  const gemm::VaryingRows varying(engine);
  const Groups groups{weights, x.cast.first};
  forward_layers(ctx, engine, groups, layers_of(groups, {}, y), x.codes);
  return x.cast.of_first.cast.fp8() ? columns_of(x.codes) : std::vector<quant::Quantized>{};
}

std::vector<quant::ProducedGroups> begin_gradient(const Context& ctx, const Groups& groups, const Gradients& wanted) {
  require_groups(groups);
  const Weight& weight = groups.weights.front();
  const std::vector<std::int64_t> first = divided_rows(ctx, groups);
  std::vector<quant::ProducedGroups> parts;
  for (const Operand& o : weight.operands)
    parts.push_back(quant::begin_produced_groups(
        ctx, tensor::make_view(nullptr, dtype::DType::bf16, ctx.device, {first.back(), o.part.end - o.part.begin}),
        first, casts_of_dy(weight, o.part, wanted), cast_options(weight.precision, {}),
        known_later(ctx, groups, o.part)));
  return parts;
}

void backward_groups(const Context& ctx, gemm::Engine& engine, std::span<const Weight> weights, const GroupInput& x,
                     std::span<const quant::ProducedGroups> dy, const Gradients& gradients) {
  const gemm::VaryingRows varying(engine);
  const std::vector<std::int64_t>& first = dy.front().cast.first;
  const View shape = tensor::make_view(nullptr, dtype::DType::bf16, ctx.device,
                                       {first.back(), weights.front().operands.back().part.end});
  backward_together(ctx, engine, {weights, first}, x, shape, gradients, dy);
}

}  // namespace fp8::linear
