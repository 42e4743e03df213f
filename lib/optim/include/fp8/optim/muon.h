/// Muon as in torch.optim.Muon: momentum over one block of a matrix, orthogonalization of a whole matrix by five
/// Newton-Schulz iterations, and the step of one block. A block is a rank's shard; no communication here.
/// Source: K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024; scale rms: J. Liu et al.,
/// "Muon is Scalable for LLM Training", arXiv:2502.16982.
#pragma once

#include <cstdint>

#include "fp8/gemm/gemm.h"
#include "fp8/optim/adamw.h"

namespace fp8::optim {

/// One block of the momentum of a matrix. Views contiguous, same number of elements.
struct MomentumBlock {
  View gradient;                   ///< f32, read only
  View momentum;                   ///< f32 or bf16 (then rounded stochastically), updated
  View direction;                  ///< written: the matrix to orthogonalize, f32 or bf16 (to nearest)
  std::uint32_t tensor = 0;        ///< as in AdamwBlock
  std::int64_t first_element = 0;  ///< as in AdamwBlock
};

/// With the clipped gradient g: momentum = lerp(momentum, g, 0.05), direction = lerp(g, momentum, 0.95) (Nesterov).
/// Same bits for any number of threads and any split into blocks. When skipping, momentum is unchanged, and direction
/// 0. Throws Error on views of different sizes, unsupported types or different devices.
void momentum(const Context& ctx, const MomentumBlock& block, const Scalars& scalars);

/// FLOPs of orthogonalize() for a matrix [rows, columns]: 5 (4 m^2 n + 2 m^3), m the smaller and n the larger of the
/// two.
double orthogonalization_flops(std::int64_t rows, std::int64_t columns);

/// Replaces a whole contiguous matrix x, f32 or bf16, by an approximation of U V^T, where x = U S V^T: x divided by
/// max(its norm, 1e-7), then five times A = x x^T, B = -4.775 A + 2.0315 A A, x = 3.4445 x + B x (for rows > columns
/// the same of the transposed matrix). Products are summed in f32, and each result is rounded to the type of x. Scratch
/// from the arena. Deterministic for a given number of threads. Throws Error as gemm::Engine::matmul().
void orthogonalize(const Context& ctx, gemm::Engine& engine, const View& x);

/// One block of a matrix to update. Views contiguous, same number of elements.
struct MuonBlock {
  View master;                     ///< as in AdamwBlock
  View direction;                  ///< rows of an orthogonalized matrix, f32 or bf16, read only
  View compute_weight;             ///< as in AdamwBlock
  View amax;                       ///< as in AdamwBlock
  std::int64_t rows = 0;           ///< rows of the whole matrix
  std::int64_t columns = 0;        ///< its columns
  bool decay = false;              ///< whether weight decay applies
  std::uint32_t tensor = 0;        ///< as in AdamwBlock
  std::int64_t first_element = 0;  ///< as in AdamwBlock
};

/// master = (1 - lr decay) master - lr s direction, with the factor s of Settings::muon_scale; then compute weight and
/// amax. Same bits for any number of threads and any split into blocks. When skipping, as adamw(). Throws Error on
/// views of different sizes, unsupported types or different devices.
void muon(const Context& ctx, const MuonBlock& block, const Settings& settings, const Scalars& scalars);

/// Adds to *total, f64 on the context's device, the sum of the squares of after - before. `before` f32, overwritten;
/// `after` f32 or bf16; contiguous, of one size. The sum has one order for each size. Scratch from the arena for bf16.
void add_squared_change(const Context& ctx, const View& before, const View& after, double* total);

}  // namespace fp8::optim
