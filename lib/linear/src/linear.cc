// The three GEMMs of a linear layer. Reads the recipe's table and hands operands to the engine; casts belong to quant,
// products to gemm.
#include "fp8/linear/linear.h"

#include "fp8/base/error.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"

namespace fp8::linear {
namespace {

using dtype::DType;
using quant::ContractionAxis;
using quant::Quantized;

// A matrix as an operand. On the host, with f32 activations and sums, FP8 values are scaled before the product, in f32,
// as PyTorch's emulation does: products of codes scaled after it differ in the last digits, and at a rounding tie that
// moves a later code. Sums of a tensor core are always of codes. Memory from the arena.
gemm::Operand operand(const Context& ctx, const Quantized& q, DType activation, const LinearPrecision& precision) {
  const bool scaled = q.granularity != quant::Granularity::none && activation == DType::f32 &&
                      precision.accumulation == gemm::Accumulation::f32;
  if (scaled && ctx.device == device::DeviceType::host) return {quant::dequantize(ctx, q), q.format, {}};
  return {q.codes, q.format, q.inverse_scale};
}

gemm::Operand transposed(gemm::Operand o) {
  o.matrix = o.matrix.transposed();
  return o;
}

Quantized plain(const View& x) {
  Quantized q;
  q.codes = x;
  q.format = x.dtype;
  return q;
}

// Neighbouring parts that stay in high precision become one.
std::vector<Part> merged(const std::vector<Part>& parts, bool any_fp8) {
  std::vector<Part> out;
  for (Part p : parts) {
    p.fp8 = p.fp8 && any_fp8;
    if (!out.empty() && !p.fp8 && !out.back().fp8) {
      out.back().end = p.end;
    } else {
      out.push_back(p);
    }
  }
  return out;
}

const quant::Cast& weight_cast(const quant::Recipe& recipe, Pass pass) {
  return pass == Pass::forward ? recipe.w.columns : recipe.w.rows;
}

ContractionAxis contracted(Pass pass) { return pass == Pass::forward ? ContractionAxis::last : ContractionAxis::first; }

// One matrix cast as late as possible and at most once: the codes for one GEMM.
class Lazy {
 public:
  Lazy(const Context& ctx, const View& x, const quant::Cast& cast, ContractionAxis contract,
       const quant::CastOptions& options)
      : ctx_(ctx), x_(x), cast_(cast), contract_(contract), options_(options) {}
  const Quantized& get() {
    if (q_.codes.empty()) q_ = quant::quantize(ctx_, x_, cast_, contract_, options_);
    return q_;
  }

 private:
  const Context& ctx_;
  const View& x_;
  const quant::Cast& cast_;
  ContractionAxis contract_;
  const quant::CastOptions& options_;
  Quantized q_;
};

// dw of one part. The gradient is `dy` for the GEMM that contracts its rows; where it stays in high precision the input
// does too.
void weight_gradient(const Context& ctx, gemm::Engine& engine, const Part& part, const LinearPrecision& precision,
                     const Quantized& dy, DType activation, const View& x, Lazy& x_codes, const Gradients& gradients) {
  const View dw = gradients.dw.rows(part.begin, part.end);
  const gemm::MatmulOptions options{gemm::GemmRole::wgrad, gradients.accumulate, false, {}, precision.accumulation};
  const bool high = dy.granularity == quant::Granularity::none;
  engine.matmul(ctx, transposed(operand(ctx, dy, activation, precision)),
                operand(ctx, high ? plain(x) : x_codes.get(), activation, precision), dw, options);
}

// The gradient of a part's output, for dgrad and, when the weight's gradient is wanted, for wgrad.
quant::Both cast_gradient(const Context& ctx, const Weight& weight, const Part& part, const View& dy,
                          bool weight_wanted) {
  if (!part.fp8) return {plain(dy), plain(dy)};
  const quant::Recipe& recipe = *weight.precision.recipe;
  if (weight_wanted) return quant::quantize_both(ctx, dy, recipe.dy, weight.precision.options);
  return {quant::quantize(ctx, dy, recipe.dy.columns, ContractionAxis::last, weight.precision.options), {}};
}

// Sums the input gradients of several GEMMs in f32, whatever the type of dx.
class InputGradient {
 public:
  InputGradient(const Context& ctx, const View& dx, bool several)
      : ctx_(ctx), dx_(dx), sum_(dx), several_(several && !dx.empty() && dx.dtype != DType::f32) {
    if (several_) sum_ = tensor::allocate(ctx, DType::f32, {dx.shape[0], dx.shape[1]}, "scratch");
  }
  void add(gemm::Engine& engine, const gemm::Operand& dy, const gemm::Operand& w, gemm::Accumulation accumulation) {
    engine.matmul(ctx_, dy, w, sum_, {gemm::GemmRole::dgrad, !first_, false, {}, accumulation});
    first_ = false;
  }
  void finish() {
    if (several_) ops::copy(ctx_, sum_, dx_);
  }

