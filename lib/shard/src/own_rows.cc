// One block of memory for a slot and format, and the views of its parameters in it.
#include "fp8/shard/own_rows.h"

#include <algorithm>

#include "fp8/base/round.h"
#include "fp8/ops/norm.h"

namespace fp8::shard {

using tensor::allocate;

View allocate_matrix(const Context& ctx, DType dtype, const model::Extent& extent, bool vector,
                     std::string_view category) {
  return vector ? allocate(ctx, dtype, {extent.rows}, category)
                : allocate(ctx, dtype, {extent.rows, extent.cols}, category);
}

namespace {

// The factors of stored codes in the form of the recipe, of all parts, whole on every rank.
void allocate_factors(const Context& ctx, const SlotLayout& s, std::vector<ParameterShard>& shards) {
  std::int64_t rows = 0;
  for (const linear::Part& part : s.parts) rows += s.factor_rows(part);
  const std::int64_t block = s.factor_block(), parts = std::ssize(s.parts);
  const View all = allocate_matrix(ctx, s.packed() ? DType::e4m3 : DType::f32,
                                   {rows, divide_up(s.extent.cols, std::max<std::int64_t>(1, block))}, block == 0,
                                   "frozen weights"),
             amaxes = s.packed() ? allocate(ctx, DType::f32, {parts}, "frozen weights") : View{};
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const linear::Part& part = s.parts[static_cast<std::size_t>(i)];
    const std::int64_t last = first + s.factor_rows(part);
    ParameterShard& o = shards[static_cast<std::size_t>(part.number)];
    o.factors = all.rows(first, last);
    if (s.packed()) o.amax = amaxes.rows(i, i + 1);
    first = last;
  }
}

void allocate_slot(const Context& ctx, const StoreOptions& options, const SlotLayout& s,
                   std::vector<ParameterShard>& shards) {
  const auto matrix = [&](DType dtype, std::string_view category) {
    return allocate_matrix(ctx, dtype, {s.own_rows, s.stored_cols()}, s.vector, category);
  };
  ParameterShard all;
  const bool trained = options.training && s.trainable;
  const DType stored = s.trainable ? options.master : s.stored;
  all.master = matrix(stored, s.trainable ? "master weights" : "frozen weights");
  if (trained) all.gradient = matrix(DType::f32, "gradients");
  if (trained && options.updates) {
    for (View* const moment : {&all.m, &all.v}) {
      if (s.muon && moment == &all.v) continue;
      *moment = matrix(options.moments, "moments");
      ops::zero(ctx, *moment);
    }
  }
  if (s.form == WeightForm::stored_codes) {
    all.codes = all.master;
    all.codes.dtype = DType::u8;
    allocate_factors(ctx, s, shards);
  } else if (s.codes()) {
    all.codes = matrix(DType::u8, "compute weights");
  } else {
    all.compute_weight = stored == options.compute ? all.master : matrix(options.compute, "compute weights");
  }
  if (s.form == WeightForm::single_copy) all.row_scales = allocate(ctx, DType::f32, {s.own_rows}, "compute weights");
  std::int64_t first = 0;
  for (const int number : s.parameters) {
    ParameterShard& o = shards[static_cast<std::size_t>(number)];
    const std::int64_t last = first + o.rows.count();
    for (View ParameterShard::*const values :
         {&ParameterShard::master, &ParameterShard::m, &ParameterShard::v, &ParameterShard::gradient,
          &ParameterShard::compute_weight, &ParameterShard::codes, &ParameterShard::row_scales})
      if (!(all.*values).empty()) o.*values = (all.*values).rows(first, last);
    first = last;
  }
}

}  // namespace

OwnRows::OwnRows(const Context& ctx, const Layout& layout) {
  for (int number = 0; number < static_cast<int>(layout.table().size()); ++number)
    parameters.push_back({.number = number, .rows = layout.rows(number)});
  for (const SlotLayout& s : layout.slots())
    if (s.present()) allocate_slot(ctx, layout.options(), s, parameters);
}

View OwnRows::of(const SlotLayout& s, View ParameterShard::*values) const {
  View all = of(s.parameters.front()).*values;
  all.shape[0] = s.own_rows;
  return all;
}

std::vector<std::int64_t> OwnRows::first_rows(const SlotLayout& s) const {
  std::vector<std::int64_t> first{0};
  for (const int number : s.parameters) first.push_back(first.back() + of(number).rows.count());
  return first;
}

}  // namespace fp8::shard
