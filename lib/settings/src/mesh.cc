// A mesh fits if the model allows each dimension and the dimensions multiply to the ranks. Whatever does not fit, a
// message suggests only meshes for which both hold.
#include "fp8/settings/mesh.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"
#include "fp8/model/split.h"
#include "fp8/model/stages.h"
#include "fp8/settings/checks.h"

namespace fp8::settings {
namespace {

constexpr std::int64_t kFewestSampled = 16;  // rows of a pass that samples text, at least

// The dimensions in the order of messages.
enum Axis : std::uint8_t { kReplicate, kShard, kTp, kPp, kEp, kAxes };
constexpr std::array<const char*, kAxes> kNames{"dp-replicate", "dp-shard", "tp", "pp", "ep"};

std::string flag_text(Axis axis, std::int64_t value) {
  return cli::flag_name(kNames[axis]) + " " + std::to_string(value);
}

std::string either(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + " or " + b;
}

// The product, or INT_MAX if it is larger.
std::int64_t bounded_product(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  return a > kMost / b ? kMost : a * b;
}

// Flags that describe a mesh.
struct Flags {
  std::array<std::int64_t, kAxes> size{};  // dp-shard 0: the ranks that are left
  bool stages = false;                     // whether --stages is given

  std::int64_t operator[](Axis axis) const { return size[axis]; }
  std::int64_t& operator[](Axis axis) { return size[axis]; }
  // The product without dp-shard.
  std::int64_t others() const { return bounded_product(bounded_product(size[kReplicate], size[kTp]), size[kPp]); }
  // dp-shard of so many ranks, or nothing if the flags do not multiply to them.
  std::optional<std::int64_t> shards(std::int64_t ranks) const {
    if (ranks % others() != 0) return std::nullopt;
    const std::int64_t left = ranks / others();
    return size[kShard] == 0 || size[kShard] == left ? std::optional(left) : std::nullopt;
  }
};

// The meshes that fit.
class Meshes {
 public:
  Meshes(const Config& c, const MeshLimits& limits) : config_(c), limits_(limits) {}

  // Whether the flags describe a mesh of so many ranks, and the model allows it.
  bool fits(const Flags& f, std::int64_t ranks) {
    const std::optional<std::int64_t> shards = f.shards(ranks);
    return shards && *shards * f[kTp] % f[kEp] == 0 && (f[kEp] == 1 || f[kEp] <= limits_.experts) &&
           f[kPp] <= limits_.layers && (!f.stages || stages_refusal(f[kPp]).empty()) && tensor_refusal(f[kTp]).empty();
  }
  // Why --stages does not describe so many stages of the model; empty if it does.
  std::string stages_refusal(std::int64_t pp) const {
    const std::vector<int>& stages = config_.stages;
    const std::int64_t sum = std::accumulate(stages.begin(), stages.end(), std::int64_t{0});
    if (std::ssize(stages) != pp)
      return "these are " + counted(std::ssize(stages), "stage") + ", and " + cli::flag_name("pp") + " is " +
             std::to_string(pp);
    if (sum == limits_.layers) return "";
    return "these are " + counted(sum, "layer") + ", and " + limits_.model + " has " + std::to_string(limits_.layers);
  }
  const std::string& tensor_refusal(std::int64_t tp) {
    const auto [at, anew] = tensor_.try_emplace(tp);
    if (anew && tp > 1) at->second = limits_.tensor(tp);
    return at->second;
  }

  // "; --tp 2 or 4 fits": the nearest values of a flag; empty if there are none.
  std::string nearest_values(Flags f, std::int64_t ranks, Axis axis) {
    const std::int64_t value = f[axis];
    const auto found = [&](std::int64_t v) { return f[axis] = v, fits(f, ranks); };
    std::int64_t below = std::min(value - 1, ranks), above = std::min(value, ranks) + 1;
    while (below > 0 && !found(below)) --below;
    while (above <= ranks && !found(above)) ++above;
    const std::string values =
        either(below > 0 ? std::to_string(below) : "", above <= ranks ? std::to_string(above) : "");
    return values.empty() ? "" : "; " + cli::flag_name(kNames[axis]) + " " + values + " fits";
  }

  // "; 2 or 4 ranks fit": the nearest numbers of ranks with the same flags; empty if there are none.
  std::string nearest_ranks(const Flags& f, std::int64_t ranks, const std::string& tool) {
    const std::int64_t unit = bounded_product(f.others(), std::max<std::int64_t>(1, f[kShard]));
    if (unit == std::numeric_limits<int>::max()) return "";
    const bool exact = f[kShard] > 0;
    const std::int64_t last = exact ? 1 : ranks / unit + f[kEp];  // ep divides one of so many
    std::int64_t below = exact ? 0 : (ranks - 1) / unit, above = exact ? 1 : ranks / unit + 1;
    while (below > 0 && !fits(f, below * unit)) --below;
    while (above <= last && !fits(f, above * unit)) ++above;
    if (above > last) above = 0;
    if (ranks == 1)
      return above == 0 ? "" : "; start several ranks, as with mpirun -n " + std::to_string(above * unit) + " " + tool;
    const std::string counts =
        either(below > 0 ? std::to_string(below * unit) : "", above > 0 ? std::to_string(above * unit) : "");
    if (counts.empty()) return "";
    return "; " + counts + (counts == "1" ? " rank fits" : " ranks fit");
  }

