/// The input of a linear as the GEMMs of its parts read it. Private to this crate.
#pragma once

#include <algorithm>

#include "fp8/linear/codes.h"
#include "fp8/linear/input.h"

namespace fp8::linear {

/// Whether the GEMM of a part that reads x in the pass is FP8: forward, or wgrad in Pass::backward.
inline bool reads_codes_of_x(const Part& p, Pass pass) {
  return p.fp8 && (pass == Pass::backward ? p.gemms.wgrad : p.gemms.forward);
}

/// Whether any GEMM of a weight that reads x in the pass is FP8.
inline bool reads_codes_of_x(const Weight& weight, Pass pass) {
  return std::ranges::any_of(weight.operands, [pass](const Operand& o) { return reads_codes_of_x(o.part, pass); });
}

/// The cast of x for that GEMM.
inline const quant::Cast& input_cast(const quant::Recipe& recipe, Pass pass) {
  return pass == Pass::backward ? recipe.wgrad.x : recipe.forward.x;
}

/// The cast of x for the GEMMs of a pass; none if no part reads codes.
inline quant::Cast cast_of_x(const Weight& weight, Pass pass) {
  return reads_codes_of_x(weight, pass) ? input_cast(*weight.precision.recipe, pass) : quant::Cast{};
}

/// The casts of x for forward, and with `keeps` for wgrad.
inline quant::CastPair casts_of_x(const Weight& weight, bool keeps) {
  return {.last = cast_of_x(weight, Pass::forward), .first = keeps ? cast_of_x(weight, Pass::backward) : quant::Cast{}};
}

/// Options of the cast of an activation, or gradient: with the scale of the amax of all ranks if there is a reducer.
/// `of_x` is the amax of x if it is known, else empty.
quant::CastOptions activation_options(const Context& ctx, const LinearPrecision& precision, const View& x,
                                      const quant::Cast& cast, const quant::KnownScale& known, const View& of_x,
                                      const quant::Split& split);

/// Records an amax without a cast.
void calibrate(const Context& ctx, const View& x, const quant::KnownScale& slot);

/// The codes of x for wgrad, in memory from the arena; none if no part reads them. `amax` is that of x, or empty.
quant::Quantized cast_for_wgrad(const Context& ctx, const Weight& weight, const View& x, const View& amax);

/// Codes that were cast before as the only form of x.
Input input_of_codes(const Context& ctx, const Weight& weight, const InputCodes& x, Pass pass);

/// x in one pass: codes for the parts that read them, x itself for the others.
class PassInput {
 public:
  /// The forms that the pass does not read may be missing.
  PassInput(const Context& ctx, const Input& x, Pass pass)
      : pass_(pass),
        high_(x.values.empty() ? quant::Quantized{} : quant::quantize(ctx, x.values, {}, contract(), {})),
        fp8_(pass == Pass::backward ? x.columns : x.rows) {}
  /// What the GEMM of the part reads.
  const quant::Quantized& of(const Part& part) const { return reads_codes_of_x(part, pass_) ? fp8_ : high_; }

 private:
  quant::ContractionAxis contract() const {
    return pass_ == Pass::backward ? quant::ContractionAxis::first : quant::ContractionAxis::last;
  }
  Pass pass_;
  quant::Quantized high_, fp8_;
};

}  // namespace fp8::linear
