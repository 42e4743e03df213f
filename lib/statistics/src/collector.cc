// The choice of the casts that are measured, the products in f32, and the reduction over ranks.
#include "fp8/statistics/collector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <type_traits>

#include "fp8/ops/norm.h"
#include "fp8/quant/fp4.h"
#include "fp8/quant/scale.h"

namespace fp8::statistics {
namespace {

using dtype::DType;
using gemm::GemmRole;
using quant::ContractionAxis;
using quant::Granularity;

// Whether a cast is the same for both dimensions that a GEMM may contract.
bool for_both_axes(Granularity g) {
  return g == Granularity::tensor || g == Granularity::block128x128 || g == Granularity::block16x16;
}

// The values of a view in high precision as f32 without gaps, in memory from the arena if they are not.
View as_f32(const Context& ctx, const View& v) {
  if (v.dtype == DType::f32 && v.contiguous()) return v;
  const View out = tensor::allocate(ctx, DType::f32, {v.shape[0], v.shape[1]}, "scratch");
  if (!ctx.dry) ops::copy(ctx, v, out);
  return out;
}

gemm::Operand high(const View& v, bool transposed) { return {transposed ? v.transposed() : v, v.dtype, {}}; }

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

GroupSpread spread_of(const std::vector<GroupFigures>& groups) {
  GroupSpread s;
  std::vector<double> amax, underflow, saturated, sqnr;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const GroupFigures& g = groups[i];
    if (g.nonzero == 0) continue;
    const auto count = static_cast<double>(g.nonzero);
    amax.push_back(static_cast<double>(g.amax));
    underflow.push_back(static_cast<double>(g.underflowed) / count);
    saturated.push_back(static_cast<double>(g.saturated) / count);
    const double db = 10 * std::log10(g.signal / g.noise);
    if (sqnr.empty() || db < *std::min_element(sqnr.begin(), sqnr.end())) s.worst = static_cast<std::int64_t>(i);
    sqnr.push_back(db);
  }
  s.groups = static_cast<std::int64_t>(amax.size());
  s.amax = spread_of(std::move(amax));
  s.underflow_share = spread_of(std::move(underflow));
  s.saturated_share = spread_of(std::move(saturated));
  s.sqnr_db = spread_of(std::move(sqnr));
  return s;
}

// All numbers of some figures, in the order of reduction.
struct Packed {
  std::vector<std::int64_t> counts;
  std::vector<double> sums;
  std::vector<float> largest, smallest;
};

// A NaN, which reductions of the smallest do not take, is less than every scale.
constexpr float kNanScale = -1;
float packed(float scale) { return std::isnan(scale) ? kNanScale : scale; }
float unpacked(float scale) { return scale == kNanScale ? NAN : scale; }

}  // namespace

Collector::Collector(const comm::Mesh& mesh, CollectorOptions options)
    : mesh_(mesh), host_comm_(mesh_.all()), options_(std::move(options)) {}

bool Collector::is_expert(int linear) const {
  return !options_.experts.empty() && options_.experts.at(static_cast<std::size_t>(linear)) != 0;
}

// In a dry run only some experts have rows: they stand for all.
bool Collector::observes(int linear, bool dry) const {
  if (options_.linears.at(static_cast<std::size_t>(linear)) != 0) return true;
  if (!dry || !is_expert(linear)) return false;
  for (std::size_t i = 0; i < options_.linears.size(); ++i)
    if (options_.linears[i] != 0 && options_.experts[i] != 0) return true;
  return false;
}

void Collector::begin() {
  entries_.clear();
  uses_.clear();
  products_.clear();
  last_input_.reset();
  active_ = true;
}

void Collector::observe(const linear::Call& call, const linear::ObservedGemm& gemm) {
  const int linear = gemm.weight.part.number;
  if (linear < 0 || !observes(linear, call.ctx.dry) || gemm.b_source.empty()) return;
  const bool wgrad = gemm.role == GemmRole::wgrad;
  const Operand first = gemm.role == GemmRole::forward ? Operand::input : Operand::grad_output;
  const linear::Part& part = gemm.weight.part;
  add_operand(call, {linear, gemm.role, first}, part, gemm.a, gemm.a_source, gemm.repeats_input);
  // With one FP8 copy of a weight, dgrad casts no weight.
  if (wgrad || gemm.weight.folded.empty())
    add_operand(call, {linear, gemm.role, wgrad ? Operand::input : Operand::weight}, part, gemm.b, gemm.b_source,
                gemm.repeats_input);
  add_product(call, gemm);
}

