/// The table of a model's parameters: the one place that knows names, shapes, which projections lie together, what is
/// decayed, how a tensor would be split, and which linears run in FP8 and why the others do not. No memory here.
///   V vocabulary, C hidden, F intermediate, H query heads, G key/value heads, D head_dim, L layers
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/hf/config.h"
#include "fp8/quant/recipe.h"

namespace fp8::model {

/// Place of a parameter inside its unit. q, k, v share a slot, and so do gate and up: their rows lie one after the
/// other.
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

/// What a parameter is.
enum class Role : std::uint8_t { embedding, norm, bias, linear, head };

/// One tensor of the model, under its Hugging Face name.
struct Parameter {
  std::string name;                 ///< as on disk
  std::vector<std::int64_t> shape;  ///< [rows] or [rows, cols]
  Role role = Role::linear;         ///< what it is
  int unit = 0;                     ///< 0 embedding, 1..L layers, L+1 final norm and head
  Slot slot = Slot::embedding;      ///< where in the unit
  std::int64_t slot_row = 0;        ///< its first row in the slot's matrix
  int tensor_parallel_axis =
      -1;  ///< dimension split by tensor parallelism: 0 columns-parallel layers, 1 row-parallel ones, -1 replicated
  int expert = -1;     ///< which expert it belongs to; -1: none
  bool decay = false;  ///< weight decay applies (two or more dimensions)
  bool fp8 = false;    ///< its fate
  std::string reason;  ///< why not FP8; empty for FP8

  /// Rows (first extent).
  std::int64_t rows() const { return shape[0]; }
  /// Columns; 1 for vectors.
  std::int64_t cols() const { return shape.size() > 1 ? shape[1] : 1; }
  /// Number of elements.
  std::int64_t size() const { return rows() * cols(); }
  /// Whether it takes part in a matmul as a weight (linears and the LM head).
  bool matmul() const { return role == Role::linear || role == Role::head; }
  /// "fp8" or "bf16".
  std::string_view fate() const { return fp8 ? "fp8" : "bf16"; }
};

/// All parameters of a model in the order of its computation; the index is the parameter's number everywhere (seeds,
/// records). With tied embeddings there is no head parameter.
std::vector<Parameter> parameter_table(const hf::Config& config);

/// Rows and columns of a slot's matrix in any unit that has it; {0, 0} where the model has no such slot.
struct Extent {
  std::int64_t rows = 0;  ///< first extent
  std::int64_t cols = 0;  ///< second extent; 1 for vectors
};
/// Extent of a slot.
Extent slot_extent(const hf::Config& config, Slot slot);

/// What decides a linear's fate.
struct FateOptions {
  const quant::Recipe* recipe = nullptr;  ///< for the thresholds of auto_filter; null: the default recipe
  std::vector<std::string> filters{};     ///< name globs to leave in bf16
  bool auto_filter = false;               ///< leave out layers too small to gain
  bool lm_head = false;                   ///< convert the LM head too
};

/// Sets fp8 and reason of every parameter. A linear is FP8 when both its dimensions divide by 16 and nothing in
/// `options` leaves it out.
void assign_fates(std::vector<Parameter>& table, const FateOptions& options);

/// Number of parameters (elements) of a table, and of those that take part in matmuls (a tied embedding counts as the
/// head it is).
std::int64_t parameter_count(const std::vector<Parameter>& table);
/// Elements of linears and the LM head: N of "6 N FLOPs a token".
std::int64_t matmul_parameter_count(const hf::Config& config, const std::vector<Parameter>& table);

}  // namespace fp8::model
