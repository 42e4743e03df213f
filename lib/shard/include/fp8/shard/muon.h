/// The directions of Muon's updates on the ranks that share matrices. Each matrix is orthogonalized whole, under its
/// name on disk, by one of the ranks of a copy of the stage that have rows of it: the others send their rows of its
/// momentum there, and get their rows of the direction back. Every mesh so computes what one rank does. Matrices are
/// dealt to ranks by FLOPs, in rounds in which each rank has one, so that the memory is that of one matrix. Copies
/// (dp_replicate) compute the same. Not the arithmetic (optim/muon.h).
#pragma once

#include <functional>
#include <vector>

#include "fp8/comm/mesh.h"
#include "fp8/gemm/gemm.h"
#include "fp8/optim/adamw.h"
#include "fp8/shard/own_rows.h"

namespace fp8::shard {

/// Momentum and directions of one rank.
class MuonDirections {
 public:
  /// Deals the matrices, on each rank alike. The arguments outlive the directions. Not collective.
  MuonDirections(const comm::Mesh& mesh, const Layout& layout, const OwnRows& own);

  /// Called for each matrix of which this rank has rows, with the direction of these rows in
  /// StoreOptions::compute, which is valid during the call.
  using Step = std::function<void(const ParameterShard& own, const View& direction)>;

  /// Updates the momentum of the own rows from their gradients and computes the directions. Memory from the context's
  /// arena. If the gate skips, momentum is unchanged and directions are undefined. Collective over Mesh::copy().
  void compute(const Context& ctx, gemm::Engine& engine, const optim::Scalars& scalars, const Step& step) const;

  /// For each rank of Mesh::copy() the numbers of the matrices that it orthogonalizes, in order.
  const std::vector<std::vector<int>>& dealt() const { return dealt_; }

 private:
  /// Blocks of a matrix, one after the other in the order of ranks.
  struct Blocks {
    std::vector<Block> of;            // by rank
    std::vector<std::int64_t> bytes;  // of each
    std::int64_t size = 0;            // elements of all
  };
  enum class Copies : std::uint8_t { first, all };
  int matrix_of(int rank, std::size_t round) const;
  Block block(int number, int rank, Copies copies) const;
  Blocks blocks_of_matrix(int number, Copies copies) const;
  Blocks own_blocks(std::size_t round, Copies copies) const;
  View exchange(const Context& ctx, const View& sent, const Blocks& to, const Blocks& from) const;
  View gather(const Context& ctx, const optim::Scalars& scalars, std::size_t round) const;
  View scatter(const Context& ctx, const View& whole, std::size_t round) const;

  comm::Mesh mesh_;
  const Layout& layout_;
  const OwnRows& own_;
  std::vector<std::vector<int>> dealt_;
  std::size_t rounds_ = 0;
};

}  // namespace fp8::shard
