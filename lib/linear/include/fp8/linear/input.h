/// The input x [M, K] of a linear in the forms that its GEMMs read. linear.h's forward() and backward() cast x each for
/// its own GEMMs; with these functions x is cast once, in forward, for both, or is written as codes by the operation
/// that computes it, and backward reads the codes for wgrad in place of x. Results, and counts of casts, have the bits
/// of linear.h's functions.
#pragma once

#include "fp8/linear/linear.h"

namespace fp8::linear {

/// Forms of an input.
struct InputForms {
  bool values = false;   ///< x itself
  bool rows = false;     ///< codes for the GEMM forward, which contracts K
  bool columns = false;  ///< codes for wgrad, which contracts M
  /// Whether they are the same.
  bool operator==(const InputForms&) const = default;
};

/// An input in some forms. Of those that are missing `values`, or `codes` of rows or columns, is empty.
struct Input {
  View values;                                   ///< [M, K], f32 or bf16
  quant::Quantized rows{};                       ///< contracts the last dimension
  quant::Quantized columns{};                    ///< contracts the first dimension
  dtype::DType activation = dtype::DType::bf16;  ///< type of x
  /// Whether no form is there.
  bool is_missing() const { return values.empty() && rows.codes.empty() && columns.codes.empty(); }
};

/// x in the precision of the activations alone.
inline Input values_of(const View& x) { return {.values = x, .activation = x.dtype}; }

/// The forms of x that forward() of a weight reads (Pass::forward and Pass::recompute), or that backward() reads with
/// dw wanted (Pass::backward). An operation that computes x may write the codes itself where `values` is not read; with
/// scales of whole tensors only if needed_amaxes() says that x needs no amax.
InputForms forms_read(const Weight& weight, Pass pass);

/// The forms of x, of which only shape and type are read, that forward should leave for backward of the same weight:
/// columns alone where that is all that backward reads and they take less memory than x (quant::saves_memory()), else
/// the values. The weight is prepared for Pass::forward; with Pass::recompute its observer is unknown.
InputForms forms_kept(const Context& ctx, const Weight& weight, const View& x);

/// x with the forms that forward() reads, cast in one call, in memory from the arena, and if forms_kept() has columns
/// and `kept` is not null, with columns in memory of `kept`. `options` as for forward(). The scales of columns are in
/// that memory too, or those that Weight::known refers to, which must stay the same until backward.
Input cast_input(const Context& ctx, const Weight& weight, const View& x, const ForwardOptions& options,
                 device::PooledMemory* kept);

/// forward() of linear.h. Codes that are missing are cast from the values, with `options` as for those; if there are
/// codes, all forms that forward reads are there.
void forward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const Input& x, const View& y,
             const ForwardOptions& options = {});

/// backward() of linear.h, likewise. Without dw no codes of x are read.
void backward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const Input& x, const View& dy,
              const Gradients& gradients, const KnownAmaxes& amaxes = {});

}  // namespace fp8::linear