// Reduces over the ranks that have other samples and the same parts of linears.
void Collector::sum_over_data(std::span<float> values, comm::Reduce operation) const {
  if (mesh_.tensor().size() == 1) return mesh_.of_stage().all_reduce(values, operation);
  mesh_.shards().all_reduce(values, operation);
  mesh_.replicas().all_reduce(values, operation);
}

// Whether this rank is the first of those of tensor parallelism that have the same rows of a weight: key and value
// heads, of which each is then on equally many ranks.
bool Collector::first_copy(const linear::Call& call, const linear::Part& part) const {
  const linear::TensorParallel& tp = call.precision.tensor_parallel;
  if (tp.ranks == nullptr || tp.axis != 0 || part.whole_rows == 0) return true;
  const std::int64_t copies = mesh_.tensor().size() * (part.end - part.begin) / part.whole_rows;
  return copies <= 1 || mesh_.tensor().rank() % copies == 0;
}

// Where ranks divide the rows of a weight, they divide the columns of dy too, and all have x; where they divide its
// columns, they divide the columns of x too, and all have dy. A scale for all rows or
// columns of which a rank has some is that of every rank.
Collector::Share Collector::share_of(const linear::Call& call, const linear::Part& part, Operand operand,
                                     const quant::Quantized& q) const {
  const linear::TensorParallel& tp = call.precision.tensor_parallel;
  const bool weight = operand == Operand::weight;
  if (tp.ranks == nullptr || mesh_.tensor().size() == 1)
    return {!weight || is_expert(part.number) || part.number % mesh_.data_parts() == mesh_.data_index()};
  const bool leads = mesh_.tensor().rank() == 0;
  if (operand == (tp.axis == 0 ? Operand::input : Operand::grad_output)) return {leads};
  const bool rows = weight && tp.axis == 0;  // are divided, else columns
  const bool shared = q.granularity == Granularity::tensor ||
                      (q.granularity == Granularity::row && (q.contract == ContractionAxis::first) == rows);
  const bool mine = !weight || part.number % mesh_.data_parts() == mesh_.data_index();
  const bool spans = (q.contract == ContractionAxis::first) == rows &&  // groups span what is divided
                     (q.granularity == Granularity::tensor || q.granularity == Granularity::row);
  return {mine && first_copy(call, part), shared && !leads,
          spans  ? PartJoin::inside
          : rows ? PartJoin::rows
                 : PartJoin::columns};
}

// The matrix whose elements were rounded: the source of the operand, or its transform in memory from the arena.
View Collector::cast_source(const linear::Call& call, const Use& use, const quant::Quantized& q, const View& source) {
  if (use.gemm != GemmRole::wgrad || !call.precision.recipe->wgrad.x.hadamard) return source;
  const View out = tensor::allocate(call.ctx, DType::bf16, {q.codes.shape[0], q.codes.shape[1]}, "scratch");
  quant::hadamard_transform(call.ctx, source, out);
  return out;
}

// The scales of a cast. Scales of columns of an activation, whose rows the ranks share, are computed from the amaxes of
// all ranks if scales of whole activations are.
ScaleGrid Collector::scales(const linear::Call& call, const quant::Quantized& q, const View& source,
                            Operand operand) const {
  if (is_fp4(q.format)) return call.ctx.dry ? ScaleGrid{} : fp4_scales_of(call.ctx, q, source);
  const bool columns = q.granularity == Granularity::row && q.contract == ContractionAxis::first;
  if (!columns || operand == Operand::weight || call.precision.amax_reducer == nullptr)
    return call.ctx.dry ? ScaleGrid{} : scales_of(call.ctx, q);
  const quant::ScaleRule rule = call.precision.recipe->scale_rule;
  const View amaxes = tensor::allocate(call.ctx, DType::f32, {source.shape[1]}, "scratch");
  if (call.ctx.dry) return {};
  quant::amax(call.ctx, source, Granularity::row, ContractionAxis::first, amaxes);
  std::vector<float> values = tensor::to_host<float>(call.ctx, amaxes);
  sum_over_data(values, comm::Reduce::amax);
  for (float& v : values) v = quant::scale_by_rule(rule, v, dtype::max_of(q.format), call.precision.options.power_of_2);
  return column_scales(std::move(values), source.shape[0]);
}

