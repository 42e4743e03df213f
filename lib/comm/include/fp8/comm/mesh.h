/// The mesh of a job: its ranks along dimensions, and the groups of ranks that share samples, shards and replicas of
/// the parameters. Data-parallel index, writer and file number are three numbers with three names, although today all
/// follow from the rank in the job.
#pragma once

#include <functional>
#include <memory>

#include "fp8/comm/comm.h"
#include "fp8/comm/device.h"
#include "fp8/comm/traffic.h"

namespace fp8::comm {

/// Number of ranks along each dimension. Rank ((stage x dp_replicate + replicate) x dp_shard + shard) x tp + t has
/// these coordinates. ep divides dp_shard x tp: a group of experts is ep consecutive values of shard x tp + t. Another
/// dimension, cp, is reserved.
struct MeshShape {
  int dp_replicate = 1;  ///< copies of the sharded parameters, each for a part of the samples
  int dp_shard = 1;      ///< ranks that share a copy, each for a part of the samples
  int pp = 1;            ///< stages of layers
  int ep = 1;            ///< parts of the experts
  int tp = 1;            ///< parts of each linear
  bool experts = true;   ///< whether the model may have experts, whose gradients are summed among their shards

  /// Number of ranks.
  int ranks() const { return pp * dp_replicate * dp_shard * tp; }
  /// Number of parts of the samples.
  int data_parts() const { return dp_replicate * dp_shard; }
  /// Equal along every dimension.
  bool operator==(const MeshShape&) const = default;
};

/// Dimensions of a mesh; a set of them is a sum. dp_shard and tp together are also ep and the shards of experts: a set
/// has dimensions of one of these pairs only.
enum Dimension : std::uint8_t { kDpReplicate = 1, kDpShard = 2, kPp = 4, kTp = 8, kEp = 16, kExpertShard = 32 };

/// The lowest rank that differs from `rank` only along `dimensions`, a set of Dimension: equal for the ranks of a group
/// along them, different for different groups.
int first_of_group(const MeshShape& shape, int rank, unsigned dimensions);

/// The groups of a rank. A copy refers to the same groups.
class Mesh {
 public:
  /// All ranks of `all`, which outlives the mesh, along dp_shard.
  explicit Mesh(Communicator& all);
  /// Splits `all`, which outlives the mesh. Collective. Throws Error unless the mesh has as many ranks as `all`, and ep
  /// divides dp_shard x tp.
  Mesh(Communicator& all, const MeshShape& shape);
  /// The mesh as rank `rank` would have it, of ranks that do not exist, for dry runs: its groups have sizes and ranks
  /// and no processes. Machines have `each` consecutive ranks, the last one those that are left. Reductions of numbers
  /// of the host leave them as they are, texts of all ranks are copies of this rank's, and collectives of memory throw
  /// Error. Throws Error if ep does not divide dp_shard x tp.
  static Mesh imagined(const MeshShape& shape, int rank, int each);

  /// Number of ranks along each dimension.
  const MeshShape& shape() const { return shape_; }
  /// Number of NCCL's communicators that this rank has of the mesh on GPUs: one for each group of several ranks, and
  /// one more for each that reduce-scatters.
  int device_communicators() const;
  /// All ranks.
  Communicator& all() const { return *all_; }
  /// The ranks among which a copy of the parameters is sharded (dp_shard).
  Communicator& shards() const { return *shards_; }
  /// The ranks that hold the same shard (dp_replicate).
  Communicator& replicas() const { return *replicas_; }
  /// The ranks that divide the linears of a shard (tp).
  Communicator& tensor() const { return *tensor_; }
  /// The ranks that hold one copy of the parameters of a stage: dp_shard x tp, in this order.
  Communicator& copy() const { return *copy_; }
  /// The ranks that hold one copy of the model: the ranks of copy(), stage after stage.
  Communicator& model() const { return *model_; }
  /// The ranks between which activations of a micro-batch go from stage to stage (pp), in the order of the stages.
  Communicator& stages() const { return *stages_; }
  /// All ranks of this rank's stage. Its groups of a device are on the host, too: it is for numbers of the host.
  Communicator& of_stage() const { return *of_stage_; }
  /// The ranks among which the experts of a copy are divided (ep), in the order of the experts.
  Communicator& experts() const { return *experts_; }
  /// The ranks among which the parameters of an expert are sharded: dp_shard x tp / ep.
  Communicator& expert_shards() const { return *expert_shards_; }
  /// What this rank has sent, as those count it who send. Copies of a mesh have one count.
  Traffic& traffic() const { return *traffic_; }
  /// Number of this rank's part of the samples, from 0, and how many parts there are.
  int data_index() const { return all_->rank() / shape_.tp % data_parts(); }
  /// Whether this rank counts what the ranks of tensor() and stages() have in common, samples and losses: the first of
  /// tensor() in the last stage, which computes the losses.
  bool counts_samples() const { return all_->rank() % shape_.tp == 0 && last_stage(); }
  /// Whether this rank's stage is the last.
  bool last_stage() const { return stages_->rank() + 1 == stages_->size(); }
  /// See data_index().
  int data_parts() const { return shape_.data_parts(); }
  /// Number of this rank's file in a checkpoint, from 0, and how many files there are.
  int file_number() const { return all_->rank(); }
  /// See file_number().
  int file_count() const { return all_->size(); }

 private:
  friend Mesh on_device(const Mesh& host, const device::Context& ctx);
  using Groups = std::function<std::shared_ptr<Communicator>(unsigned dimensions, const char* name)>;
  // `split` makes the group of this rank along some dimensions, of more ranks than one and fewer than all.
  Mesh(std::shared_ptr<Communicator> all, const MeshShape& shape, const Groups& split);
  bool scatters(const Communicator& group) const;
  MeshShape shape_;
  std::shared_ptr<Communicator> all_, shards_, replicas_, tensor_, copy_, model_, stages_, of_stage_, experts_,
      expert_shards_;
  std::shared_ptr<Traffic> traffic_ = std::make_shared<Traffic>();
};

/// The mesh on the device of a context, see on_device() of a communicator. `host` and its groups outlive it. Throws
/// AgreedError on GPUs if there are copies and shards, or experts on several ranks, and NCCL does not order the kernels
/// of several groups (before 2.26). Collective.
Mesh on_device(const Mesh& host, const device::Context& ctx);

}  // namespace fp8::comm
