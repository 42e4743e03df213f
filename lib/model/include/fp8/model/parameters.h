/// The table of a model's parameters: names, shapes, fused projections, weight decay, tensor-parallel axes, which are
/// trained, and the compute precision of each linear with its reason. No memory is allocated here.
///   V vocabulary, C hidden, F intermediate, H query heads, G key/value heads, D head_dim, L layers, R rank of
///   adapters, E experts, X their intermediate
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/dtype/dtype.h"
#include "fp8/hf/config.h"
#include "fp8/quant/recipe.h"

namespace fp8::model {

/// Position of a parameter inside its unit. q, k, v share a slot, and so do gate and up: their rows are concatenated,
/// and so are those of their adapters (A, then B, of t of these projections, whose outputs are N wide together). The
/// experts of a layer share slots too: gate and up of expert 0, then of expert 1, and so on.
enum class Slot : std::uint8_t {
  embedding,          ///< [V, C]
  input_norm,         ///< [C]
  qkv,                ///< [(H + 2G) D, C]
  qkv_bias,           ///< [(H + 2G) D]
  q_norm,             ///< [D]
  k_norm,             ///< [D]
  o,                  ///< [C, H D]
  o_bias,             ///< [C]
  post_norm,          ///< [C]
  gate_up,            ///< [2F, C]
  gate_up_bias,       ///< [2F]
  down,               ///< [C, F]
  down_bias,          ///< [C]
  final_norm,         ///< [C]
  head,               ///< [V, C]
  qkv_a,              ///< [t R, C]
  qkv_b,              ///< [N, R]
  o_a,                ///< [R, H D]
  o_b,                ///< [C, R]
  gate_up_a,          ///< [t R, C]
  gate_up_b,          ///< [N, R]
  down_a,             ///< [R, F]
  down_b,             ///< [C, R]
  router,             ///< [E, C]
  experts_gate_up,    ///< [E 2X, C]
  experts_down,       ///< [E C, X]
  experts_gate_up_a,  ///< [t R, C], of t projections of all experts together
  experts_gate_up_b,  ///< [N, R]
  experts_down_a,     ///< [t R, X]
  experts_down_b,     ///< [N, R]
};
/// Number of slots.
inline constexpr int kSlots = 30;

/// The slots of a layer's linears, each with those of its adapters.
struct AdaptedSlot {
  Slot linear;  ///< the weights
  Slot a, b;    ///< A and B
};
/// All of them, in the order of computation.
inline constexpr std::array<AdaptedSlot, 6> kAdaptedSlots{
    {{Slot::qkv, Slot::qkv_a, Slot::qkv_b},
     {Slot::o, Slot::o_a, Slot::o_b},
     {Slot::gate_up, Slot::gate_up_a, Slot::gate_up_b},
     {Slot::down, Slot::down_a, Slot::down_b},
     {Slot::experts_gate_up, Slot::experts_gate_up_a, Slot::experts_gate_up_b},
     {Slot::experts_down, Slot::experts_down_a, Slot::experts_down_b}}};

/// Kind of a parameter.
enum class ParameterRole : std::uint8_t { embedding, norm, bias, linear, head, adapter, router };

/// One tensor of the model, under its Hugging Face name.
struct Parameter {
  std::string name;                            ///< name on disk
  std::vector<std::int64_t> shape;             ///< [rows] or [rows, cols]
  ParameterRole role = ParameterRole::linear;  ///< kind
  int unit = 0;                                ///< 0 embedding, 1..L layers, L+1 final norm and head
  Slot slot = Slot::embedding;                 ///< position in the unit
  std::int64_t slot_row = 0;                   ///< first row of the parameter in the slot's matrix
  int expert = -1;  ///< number of the expert that it belongs to, or whose linear it adapts; -1: none
  int tensor_parallel_axis =
      -1;  ///< dimension split by tensor parallelism: 0 columns-parallel layers, 1 row-parallel ones, -1 replicated
  /// Shape of the whole parameter, of which tensor parallelism gives this rank the block `shape`; empty: it is not
  /// divided, and every rank of tensor parallelism has it.
  std::vector<std::int64_t> whole{};
  /// First index of each block along tensor_parallel_axis, and one past the last; empty if it is not divided.
  std::vector<std::int64_t> bounds{};
  int block = 0;       ///< number of this rank's block
  int copies = 1;      ///< adjacent ranks of tensor parallelism that have the same block, whose gradients are summed
  bool decay = false;  ///< weight decay applies by default (two or more dimensions)
  bool muon = false;   ///< updated by Muon, so that it has no second moment; false: by AdamW
  dtype::DType stored = dtype::DType::f32;  ///< format in a checkpoint, and of the shard of a frozen parameter
  bool trainable = true;   ///< has a gradient and moments; false: frozen, as all but adapters in a model with adapters
  bool fp8 = false;        ///< whether it computes in FP8
  std::string reason;      ///< why not FP8; empty for FP8
  quant::GemmSet gemms{};  ///< GEMMs that run in FP8, if the parameter does
  const quant::Recipe* recipe = nullptr;  ///< own recipe of a matmul in FP8; null: the model's recipe
  bool fused = false;  ///< whether it is computed as one linear with the parameter before it in its slot