  // "; --tp 2 --pp 3 fits": the mesh of these ranks with the fewest other flags, and of those the nearest.
  std::string nearest_mesh(const Flags& f, std::int64_t ranks) {
    std::vector<std::int64_t> divisors;  // every dimension divides the ranks
    for (std::int64_t d = 1; d <= ranks; ++d)
      if (ranks % d == 0) divisors.push_back(d);
    std::optional<std::pair<int, double>> least;
    Flags nearest, other;
    const auto visit = [&] {
      std::pair<int, double> distance{other.stages == f.stages ? 0 : 1, 0};
      for (std::size_t i = 0; i < kAxes; ++i) {
        if (other.size[i] == f.size[i]) continue;
        ++distance.first;
        distance.second += std::abs(std::log(static_cast<double>(other.size[i]) / static_cast<double>(f.size[i])));
      }
      if ((least && *least <= distance) || !fits(other, ranks)) return;
      least = distance;
      nearest = other;
    };
    for (const std::int64_t replicas : divisors)
      for (const std::int64_t tp : divisors)
        for (const std::int64_t pp : divisors) {
          other.size = {replicas, 0, tp, pp, 1};
          const std::optional<std::int64_t> shards = other.shards(ranks);
          if (!shards) continue;
          if (f[kShard] != 0) other[kShard] = *shards;
          for (const std::int64_t ep : divisors)
            for (const bool stages : {f.stages, false}) {
              other[kEp] = ep;
              other.stages = stages;
              visit();
            }
        }
    std::string text;
    const bool without = nearest.stages != f.stages;
    for (const Axis axis : {kReplicate, kShard, kTp, kPp, kEp})
      if (nearest[axis] != f[axis] || (without && axis == kPp)) text += " " + flag_text(axis, nearest[axis]);
    return ";" + text + (without ? " without " + cli::flag_name("stages") : "") + " fits";
  }

 private:
  const Config& config_;
  const MeshLimits& limits_;
  std::map<std::int64_t, std::string> tensor_;  // refusals by tp
};

// Throws Error for a mesh that does not fit.
class Check {
 public:
  Check(const Config& c, std::int64_t ranks, const MeshLimits& limits, const std::string& tool)
      : limits_(limits), ranks_(ranks), tool_(tool), meshes_(c, limits) {
    flags_.size = {c.dp_replicate, c.dp_shard, c.tp, c.pp, c.ep};
    flags_.stages = !c.stages.empty();
    if (flags_.stages) stages_text_ = cli::flag_name("stages") + " " + model::text_of_stages(c.stages) + ": ";
  }

  comm::MeshShape shape() {
    check_model();
    const std::optional<std::int64_t> shards = flags_.shards(ranks_);
    if (!shards)
      throw Error(product_text() + ": does not make " + counted(ranks_, "rank") + first_of({ranks_fit(), mesh_fits()}));
    const std::int64_t copy = *shards * flags_[kTp];
    if (copy % flags_[kEp] != 0)
      throw Error(flag_text(kEp, flags_[kEp]) + ": does not divide " + std::to_string(copy) +
                  ", the number of ranks that share a copy of the parameters" +
                  (ranks_ == 1 ? first_of({ranks_fit(), mesh_fits()}) : suggestion(kEp)));
    const auto size = [](std::int64_t n) { return static_cast<int>(n); };
    return {size(flags_[kReplicate]), size(*shards),     size(flags_[kPp]),
            size(flags_[kEp]),        size(flags_[kTp]), limits_.experts > 0};
  }

 private:
  void check_model() {
    const std::string& model = limits_.model;
    const std::int64_t pp = flags_[kPp], tp = flags_[kTp], ep = flags_[kEp];
    if (ep > 1 && ep > limits_.experts)
      throw Error(flag_text(kEp, ep) + ": " + model + " has " + counted(limits_.experts, "expert") +
                  ", and each part needs one" + suggestion(kEp));
    if (pp > limits_.layers)
      throw Error(flag_text(kPp, pp) + ": " + model + " has " + counted(limits_.layers, "layer") +
                  ", and each stage needs one" + suggestion(kPp));
    if (flags_.stages)
      if (const std::string why = meshes_.stages_refusal(pp); !why.empty())
        throw Error(stages_text_ + why + suggestion(kPp));
    if (const std::string& why = meshes_.tensor_refusal(tp); !why.empty())
      throw Error(flag_text(kTp, tp) + ": " + why + suggestion(kTp));
  }

