/// How far the tensors of one set are from those of another, and by which factor: relative L2, cosine, least squares.
/// Two sets are compared in pieces of fixed size. Sums are in f64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/convert/tensor_set.h"
#include "fp8/model/initialize.h"

namespace fp8::convert {

/// Tensor b of B against tensor a of A. NaN stands for what is not defined.
struct TensorFit {
  std::string name;        ///< name in A, or in B if A has none
  std::string note{};      ///< "only in A", "only in B", "shapes differ: 2x3 and 3x2", "2 elements of B not finite",
                           ///< "3 rows of B beyond the 250 of A are not zero"
  double relative_l2 = 0;  ///< |b - a| / |a|; 0 if both are zero, infinite if only a is; NaN without figures
  double cosine = 0;       ///< a . b / (|a| |b|); NaN if a or b is zero
  double factor = 0;       ///< a . b / |a|^2: b = factor x a fits best; NaN if a is zero
  double norm_a = 0;       ///< |a|
  double norm_b = 0;       ///< |b|
  bool compared = false;   ///< both sets have it in one shape, but for rows that pad a vocabulary
  bool finite_a = true;    ///< all elements of a are finite
  bool finite_b = true;    ///< all elements of b are finite

  /// Whether the figures are defined by two finite tensors, of one shape but for rows that pad a vocabulary.
  bool has_figures() const { return compared && finite_a && finite_b; }
  /// Whether it is within a bound: compared, finite, and relative_l2 at most `bound`.
  bool within(double bound) const { return note.empty() && relative_l2 <= bound; }
};

/// Facts about one set of a comparison.
struct SideFacts {
  std::optional<double> loss{};    ///< key `loss` of the metadata of gradients, if it is a finite number
  std::optional<double> step{};    ///< key `step` there, likewise
  std::optional<double> tokens{};  ///< key `tokens` there, likewise: tokens of the run up to this step
  std::string precision{};         ///< keys `precision` and `recipe` there, "fp8 tensorwise"; empty if unknown
  bool rounded = false;            ///< key `precision` there, and not fp32: gradients of bf16 or FP8
  bool weights = false;            ///< see TensorSet::holds_weights()
  bool gradients = false;          ///< has key `loss` or `grad_norm` there, and no weights
  std::size_t torchtitan = 0;      ///< tensors without counterpart whose names are torchtitan's and were not translated
  std::size_t megatron = 0;        ///< those whose names are Megatron-LM's
};

/// The comparison of two sets.
struct Fit {
  std::vector<TensorFit> tensors;  ///< of both sets, worst first: those with a note, then by falling relative_l2
  std::int64_t head_dim = 0;       ///< width of a head that was found from the values; 0: known, or not needed
  SideFacts a{}, b{};              ///< facts about each set
};

/// Compares all tensors of two sets. Where torchtitan's rotary order is undone and no configuration has the width of a
/// head, it is the one with which q_proj and k_proj agree best.
Fit fit(const TensorSet& a, const TensorSet& b, const model::ProgressSink& progress = {});

/// What the differences suggest, one sentence each, as "each router is 2.00 times too large". A sentence about tensors
/// of which it is not true of all, or some of which could not be compared, has their numbers. A tensor outside of
/// `bound` that fits none is not mentioned.
std::vector<std::string> suggestions(const Fit& fit, double bound);

}  // namespace fp8::convert
