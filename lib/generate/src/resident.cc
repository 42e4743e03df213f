// Reads weights slot by slot: whole matrices in the compute type, or FP8 operands of each part.
#include "fp8/generate/resident.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "fp8/convert/stored_weight.h"
#include "fp8/quant/fp4.h"
#include "fp8/quant/scale.h"

namespace fp8::generate {
namespace {

using dtype::DType;
using quant::Granularity;
using tensor::Tensor;

constexpr const char* kCategory = "weights";

// Parameters of one slot of one unit, or those of one expert among them, in row order.
using Together = std::vector<const model::Parameter*>;

// Source of the weights, and how they are prepared.
struct Loader {
  const Context& ctx;
  const convert::OpenModel& model;
  DType compute;
  const linear::LinearPrecision& precision;

  // A weight as it is stored: in the checkpoint, or in the folder of the adapters.
  convert::StoredMatrix stored(const model::Parameter& p) const {
    if (!in_folder(p)) return convert::stored_matrix(model.source, p);
    return {.name = model.adapter->path() + ": " + p.name,
            .rows = p.rows(),
            .cols = p.cols(),
            .dtype = DType::f32,
            .read = [&folder = *model.adapter, name = p.name](std::int64_t begin, std::int64_t end,
                                                              std::span<std::byte> out) {
              std::vector<float> values(out.size() / sizeof(float));
              folder.read_rows(name, begin, end - begin, values);
              std::memcpy(out.data(), values.data(), out.size());
            }};
  }

  bool in_folder(const model::Parameter& p) const { return p.role == model::ParameterRole::adapter && model.adapter; }

  // Reads a weight into contiguous memory, f32 or bf16.
  void read(const model::Parameter& p, const View& to) const {
    if (ctx.dry) return;
    auto* at = static_cast<std::byte*>(to.data);
    const convert::WriteBytes write = [&at](std::span<const std::byte> bytes) {
      std::memcpy(at, bytes.data(), bytes.size());
      at += bytes.size();
    };
    const convert::StoredMatrix x = stored(p);
    if (in_folder(p) || !convert::is_codes(model.source, p)) return convert::write_as(x, to.dtype, write);
    convert::uncast_matrix(x, convert::read_scales(model.source, p.name), convert::grid_of(model.source, p), to.dtype,
                           write);
  }

  // The slot's matrix, or vector, in memory from the arena.
  View matrix(const Together& parameters) const {
    const model::Parameter& first = *parameters.front();
    const model::Parameter& last = *parameters.back();
    const std::int64_t begin = first.slot_row, rows = last.slot_row + last.rows() - begin;
    const View all = first.shape.size() == 1 ? tensor::allocate(ctx, compute, {rows}, kCategory)
                                             : tensor::allocate(ctx, compute, {rows, first.cols()}, kCategory);
    for (const model::Parameter* p : parameters)
      read(*p, all.rows(p->slot_row - begin, p->slot_row - begin + p->rows()));
    return all;
  }

  // Whether the forward GEMM of a linear is FP8.
  bool fp8(const model::Parameter& p) const {
    if (precision.recipe == nullptr || p.shape.size() != 2) return false;
    return convert::is_codes(model.source, p) || (p.fp8 && p.gemms.forward);
  }

  // The rows of a linear in a weight that begins at row `begin` of its slot.
  linear::Part part_of(const model::Parameter& p, std::int64_t begin) const {
    const bool in_fp8 = fp8(p);
    const std::int64_t row = p.slot_row - begin;
    return {row, row + p.rows(), in_fp8, in_fp8 ? p.gemms : quant::GemmSet{}};
  }

  // Adapters of the linears `weights`, of one expert if they are experts', with A and B in memory from the arena.
  std::vector<linear::Adapter> adapters(const Together& weights, const Together& all_a, const Together& all_b,
                                        const View& scaling) const {
    std::vector<linear::Adapter> out;
    const auto own = [this](const model::Parameter& p) {
      const View values = tensor::allocate(ctx, compute, {p.rows(), p.cols()}, kCategory);
      read(p, values);
      return values;
    };
    for (std::size_t i = 0; i < all_a.size(); ++i) {
      if (all_a[i]->expert != weights.front()->expert) continue;
      const std::string weight = model::adapted_module(*all_a[i]) + ".weight";
      const auto of =
          std::ranges::find(weights, weight, [](const model::Parameter* p) -> const std::string& { return p->name; });
      out.push_back({part_of(**of, weights.front()->slot_row), own(*all_a[i]), own(*all_b.at(i)), scaling});
    }
    return out;
  }

