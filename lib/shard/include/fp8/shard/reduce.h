/// The gradients of one rank: the buffers into which the decoder writes whole gradients of a unit, and their sums over
/// micro-batches, over the ranks that share the parameters, over replicas, over the ranks of tensor parallelism that
/// have the same block, and over the two stages that have a tied embedding. The sums of one unit run while the next one
/// computes. With one rank in a group the buffer of the group is the rank's own memory, and nothing travels.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "fp8/base/digest.h"
#include "fp8/comm/mesh.h"
#include "fp8/model/weights.h"
#include "fp8/shard/own_rows.h"

namespace fp8::shard {

/// Digests of gradients in the order of computation, to compare two computations of a step.
struct GradientTrace {
  /// The gradient of one parameter.
  struct Entry {
    int parameter = 0;  ///< number in the parameter table
    Digest digest;      ///< digest of the gradient's values
    /// The same parameter and the same bits.
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> given;   ///< whole gradients of this rank's batches, before the sum over ranks
  std::vector<Entry> summed;  ///< own rows, after the sum
};

/// Sums of the gradients of parameters that several ranks of tensor parallelism, or the first and the last stage, have.
class CopySums {
 public:
  /// Allocates what travels from the context's arena. The arguments outlive the sums. Not collective.
  CopySums(const Context& ctx, const comm::Mesh& mesh, const Layout& layout, const OwnRows& own);
  /// Adds the own gradients of all copies, so that each copy has the sum, with the same bits. Collective.
  void add(const Context& ctx) const;

 private:
  /// Gradients that the same ranks of tensor parallelism have, in memory together.
  struct Copies {
    int ranks = 1;             // adjacent ranks that have the same parameters
    std::vector<int> numbers;  // of the parameters with own rows
    View sent, terms;          // f32 [1, n], [ranks, 1, n]
  };
  void add_copies(const Context& ctx, const Copies& copies) const;
  void add_tied(const Context& ctx) const;

  comm::Mesh mesh_;
  const Layout& layout_;
  const OwnRows& own_;
  std::vector<Copies> copies_;  // by number of ranks
  View tied_, tied_terms_;      // f32: own gradient of a tied embedding, and that of the other stage that has it
};

/// Buffers and sums of the gradients of one rank.
class GradientReducer {
 public:
  /// Allocates the buffers from the context's arena, if there is training. The arguments outlive the reducer. Not
  /// collective.
  GradientReducer(const Context& ctx, const comm::Mesh& mesh, const Layout& layout, const OwnRows& own);

  /// Begins micro-batch `index` of `count` of a step.
  void begin_micro_batch(int index, int count);
  /// See model::ParameterAccess::gradient_buffers(). Collective.
  model::UnitGradients gradient_buffers(int unit);
  /// See model::ParameterAccess::gradients_done(): starts the sums of a unit. Collective.
  void gradients_done(int unit);
  /// Finishes all sums; after the last micro-batch the own gradients are complete. Collective.
  void finish(const Context& ctx);
  /// Sets the own gradients to zero, for a step without targets, which computes none.
  void zero(const Context& ctx) const;
  /// Fills `trace` until finish(). Null: ends the tracing.
  void trace(GradientTrace* trace) { trace_ = trace; }

  /// Adds the squares of all gradients to `total`, which is on the context's device and 0 before; every rank gets the
  /// sum. Each parameter counts once: its squares are summed in f64, then added in the order of the table. Does not
  /// wait for the device. Collective.
  void add_squares(const Context& ctx, double* total) const;
  /// Calls `visit` on rank 0 for each parameter that is trained, in the order of the table, with its whole gradient
  /// (f32, on the context's device), which is valid during the call. `visit` must not throw, because the other ranks
  /// wait for the next parameter. With several ranks allocates memory for one gradient at a time. Collective.
  void visit(const Context& ctx, const std::function<void(const model::Parameter&, const View&)>& visit) const;

 private:
  /// The gradient of one parameter on its way from the buffer of whole gradients to the own rows.
  struct Reduced {
    comm::Communicator* group;  // the ranks that share the parameter
    View whole;                 // the terms of this rank
    View sum;                   // own rows of the sum over the ranks; the rows of a later micro-batch lie in `whole`
    View own;                   // the own rows: `sum`, or what it is added to
    View sent, terms;           // bf16, if gradients travel so: the whole, and own rows of each rank [ranks, elements]
  };
  /// Whole gradients of one unit, being computed or reduced.
  struct Buffer {
    std::array<View, model::kSlots> whole, sent, terms;  // see Reduced
    int unit = -1;                                       // being reduced
    bool last = false;                                   // whether the micro-batch is the last one of the step
    std::vector<Reduced> reduced;
    std::vector<Pending> pending;
  };
  // Whether buffers keep the sums over micro-batches, which are reduced once.
  bool keeps_whole() const { return layout_.options().zero == 1; }
  bool travels_in_bf16() const { return layout_.options().reduce != DType::f32; }
  bool last_micro_batch() const { return micro_ + 1 == micro_count_; }
  Buffer& buffer(int unit);
  View whole(int unit, std::size_t slot);
  void allocate_buffer(const Context& ctx, int unit, std::size_t slot);
  void allocate_replica_sums(const Context& ctx);
  void add_slot(Buffer& b, std::size_t slot);
  void start_reduce(Buffer& b);
  void finish(const Context& ctx, Buffer& b);
  void start_replica_sums(int unit);
  void finish_replica_sums(const Context& ctx);
  void sum_replicas_in_bf16(const Context& ctx, const View& gradient) const;
  void trace_given(int unit);

  Context ctx_;
  comm::Mesh mesh_;
  const Layout& layout_;
  const OwnRows& own_;
  std::vector<Buffer> buffers_;
  std::vector<Pending> replica_sums_;  // under way
  View replica_sent_, replica_terms_;  // bf16, if gradients travel so: of the largest slot
  View squares_;                       // f64 [parameters]: sums of squares of their gradients
  CopySums copies_;
  int micro_ = 0, micro_count_ = 1;
  GradientTrace* trace_ = nullptr;
};

}  // namespace fp8::shard