// Whether the scales of a cast of an activation are the same on every rank: they are computed from amaxes of all ranks,
// and their number does not depend on that of the tokens.
bool Collector::shares_scales(const linear::Call& call, const quant::Quantized& q) const {
  const bool combined =
      call.precision.amax_reducer != nullptr || call.precision.recipe->scale_rule == quant::ScaleRule::delayed;
  const bool columns = q.granularity == Granularity::row && q.contract == ContractionAxis::first;
  return combined && (q.granularity == Granularity::tensor || columns);
}

void Collector::add_operand(const linear::Call& call, const Use& use, const linear::Part& part,
                            const quant::Quantized& q, const View& source, bool repeats) {
  const Key key{use.linear, use.operand, q.format, q.granularity,
                for_both_axes(q.granularity) ? ContractionAxis::last : q.contract};
  uses_.emplace(use, key);
  Entry& entry = entries_.try_emplace(key, Entry{.owner = use.gemm}).first->second;
  const bool weight = use.operand == Operand::weight, input = use.operand == Operand::input;
  if (entry.owner != use.gemm || entry.complete) return;
  entry.complete = weight;
  entry.shared_scales = !weight && shares_scales(call, q);
  const Share share = share_of(call, part, use.operand, q);
  if (!share.measures) return;  // another rank does
  if (input && !repeats) last_input_.reset();
  if (input && last_input_ && !options_.groups) {
    entry.figures += *last_input_;
    return;
  }
  const View cast = cast_source(call, use, q, source);
  const ScaleGrid grid = scales(call, q, cast, use.operand);
  std::vector<std::byte> memory;
  const View x = on_host(call.ctx, cast, memory);
  const View y = is_fp4(q.format) ? quant::dequantize(call.ctx, q) : View{};
  if (call.ctx.dry) return;
  const MeasuredCast measured{x, grid, q.format, y};
  Figures figures = measure(measured);
  if (share.repeats) figures.scales = 0;
  entry.figures += figures;
  if (input) last_input_ = figures;
  if (!options_.groups) return;
  entry.groups = measure_groups(measured, q.contract);
  entry.divided = share.divided;
  const bool spans_rows = q.granularity == Granularity::tensor || q.granularity == Granularity::row;
  entry.shared_groups = !weight && spans_rows && q.contract == ContractionAxis::first;
}

// The product again, in the type that the layer would give it alone.
View Collector::product_of(const linear::Call& call, const linear::ObservedGemm& gemm, std::int64_t rows,
                           std::int64_t cols) {
  const bool forward = gemm.role == GemmRole::forward;
  const View product = tensor::allocate(call.ctx, forward ? call.activation : DType::f32, {rows, cols}, "scratch");
  linear::multiply_again({call.ctx, engine_, call.precision, call.activation}, gemm, product);
  return product;
}