  quant::Quantized packed_codes(const model::Parameter& p) const;
  quant::Quantized stored_codes(const model::Parameter& p) const;
  linear::Operand fp8_operand(const model::Parameter& p, std::int64_t begin) const;
  linear::Weight weight(const Together& parameters, const View& bias, const View& whole) const;
  std::vector<linear::Weight> experts(const Together& weights, const Together& all_a, const Together& all_b,
                                      const View& scaling) const;
};

View f32_in_arena(const Context& ctx, const std::vector<float>& values, tensor::Shape shape) {
  const View v = tensor::allocate(ctx, DType::f32, shape, kCategory);
  if (!ctx.dry) std::copy(values.begin(), values.end(), v.as<float>());
  return v;
}

// Whether code times factor is a normal BF16 number, or zero, for all codes.
bool folds(const std::vector<float>& factors) {
  return std::ranges::all_of(factors, [](float f) {
    int exponent = 0;
    return std::frexp(f, &exponent) == 0.5f && exponent > -100 && exponent < 100;
  });
}

// FP4 codes as an operand.
quant::Quantized Loader::packed_codes(const model::Parameter& p) const {
  const View amax = f32_in_arena(ctx, {0.0f}, {1});
  const std::array<std::int64_t, 2> extents = quant::fp4_scales(p.rows(), p.cols(), quant::ContractionAxis::last, true);
  const Tensor codes(DType::u8, {ctx.dry ? 0 : p.rows(), p.cols() / dtype::packed(DType::e2m1)});
  convert::StoredScales scales;
  scales.bytes.resize(1);
  if (!ctx.dry) {
    model.source.read(convert::stored_name(p), {static_cast<std::byte*>(codes.view().data), codes.view().bytes()});
    scales = convert::stored_scales(model.source, p.name);
    (void)scales.factors(p.name, DType::e2m1);  // throws for a bad one
    *amax.as<float>() = scales.amax;
  }
  const auto host = device::DeviceType::host;
  return quant::from_packed(ctx,
                            tensor::make_view(ctx.dry ? scales.bytes.data() : codes.view().data, DType::u8, host,
                                              {p.rows(), p.cols() / dtype::packed(DType::e2m1)}),
                            tensor::make_view(scales.bytes.data(), DType::e4m3, host, {extents[0], extents[1]}), amax,
                            quant::ContractionAxis::last);
}

// Stored codes as an operand, with their factors as inverse scales. In a dry run factors are powers of two, which does
// not change the memory.
quant::Quantized Loader::stored_codes(const model::Parameter& p) const {
  const DType format = model.source.at(convert::stored_name(p)).dtype;
  if (dtype::is_fp4(format)) return packed_codes(p);
  const Granularity scaling = convert::scaling_of(model.source, p);
  const convert::FactorGrid grid = convert::grid_of(model.source, p);
  std::vector<float> factors(static_cast<std::size_t>(grid.rows * grid.cols), 1.0f);
  if (!ctx.dry) factors = convert::read_scales(model.source, p.name);
  const bool blocks = quant::block_extent(scaling).along > 0, folded = blocks && folds(factors);
  const View inverse =
      blocks ? f32_in_arena(ctx, factors, {grid.rows, grid.cols}) : f32_in_arena(ctx, factors, {grid.rows});
  const View one = f32_in_arena(ctx, {1.0f}, {1});
  for (float& f : factors) f = 1.0f / f;
  const View scale = blocks ? View{} : f32_in_arena(ctx, factors, {grid.rows});
  if (folded) {
    const View values = tensor::allocate(ctx, DType::bf16, {p.rows(), p.cols()}, kCategory);
    read(p, values);
    return {values, format, scaling, quant::ContractionAxis::last, {}, inverse, true};
  }
  const Tensor bytes(DType::u8, {ctx.dry ? 0 : p.rows(), p.cols()});
  View codes = bytes.view();
  if (ctx.dry) {
    codes = tensor::make_view(one.data, DType::u8, device::DeviceType::host, {p.rows(), p.cols()});
  } else {
    model.source.read(convert::stored_name(p), {static_cast<std::byte*>(codes.data), codes.bytes()});
  }
  quant::Quantized q =
      quant::from_bytes(ctx, codes, format, quant::ContractionAxis::last, blocks ? one : scale, blocks ? one : inverse);
  if (blocks) q.granularity = scaling, q.scale = {}, q.inverse_scale = inverse;
  return q;
}

linear::Operand Loader::fp8_operand(const model::Parameter& p, std::int64_t begin) const {
  const linear::Part part = part_of(p, begin);
  if (convert::is_codes(model.source, p)) return {part, stored_codes(p)};
  // As in training, scales and codes for FP8 all-gather come from the masters, all others from the compute weights.
  const DType type = precision.recipe->fp8_all_gather ? DType::f32 : compute;
  const Tensor values(type, {ctx.dry ? 0 : p.rows(), p.cols()});
  std::byte unread{};
  const View matrix =
      tensor::make_view(ctx.dry ? &unread : values.view().data, type, device::DeviceType::host, {p.rows(), p.cols()});
  read(p, matrix);
  linear::Part own = part;
  own.begin = 0;
  own.end = p.rows();
  linear::Weight w = linear::prepare(ctx, matrix, {}, {own}, precision, Pass::forward);
  return {part, w.operands.front().codes};
}

linear::Weight Loader::weight(const Together& parameters, const View& bias, const View& whole) const {
  linear::Weight w{bias, precision, {}, {}, {}};
  const std::int64_t begin = parameters.front()->slot_row;
  for (const model::Parameter* p : parameters) w.parts.push_back(part_of(*p, begin));
  if (!whole.empty()) {
    const linear::LinearPrecision high{};
    std::vector<linear::Part> parts = w.parts;
    for (linear::Part& part : parts) part.fp8 = false;
    return linear::prepare(ctx, whole, bias, parts, high, Pass::forward);
  }
  for (const model::Parameter* p : parameters) {
    if (fp8(*p)) {
      w.operands.push_back(fp8_operand(*p, begin));
      continue;
    }
    const View own = tensor::allocate(ctx, compute, {p->rows(), p->cols()}, kCategory);
    read(*p, own);
    w.operands.push_back({part_of(*p, begin), quant::quantize(ctx, own, {}, quant::ContractionAxis::last, {})});
  }
  return w;
}

// The weights of experts by number, with their adapters, from all linears of a slot.
std::vector<linear::Weight> Loader::experts(const Together& weights, const Together& all_a, const Together& all_b,
                                            const View& scaling) const {
  std::vector<linear::Weight> out;
  for (auto begin = weights.begin(); begin != weights.end();) {
    const auto end =
        std::find_if(begin, weights.end(), [&](const model::Parameter* p) { return p->expert != (*begin)->expert; });
    const Together own(begin, end);
    const bool whole = std::ranges::none_of(own, [&](auto* p) { return fp8(*p); });
    out.push_back(weight(own, {}, whole ? matrix(own) : View{}));
    out.back().adapters = adapters(own, all_a, all_b, scaling);
    begin = end;
  }
  return out;
}

}  // namespace

ResidentWeights::ResidentWeights(const Context& ctx, const convert::OpenModel& model, dtype::DType compute,
                                 const linear::LinearPrecision& precision)
    : units_(static_cast<std::size_t>(model.config.num_hidden_layers) + 2) {
  const Loader loader{ctx, model, compute, precision};
  const auto factor = static_cast<float>(model.config.lora ? model.config.lora->scaling() : 0);
  const View scaling = f32_in_arena(ctx, {factor}, {1});
  std::vector<std::array<Together, model::kSlots>> slots(units_.size());
  for (const model::Parameter& p : model.table)
    slots[static_cast<std::size_t>(p.unit)][static_cast<std::size_t>(p.slot)].push_back(&p);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    model::UnitWeights& w = units_[unit];
    const auto& of_unit = slots[unit];
    const auto of_slot = [&](model::Slot slot) -> const Together& { return of_unit[static_cast<std::size_t>(slot)]; };
    for (std::size_t i = of_unit.size(); i-- > 0;) {  // the bias of a slot is the slot after it
      const Together& parameters = of_unit[i];
      if (parameters.empty() || parameters.front()->role == model::ParameterRole::adapter) continue;
      const model::Parameter& first = *parameters.front();
      if (first.expert >= 0) continue;
      const bool head = first.role == model::ParameterRole::embedding && model.config.tie_word_embeddings;
      const bool whole = !first.matmul() || std::ranges::none_of(parameters, [&](auto* p) { return loader.fp8(*p); });
      const View matrix = whole ? loader.matrix(parameters) : View{};
      if (!first.matmul()) w.plain[i] = matrix;
      if (!first.matmul() && !head) continue;
      const bool biased = i + 1 < of_unit.size() && !of_unit[i + 1].empty() &&
                          of_unit[i + 1].front()->role == model::ParameterRole::bias;
      w.matmul[i] = loader.weight(parameters, biased ? w.plain[i + 1] : View{}, matrix);
      count(w.matmul[i]);
    }
    for (const model::AdaptedSlot& at : model::kAdaptedSlots) {
      const Together &weights = of_slot(at.linear), &all_a = of_slot(at.a), &all_b = of_slot(at.b);
      if (std::vector<linear::Weight>* const experts = w.experts_of(at.linear)) {
        *experts = loader.experts(weights, all_a, all_b, scaling);
        for (const linear::Weight& weight : *experts) count(weight);
      } else {
        w.matmul[static_cast<std::size_t>(at.linear)].adapters = loader.adapters(weights, all_a, all_b, scaling);
      }
    }
  }
}

void ResidentWeights::count(const linear::Weight& weight) {
  for (const linear::Operand& o : weight.operands) {
    bytes_ += tensor::bytes_of(o.codes.codes);
    fp8_linears_ += o.part.fp8 ? 1 : 0;
  }
}

void ResidentWeights::prefetch(int, Pass) {}

model::UnitWeights ResidentWeights::unshard(const Context&, int unit, Pass) {
  return units_[static_cast<std::size_t>(unit)];
}

model::UnitGradients ResidentWeights::gradient_buffers(int) {
  throw std::logic_error("resident weights have no gradients");
}

void ResidentWeights::gradients_done(int) { throw std::logic_error("resident weights have no gradients"); }

}  // namespace fp8::generate