  /// Rows (first extent).
  std::int64_t rows() const { return shape[0]; }
  /// Columns; 1 for vectors.
  std::int64_t cols() const { return shape.size() > 1 ? shape[1] : 1; }
  /// Number of elements.
  std::int64_t size() const { return rows() * cols(); }
  /// First row and first column of the block in the whole parameter.
  std::int64_t first_row() const { return tensor_parallel_axis == 0 && !bounds.empty() ? first_index() : 0; }
  /// See first_row().
  std::int64_t first_col() const { return tensor_parallel_axis == 1 && !bounds.empty() ? first_index() : 0; }
  /// Shape of the whole parameter.
  const std::vector<std::int64_t>& whole_shape() const { return whole.empty() ? shape : whole; }
  /// First index of the block along tensor_parallel_axis, if it is divided.
  std::int64_t first_index() const { return bounds[static_cast<std::size_t>(block)]; }
  /// Whether it is the weight of a matmul (linears and the LM head).
  bool matmul() const { return role == ParameterRole::linear || role == ParameterRole::head; }
  /// "fp8" or "bf16".
  std::string_view precision() const { return fp8 ? "fp8" : "bf16"; }
};

/// All parameters of a model in order of computation; the index is the parameter's number everywhere (seeds, records).
/// With tied embeddings there is no head parameter. Adapters follow the weights of their slot, first all
/// MODULE.lora_A.weight, then all MODULE.lora_B.weight.
std::vector<Parameter> parameter_table(const hf::ModelConfig& config);

/// The full name of the linear that an adapter belongs to: its name without lora_A.weight or lora_B.weight.
std::string adapted_module(const Parameter& adapter);

/// Rows and columns of a slot's matrix.
struct Extent {
  std::int64_t rows = 0;  ///< first extent
  std::int64_t cols = 0;  ///< second extent; 1 for vectors
};
/// GEMMs that run in FP8 in some linears.
struct GemmRule {
  std::string glob;      ///< glob of names of weights; empty for all
  quant::GemmSet gemms;  ///< the GEMMs in FP8, at least one
};

/// Recipe of some linears.
struct RecipeRule {
  std::string glob;                       ///< glob of names of weights
  const quant::Recipe* recipe = nullptr;  ///< their recipe
};

/// The rules for the linears that run in FP8, their GEMMs and their recipes: the input of assign_precisions().
struct PrecisionRules {
  const quant::Recipe* recipe = nullptr;  ///< recipe of the model, or null for the default recipe
  std::vector<RecipeRule> recipes{};      ///< the last that matches a linear applies instead of the model's
  std::vector<std::string> filters{};     ///< name globs of weights that stay in bf16
  bool auto_filter = false;               ///< exclude layers that are too small to gain
  bool lm_head = false;                   ///< FP8 for the LM head too
  std::vector<GemmRule> gemms{};          ///< the last that matches a linear applies
};

/// Whether a glob of linears matches a weight: its name, or, as in other systems, that of its module, which is the name
/// without its last part.
bool filter_matches(const std::string& filter, const std::string& name);

/// Sets fp8, reason, gemms and recipe of every parameter. A linear is FP8 when both its dimensions are multiples of 16
/// and no option excludes it. Throws Error for a glob that matches nothing, and for projections of the same input (q,
/// k, v; gate, up) with different recipes: the input is cast once.
void assign_precisions(std::vector<Parameter>& table, const PrecisionRules& options);

/// Makes the projections of each slot one linear (Parameter::fused) if all of them are FP8, in the same GEMMs.
void fuse_projections(std::vector<Parameter>& table);

/// Makes Muon the optimizer of the hidden matrices that are trained: the weights of the linears of layers. Embedding,
/// LM head, norms, biases, routers and adapters keep AdamW.
void assign_muon(std::vector<Parameter>& table);

/// Number of elements of a table's parameters. Throws Error on overflow.
std::int64_t parameter_count(const std::vector<Parameter>& table);
/// Number of elements of those that are trained. Throws Error on overflow.
std::int64_t trainable_count(const std::vector<Parameter>& table);
/// Number of elements of those that a token uses: of experts those that it is routed to.
std::int64_t active_count(const hf::ModelConfig& config, const std::vector<Parameter>& table);
/// FLOPs of the matmuls of linears, their adapters, routers and the LM head, also if tied, in forward and backward over
/// one token: 6 for each element, or 4 where it is frozen and has no gradient; of experts those that a token has.
double training_flops_per_token(const hf::ModelConfig& config, const std::vector<Parameter>& table);

}  // namespace fp8::model