void Collector::add_product(const linear::Call& call, const linear::ObservedGemm& gemm) {
  const Context& ctx = call.ctx;
  const bool forward = gemm.role == GemmRole::forward, wgrad = gemm.role == GemmRole::wgrad;
  const View &a = gemm.exact, &b = gemm.b_source;
  const std::int64_t rows = a.shape[wgrad ? 1 : 0], cols = b.shape[forward ? 0 : 1];
  const View reference = tensor::allocate(ctx, DType::f32, {rows, cols}, "scratch");
  const View product = as_f32(ctx, gemm.result.empty() ? product_of(call, gemm, rows, cols) : gemm.result);
  // Products of bf16 are exact in f32, so a bf16 GEMM with sums in f32 is an f32 GEMM.
  const bool same = a.dtype == b.dtype;
  engine_.matmul(ctx, high(same ? a : as_f32(ctx, a), wgrad), high(same ? b : as_f32(ctx, b), forward), reference, {});
  if (ctx.dry) return;
  std::vector<float> is = tensor::to_host<float>(ctx, product), wanted = tensor::to_host<float>(ctx, reference);
  // The gradient of a weight is the sum over ranks, the other products are of rows that only this rank has, or terms of
  // these. Ranks without rows of an expert would not take part in a sum.
  const linear::TensorParallel& tp = call.precision.tensor_parallel;
  const bool shared = wgrad && mesh_.of_stage().size() > 1 && !is_expert(gemm.weight.part.number);
  const bool term = tp.ranks != nullptr && gemm.role == (tp.axis == 0 ? GemmRole::dgrad : GemmRole::forward);
  for (std::vector<float>* values : {&is, &wanted}) {
    if (shared) sum_over_data(*values, comm::Reduce::sum);
    if (term) mesh_.tensor().all_reduce(std::span<float>(*values), comm::Reduce::sum);
  }
  Squares& squares = products_[{gemm.weight.part.number, gemm.role}];
  if (shared && mesh_.data_index() != 0) return;
  if (term ? mesh_.tensor().rank() != 0 : !first_copy(call, gemm.weight.part)) return;
  double error = 0, size = 0;
  const float *const p = is.data(), *const w = wanted.data();
  const std::size_t n = is.size();
#pragma omp simd reduction(+ : error, size)
  for (std::size_t i = 0; i < n; ++i) {
    const double exact = w[i], e = p[i] - exact;
    error += e * e;
    size += exact * exact;
  }
  squares.error += error;
  squares.reference += size;
}

// Adds what only other ranks have observed, which are linears of experts and of other stages, so that all ranks have
// the same entries, and finds the first rank of each. The figures of an expert's weight are those of that rank alone.
void Collector::unite() {
  struct Observed {
    Use use;
    Key key;
    gemm::GemmRole owner;
    bool shared_scales, shared_groups;
  };
  static_assert(std::is_trivially_copyable_v<Observed>);
  std::string mine;
  for (const auto& [use, key] : uses_) {
    const Entry& entry = entries_.at(key);
    const Observed one{use, key, entry.owner, entry.shared_scales, entry.shared_groups};
    mine.append(reinterpret_cast<const char*>(&one), sizeof one);
  }
  const std::vector<std::string> all = host_comm_.all_gather(mine);
  std::set<Key> known;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::set<Key> of_rank;
    for (std::size_t at = 0; at < all[rank].size(); at += sizeof(Observed)) {
      Observed one;
      std::memcpy(&one, all[rank].data() + at, sizeof one);
      uses_.emplace(one.use, one.key);
      products_.try_emplace({one.use.linear, one.use.gemm});
      Entry& entry = entries_.try_emplace(one.key, Entry{.owner = one.owner}).first->second;
      entry.shared_scales = one.shared_scales;
      entry.shared_groups = one.shared_groups;
      if (!known.contains(one.key)) entry.leads = static_cast<int>(rank) == host_comm_.rank();
      if (!is_expert(one.key.linear)) entry.leads = mesh_.data_index() == 0;  // each of these has parts of its own
      of_rank.insert(one.key);
      if (one.key.operand != Operand::weight || entry.leads || !is_expert(one.key.linear)) continue;
      entry.figures = {};
      entry.groups = {};
    }
    known.merge(of_rank);
  }
}