 private:
  const Context& ctx_;
  View dx_, sum_;
  bool several_, first_ = true;
};

}  // namespace

Weight prepare(const Context& ctx, const View& matrix, const View& bias, const std::vector<Part>& parts,
               const LinearPrecision& precision, Pass pass) {
  Weight w{bias, precision, {}};
  for (const Part& part : merged(parts, precision.recipe != nullptr)) {
    const View rows = matrix.rows(part.begin, part.end);
    w.operands.push_back({part, part.fp8 ? quant::quantize(ctx, rows, weight_cast(*precision.recipe, pass),
                                                           contracted(pass), precision.options)
                                         : plain(rows)});
  }
  return w;
}

Weight prepare_codes(const Context& ctx, const Codes& codes, const View& bias, const std::vector<Part>& parts,
                     const LinearPrecision& precision, Pass pass) {
  Weight w{bias, precision, {}};
  const quant::Cast& cast = weight_cast(*precision.recipe, pass);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const auto i = static_cast<std::int64_t>(p);
    w.operands.push_back({parts[p], quant::from_bytes(ctx, codes.bytes.rows(parts[p].begin, parts[p].end), cast.format,
                                                      contracted(pass), codes.scales.rows(i, i + 1),
                                                      codes.inverse_scales.rows(i, i + 1), precision.options.emulate)});
  }
  return w;
}

void forward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const View& x, const View& y) {
  const device::Scope scope(*ctx.arena);
  const LinearPrecision& precision = weight.precision;
  const quant::Recipe* recipe = precision.recipe;
  const quant::Cast none;
  const Quantized high = plain(x);
  Lazy x_codes(ctx, x, recipe != nullptr ? recipe->x.columns : none, ContractionAxis::last, weight.precision.options);
  for (const Operand& o : weight.operands) {
    const gemm::MatmulOptions options{gemm::GemmRole::forward, false, o.part.fp8 && recipe->fast_accumulation,
                                      weight.bias.empty() ? View{} : weight.bias.rows(o.part.begin, o.part.end),
                                      precision.accumulation};
    const Quantized& input = o.part.fp8 ? x_codes.get() : high;
    const device::Scope part_scope(*ctx.arena);
    engine.matmul(ctx, operand(ctx, input, x.dtype, precision), transposed(operand(ctx, o.codes, x.dtype, precision)),
                  y.columns(o.part.begin, o.part.end), options);
  }
}

void backward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const View& x, const View& dy,
              const Gradients& gradients) {
  const device::Scope scope(*ctx.arena);
  const LinearPrecision& precision = weight.precision;
  const quant::Recipe* recipe = precision.recipe;
  const quant::Cast none;
  InputGradient dx(ctx, gradients.dx, weight.operands.size() > 1);
  Lazy x_codes(ctx, x, recipe != nullptr ? recipe->x.rows : none, ContractionAxis::first, weight.precision.options);
  if (!gradients.dw.empty() && recipe != nullptr && recipe->x.rows.granularity != quant::Granularity::none) {
    for (const Operand& o : weight.operands) {
      if (o.part.fp8) x_codes.get();  // before the scopes of the parts, so that it outlives them
    }
  }
  for (const Operand& o : weight.operands) {
    const device::Scope part_scope(*ctx.arena);
    const View dy_part = dy.columns(o.part.begin, o.part.end);
    const quant::Both dyq = cast_gradient(ctx, weight, o.part, dy_part, !gradients.dw.empty());
    if (!gradients.dx.empty())
      dx.add(engine, operand(ctx, dyq.columns, dy.dtype, precision), operand(ctx, o.codes, dy.dtype, precision),
             precision.accumulation);
    if (!gradients.dw.empty())
      weight_gradient(ctx, engine, o.part, precision, dyq.rows, dy.dtype, x, x_codes, gradients);
  }
  dx.finish();
  if (!gradients.db.empty()) ops::bias_backward(ctx, dy, gradients.db);
}

gemm::Count planned_fp8(const std::vector<Part>& parts, std::int64_t k, const quant::Recipe& recipe, std::int64_t m,
                        bool backward) {
  gemm::Count count;
  const int each = backward ? recipe.fp8_gemms() : 1;
  for (const Part& p : parts) {
    if (!p.fp8) continue;
    count.gemms += each;
    count.flops += 2.0 * each * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(p.end - p.begin);
  }
  return count;
}

}  // namespace fp8::linear
