/// Collects figures of the FP8 GEMMs of a model while it computes: figures of every operand that is cast, and the error
/// of every product. Calls are those of one or more micro-batches on each rank; results() combines them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8/comm/mesh.h"
#include "fp8/linear/observer.h"
#include "fp8/statistics/figures.h"

namespace fp8::statistics {

/// An operand of the GEMMs of a linear.
enum class Operand : std::uint8_t { input, weight, grad_output };

/// Least, median and greatest of a figure among groups of elements.
struct Spread {
  double least = 0, median = 0, greatest = 0;
};

/// Spread of figures over the groups of an operand, see GroupFigures. Groups of zeros alone are left out.
struct GroupSpread {
  std::int64_t groups = 0;  ///< groups that have a nonzero element
  std::int64_t worst = 0;   ///< number of the one with the lowest SQNR, in row-major order of all
  Spread amax, underflow_share, saturated_share, sqnr_db;
};

/// Figures of one operand of one GEMM of a linear.
struct OperandResult {
  int linear = 0;                          ///< number
  gemm::GemmRole gemm{};                   ///< forward, dgrad or wgrad
  Operand operand{};                       ///< operand of the GEMM
  dtype::DType format{};                   ///< e4m3 or e5m2
  quant::Granularity granularity{};        ///< granularity of the scales
  Figures figures{};                       ///< figures of all ranks
  std::optional<GroupSpread> groups = {};  ///< spread of the groups, if requested
};

/// Error of the product of one GEMM of a linear.
struct ProductResult {
  int linear = 0;             ///< number
  gemm::GemmRole gemm{};      ///< forward, dgrad or wgrad
  double relative_error = 0;  ///< |product - reference| / |reference|, Frobenius norms
};

/// The collected figures, by linear and GEMM.
struct Results {
  std::vector<OperandResult> operands;
  std::vector<ProductResult> products;
};

/// Options of a Collector.
struct CollectorOptions {
  std::vector<char> linears;       ///< whether each linear, by number, is observed
  std::vector<char> experts = {};  ///< whether each linear, by number, is an expert's; empty: none
  bool groups = false;             ///< whether GroupSpread is computed
};

/// The collector of one rank. It is active from its construction on, so that a dry run plans its memory.
class Collector final : public linear::Observer {
 public:
  /// The ranks of `mesh`, which move host memory, outlive this.
  Collector(const comm::Mesh& mesh, CollectorOptions options);
  /// The same of ranks that each have other samples.
  Collector(comm::Communicator& host_comm, CollectorOptions options)
      : Collector(comm::Mesh(host_comm), std::move(options)) {}

  /// Discards what was collected, and becomes active.
  void begin();
  /// Ends the activity and returns the figures, the same on every rank: counts and sums of all ranks; amaxes and scales
  /// are the largest and smallest. A weight is whole on every rank and counts once, and so do scales that all ranks
  /// share. Of what ranks of tensor parallelism divide, each element counts once, and so does what they all have; the
  /// product of terms that they sum is the sum. An expert is observed by the ranks that have rows of it, and if there
  /// are none it has no figures; its wgrad is the product of each rank's rows. A linear is observed by the ranks of its
  /// stage. Collective.
  Results end();
  /// Ends the activity.
  void pause() { active_ = false; }

  bool active() const override { return active_; }
  void observe(const linear::Call& call, const linear::ObservedGemm& gemm) override;

 private:
  // A cast of an operand. GEMMs whose casts of it are equal share one.
  struct Key {
    int linear;
    Operand operand;
    dtype::DType format;
    quant::Granularity granularity;
    quant::ContractionAxis contract;  // last where the cast does not depend on it
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    gemm::GemmRole owner;   // the GEMM of which the casts are counted
    bool complete = false;  // a weight, counted once
    Figures figures{};
    GroupGrid groups{};
    std::optional<PartJoin> divided{};  // the part of the operand that this rank of tensor parallelism measures
    bool shared_scales = false;         // all ranks have the same scales, which count once
    bool shared_groups = false;         // ranks have rows of the same groups, not groups of their own
    bool leads = true;                  // of the ranks that have this entry, the first is this one
  };
  struct Use {
    int linear;
    gemm::GemmRole gemm;
    Operand operand;
    auto operator<=>(const Use&) const = default;
  };
  // What tensor parallelism leaves to this rank.
  struct Share {
    bool measures = true;                  // whether this rank measures its part of an operand, which no other rank has
    bool repeats = false;                  // whether the scales of that part are those of another rank's
    std::optional<PartJoin> divided = {};  // that part, relative to the rank before; nothing: all ranks have all of it
  };
  struct Squares {
    double error = 0, reference = 0;
  };

  void add_operand(const linear::Call& call, const Use& use, const linear::Part& part, const quant::Quantized& q,
                   const View& source, bool repeats);
  bool shares_scales(const linear::Call& call, const quant::Quantized& q) const;
  static View cast_source(const linear::Call& call, const Use& use, const quant::Quantized& q, const View& source);
  ScaleGrid scales(const linear::Call& call, const quant::Quantized& q, const View& source, Operand operand) const;
  View product_of(const linear::Call& call, const linear::ObservedGemm& gemm, std::int64_t rows, std::int64_t cols);
  void add_product(const linear::Call& call, const linear::ObservedGemm& gemm);
  bool is_expert(int linear) const;
  Share share_of(const linear::Call& call, const linear::Part& part, Operand operand, const quant::Quantized& q) const;
  bool first_copy(const linear::Call& call, const linear::Part& part) const;
  void sum_over_data(std::span<float> values, comm::Reduce operation) const;
  bool observes(int linear, bool dry) const;
  void unite();
  void reduce();
  static std::string text_of(const Entry& entry);
  static void add_groups(GroupGrid& all, const std::string& text, PartJoin over_data);
  void reduce_groups();

  comm::Mesh mesh_;
  comm::Communicator& host_comm_;  // all ranks
  CollectorOptions options_;
  gemm::Engine engine_;
  bool active_ = true;
  std::map<Key, Entry> entries_;
  std::map<Use, Key> uses_;
  std::map<std::pair<int, gemm::GemmRole>, Squares> products_;
  std::optional<Figures> last_input_;
};

}  // namespace fp8::statistics
