/// The table of a model's parameters: names, shapes, fused projections, weight decay, tensor-parallel axes, and the
/// compute precision of each linear with its reason. No memory is allocated here.
///   V vocabulary, C hidden, F intermediate, H query heads, G key/value heads, D head_dim, L layers
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/hf/config.h"
#include "fp8/quant/recipe.h"

namespace fp8::model {

/// Position of a parameter inside its unit. q, k, v share a slot, and so do gate and up: their rows are concatenated.
enum class Slot : std::uint8_t {
  embedding,     ///< [V, C]
  input_norm,    ///< [C]
  qkv,           ///< [(H + 2G) D, C]
  qkv_bias,      ///< [(H + 2G) D]
  q_norm,        ///< [D]
  k_norm,        ///< [D]
  o,             ///< [C, H D]
  o_bias,        ///< [C]
  post_norm,     ///< [C]
  gate_up,       ///< [2F, C]
  gate_up_bias,  ///< [2F]
  down,          ///< [C, F]
  down_bias,     ///< [C]
  final_norm,    ///< [C]
  head,          ///< [V, C]
};
/// Number of slots.
inline constexpr int kSlots = 15;

/// Kind of a parameter.
enum class ParameterRole : std::uint8_t { embedding, norm, bias, linear, head };

/// One tensor of the model, under its Hugging Face name.
struct Parameter {
  std::string name;                            ///< name on disk
  std::vector<std::int64_t> shape;             ///< [rows] or [rows, cols]
  ParameterRole role = ParameterRole::linear;  ///< kind
  int unit = 0;                                ///< 0 embedding, 1..L layers, L+1 final norm and head
  Slot slot = Slot::embedding;                 ///< position in the unit
  std::int64_t slot_row = 0;                   ///< its first row in the slot's matrix
  int tensor_parallel_axis =
      -1;  ///< dimension split by tensor parallelism: 0 columns-parallel layers, 1 row-parallel ones, -1 replicated
  int expert = -1;         ///< index of its expert; -1: none
  bool decay = false;      ///< weight decay applies (two or more dimensions)
  bool fp8 = false;        ///< whether it computes in FP8
  std::string reason;      ///< why not FP8; empty for FP8
  quant::GemmSet gemms{};  ///< if FP8: in which GEMMs

  /// Rows (first extent).
  std::int64_t rows() const { return shape[0]; }
  /// Columns; 1 for vectors.
  std::int64_t cols() const { return shape.size() > 1 ? shape[1] : 1; }
  /// Number of elements.
  std::int64_t size() const { return rows() * cols(); }
  /// Whether it is the weight of a matmul (linears and the LM head).
  bool matmul() const { return role == ParameterRole::linear || role == ParameterRole::head; }
  /// "fp8" or "bf16".
  std::string_view precision() const { return fp8 ? "fp8" : "bf16"; }
};

/// All parameters of a model in order of computation; the index is the parameter's number everywhere (seeds, records).
/// With tied embeddings there is no head parameter.
std::vector<Parameter> parameter_table(const hf::ModelConfig& config);

/// Rows and columns of a slot's matrix in any unit that has the slot; {0, 0} if the model has no such slot.
struct Extent {
  std::int64_t rows = 0;  ///< first extent
  std::int64_t cols = 0;  ///< second extent; 1 for vectors
};
/// Extent of a slot.
Extent slot_extent(const hf::ModelConfig& config, Slot slot);

/// GEMMs that run in FP8 in some linears.
struct GemmRule {
  std::string glob;      ///< names of weights; empty: all
  quant::GemmSet gemms;  ///< at least one
};

/// Options of assign_precisions().
struct LinearPrecisionOptions {
  const quant::Recipe* recipe = nullptr;  ///< for the thresholds of auto_filter; null: the default recipe
  std::vector<std::string> filters{};     ///< name globs of weights that stay in bf16
  bool auto_filter = false;               ///< exclude layers that are too small to gain
  bool lm_head = false;                   ///< FP8 for the LM head too
  std::vector<GemmRule> gemms{};          ///< the last that matches a linear applies
};

/// Sets fp8 and reason of every parameter. A linear is FP8 when both its dimensions are multiples of 16 and no option
/// excludes it.
void assign_precisions(std::vector<Parameter>& table, const LinearPrecisionOptions& options);

/// Number of elements of a table's parameters. Throws Error on overflow.
std::int64_t parameter_count(const std::vector<Parameter>& table);
/// Elements of linears and the LM head, also if tied: N of "6 N FLOPs per token".
std::int64_t matmul_parameter_count(const hf::ModelConfig& config, const std::vector<Parameter>& table);

}  // namespace fp8::model
