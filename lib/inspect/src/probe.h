// A model in bf16 of which some linears run in FP8, in one of their GEMMs. Private to the crate.
#pragma once

#include <cmath>
#include <vector>

#include "activity.h"
#include "inspect_model.h"

namespace fp8::inspect {

inline constexpr quant::GemmSet kNone{false, false, false};
inline constexpr quant::GemmSet kForward{true, false, false};
inline constexpr quant::GemmSet kDgrad{false, true, false};
inline constexpr quant::GemmSet kWgrad{false, false, true};

// Sums over the elements of a gradient g in bf16 and the same gradient f with a GEMM in FP8.
struct Products {
  double exact = 0, other = 0, both = 0, difference = 0;  // g^2, f^2, g f, (f - g)^2
  Products& operator+=(const Products& o) {
    exact += o.exact;
    other += o.other;
    both += o.both;
    difference += o.difference;
    return *this;
  }
  double cosine() const { return both / std::sqrt(exact * other); }
  double relative_l2() const { return std::sqrt(difference / exact); }
};

// The model.
class Probe {
 public:
  // `activity` shows the operations that it computes, and outlives it.
  Probe(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device, Activity& activity);

  const std::vector<model::Parameter>& table() const { return model_.store.table(); }
  // Whether a GEMM of a linear is FP8 in its recipe.
  bool runs(int linear, const quant::GemmSet& gemm) const;
  // The work of losses_with(), as a multiple of that of a forward pass.
  double work_with(const std::vector<int>& linears) const;

  // Reads a batch, of which what follows is computed; the first is batch 0. Collective.
  void read_batch(std::int64_t number);
  std::vector<std::int64_t> sequence_targets() { return inspected_.sequence_targets(); }
  // The losses of this rank's sequences in bf16, summed over their targets. Keeps the inputs of the layers, those of
  // all rows where ranks divide linears. Collective.
  std::vector<double> losses();
  // The same with the forward GEMMs of some linears of one unit in FP8. Each sequence is computed alone, with another
  // rounding of weights and activations: its columns are multiplied by factors that are drawn for its position in the
  // data, see linear::LinearPrecision::column_factors. Ranks that share these linears, which are of experts, take
  // turns: an expert computes rows of one sequence at a time. After losses(). Collective.
  std::vector<double> losses_with(const std::vector<int>& linears);

  // The gradient in bf16 of the first batch, to which the others are compared. Collective.
  void gradient();
  // By parameter, the gradient with a GEMM of some linears in FP8 and the one in bf16, on all ranks. Collective.
  std::vector<Products> gradient_with(const std::vector<int>& linears, const quant::GemmSet& gemm);

 private:
  int turns_of(const std::vector<int>& linears) const;
  int first_layer(int linear) const { return table()[static_cast<std::size_t>(linear)].unit - 1; }
  View input_of(int layer) const;  // [M, C]
  void draw_factors(std::int64_t sequence);
  void select(const std::vector<int>& linears, const quant::GemmSet& gemm);
  void compute(const std::vector<int>& linears, const quant::GemmSet& gemm);
  std::vector<float> values_of(const shard::ParameterShard& o) const;

  const RecipeSetup& setup_;
  const Inspection& all_;
  const quant::Recipe& recipe_;
  tensor::Tensor factors_;  // of columns, as many as the widest linear has
  InspectedModel inspected_;
  shard::ShardedModel& model_;
  std::int64_t first_sequence_ = 0;  // position of this rank's first sequence of the batch among all that are read
  tensor::Tensor inputs_;            // [L + 1, M, C]
  tensor::Tensor no_tokens_;         // i32 [1]: the length of a sequence of which no token is routed
  std::vector<std::vector<float>> exact_;  // by parameter, own rows
};

}  // namespace fp8::inspect