// Combines entries and products of all ranks.
void Collector::reduce() {
  if (host_comm_.size() == 1) return;
  unite();
  Packed all;
  for (const auto& [key, entry] : entries_) {
    const Figures& f = entry.figures;
    const std::int64_t scales = entry.shared_scales && !entry.leads ? 0 : f.scales;
    for (const std::int64_t n : {f.elements, f.nonfinite, f.nonzero, f.underflowed, f.subnormal, f.saturated, scales})
      all.counts.push_back(n);
    all.counts.insert(all.counts.end(), f.exponents.begin(), f.exponents.end());
    all.counts.insert(all.counts.end(), f.scaled_exponents.begin(), f.scaled_exponents.end());
    all.sums.insert(all.sums.end(), {f.signal, f.noise});
    all.largest.insert(all.largest.end(), {f.amax, f.of_values.max, f.of_zeros.max});
    all.smallest.insert(all.smallest.end(), {f.smallest, packed(f.of_values.min), packed(f.of_zeros.min)});
  }
  for (const auto& [key, squares] : products_) all.sums.insert(all.sums.end(), {squares.error, squares.reference});
  host_comm_.all_reduce(std::span<std::int64_t>(all.counts), comm::Reduce::sum);
  host_comm_.all_reduce(std::span<double>(all.sums), comm::Reduce::sum);
  host_comm_.all_reduce(std::span<float>(all.largest), comm::Reduce::amax);
  host_comm_.all_reduce(std::span<float>(all.smallest), comm::Reduce::min);
  auto count = all.counts.begin();
  auto sum = all.sums.begin();
  auto largest = all.largest.begin(), smallest = all.smallest.begin();
  for (auto& [key, entry] : entries_) {
    Figures& f = entry.figures;
    for (std::int64_t* n :
         {&f.elements, &f.nonfinite, &f.nonzero, &f.underflowed, &f.subnormal, &f.saturated, &f.scales})
      *n = *count++;
    for (std::int64_t& n : f.exponents) n = *count++;
    for (std::int64_t& n : f.scaled_exponents) n = *count++;
    f.signal = *sum++;
    f.noise = *sum++;
    f.amax = *largest++;
    f.of_values.max = *largest++;
    f.of_zeros.max = *largest++;
    f.smallest = *smallest++;
    f.of_values.min = unpacked(*smallest++);
    f.of_zeros.min = unpacked(*smallest++);
  }
  for (auto& [key, squares] : products_) {
    squares.error = *sum++;
    squares.reference = *sum++;
  }
}

// The groups of a rank with what add_groups() needs, for the other ranks: groups, their number in a row, the part.
std::string Collector::text_of(const Entry& entry) {
  static_assert(std::is_trivially_copyable_v<GroupFigures>);
  const auto bytes = std::as_bytes(std::span(entry.groups.groups));
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  text.append(reinterpret_cast<const char*>(&entry.groups.across), sizeof entry.groups.across);
  text.push_back(entry.divided ? static_cast<char>(*entry.divided) : '\x7f');
  return text;
}

// Adds the groups of a rank to those of the ranks before it: by the part that it measures, or, where it measures all
// columns of its rows, as those of ranks with other samples.
void Collector::add_groups(GroupGrid& all, const std::string& text, PartJoin over_data) {
  GroupGrid part;
  const std::size_t end = text.size() - 1, size = end - sizeof part.across;
  part.groups.resize(size / sizeof(GroupFigures));
  if (part.groups.empty()) return;
  std::memcpy(part.groups.data(), text.data(), size);
  std::memcpy(&part.across, text.data() + size, sizeof part.across);
  join(all, part, text[end] == '\x7f' ? over_data : static_cast<PartJoin>(text[end]));
}

// Combines the groups of all ranks: first of the ranks of tensor parallelism, whose numbers are consecutive, then of
// the ranks with other samples. Groups of columns of an activation are combined by element, others one after the other.
// The groups of a weight come from one copy of the model.
void Collector::reduce_groups() {
  if (host_comm_.size() == 1 || !options_.groups) return;
  const auto parts = static_cast<std::size_t>(mesh_.tensor().size());
  for (auto& [key, entry] : entries_) {
    const PartJoin over_data = entry.shared_groups ? PartJoin::inside : PartJoin::rows;
    const std::vector<std::string> texts = host_comm_.all_gather(text_of(entry));
    GroupGrid all;
    for (std::size_t first = 0; first < texts.size(); first += parts) {
      GroupGrid of_samples;
      for (std::size_t t = first; t < first + parts; ++t) add_groups(of_samples, texts[t], over_data);
      join(all, of_samples, over_data);
    }
    entry.groups = std::move(all);
  }
}

Results Collector::end() {
  active_ = false;
  reduce();
  reduce_groups();
  Results r;
  for (const auto& [use, key] : uses_) {
    const Entry& entry = entries_.at(key);
    r.operands.push_back({use.linear, use.gemm, use.operand, key.format, key.granularity, entry.figures});
    if (options_.groups) r.operands.back().groups = spread_of(entry.groups.groups);
  }
  for (const auto& [key, squares] : products_)  // a product that is zero, as it should be, has no error
    r.products.push_back(
        {key.first, key.second, squares.error == 0 ? 0 : std::sqrt(squares.error / squares.reference)});
  return r;
}

}  // namespace fp8::statistics