  // The flags whose product is the number of ranks: "--dp-replicate 2 times --tp 2".
  std::string product_text() const {
    std::string product;
    for (const Axis axis : {kReplicate, kShard, kTp, kPp}) {
      const bool usual = flags_[axis] == (axis == kShard ? 0 : 1);
      if (usual && !(axis == kReplicate && flags_[kTp] == 1 && flags_[kPp] == 1)) continue;
      product += (product.empty() ? "" : " times ") + flag_text(axis, flags_[axis]);
    }
    return product;
  }

  std::string ranks_fit() { return meshes_.nearest_ranks(flags_, ranks_, tool_); }
  std::string mesh_fits() { return meshes_.nearest_mesh(flags_, ranks_); }
  static std::string first_of(const std::pair<std::string, std::string>& texts) {
    return texts.first.empty() ? texts.second : texts.first;
  }
  // What fits in place of a flag that does not.
  std::string suggestion(Axis axis) { return first_of({meshes_.nearest_values(flags_, ranks_, axis), mesh_fits()}); }

  const MeshLimits& limits_;
  std::int64_t ranks_;
  const std::string& tool_;
  Meshes meshes_;
  Flags flags_;
  std::string stages_text_;  // "--stages 3,1: "
};

// A parameter of a rank's table of which blocks with one scale are on several ranks, and the size of the blocks.
template <class Wanted>
std::optional<std::pair<std::string, std::int64_t>> straddling(const std::vector<model::Parameter>& table,
                                                               const quant::Recipe& usual, const Wanted& wanted) {
  for (const model::Parameter& p : table) {
    if (p.bounds.empty() || !wanted(p)) continue;
    const std::int64_t block = model::straddling_block(p, p.recipe != nullptr ? *p.recipe : usual);
    if (block != 0) return std::pair(p.name, block);
  }
  return std::nullopt;
}

}  // namespace

std::string TensorDivision::refusal(std::int64_t tp) const {
  if (tp == 1) return "";
  if (rows < tp) return "the smallest pass has " + counted(rows, "token") + ", and each rank needs one";
  const quant::Recipe* const recipe = precision.recipe_or_null();
  std::vector<model::Parameter> local;
  try {
    local = model::local_table(model, table, {0, static_cast<int>(tp), recipe});
  } catch (const Error& e) {
    return e.what();
  }
  if (recipe == nullptr) return "";
  if (const auto codes = straddling(local, *recipe, [](const auto& p) { return dtype::is_coded(p.stored); }))
    return codes->first + " is stored as codes, of which blocks of " + std::to_string(codes->second) +
           " elements would be on several ranks";
  const auto fp4 = [&](const model::Parameter& p) {
    return p.fp8 && (p.recipe != nullptr ? *p.recipe : *recipe).fp4();
  };
  if (const auto blocks = straddling(local, *recipe, fp4))
    return "blocks of " + std::to_string(blocks->second) + " elements of " + blocks->first +
           " would be on several ranks, which " + cli::flag_name("recipe") + " nvfp4 does not support";
  if (!statistics) return "";
  if (const auto blocks = straddling(local, *recipe, [](const auto& p) { return p.fp8; }))
    return "blocks of " + std::to_string(blocks->second) + " elements of " + blocks->first +
           " are on several ranks, so that there are no statistics of them";
  return "";
}

TensorDivision division_of(const RunConfig& c, const hf::ModelConfig& model,
                           const std::vector<model::Parameter>& table) {
  // The last batch of an evaluation may have one sequence.
  const std::int64_t rows = c.eval_data.empty() ? c.batch_size * c.seq_length : c.seq_length;
  return {c.precision, c.sample_every > 0 ? std::min(rows, kFewestSampled) : rows, model, table, c.stats_every > 0};
}

MeshLimits mesh_limits(const std::string& path, const hf::ModelConfig& model,
                       std::function<std::string(std::int64_t tp)> tensor) {
  return {path, model.num_hidden_layers, model.sparse_layers() > 0 ? model.experts->count : 0, std::move(tensor)};
}

comm::MeshShape fitting_mesh(const Config& config, std::int64_t ranks, const MeshLimits& limits,
                             const std::string& tool) {
  return Check(config, ranks, limits, tool).shape();
}

comm::MeshShape mesh_of_run(const RunConfig& config, const std::string& path, const shard::ModelSpec& spec,
                            std::int64_t ranks, const std::string& tool) {
  const TensorDivision division = division_of(config, spec.config, spec.table);
  const auto limits = mesh_limits(path, spec.config, [&](std::int64_t tp) { return division.refusal(tp); });
  return fitting_mesh(config, ranks, limits, tool);
}

}  // namespace fp8::settings
