/// AdamW as torch.optim.AdamW computes it, over one block of one tensor, in one pass over memory: decay, moments,
/// update, the compute copy and the new amax. Also the squared norm of a gradient. Blocks are what a rank owns; nothing
/// here communicates. Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
#pragma once

#include <cstdint>

#include "fp8/tensor/tensor.h"

namespace fp8::optim {

using device::Context;
using tensor::View;

/// What stays the same over a run.
struct Settings {
  float beta1 = 0.9f;         ///< decay of the first moment
  float beta2 = 0.95f;        ///< decay of the second moment
  float eps = 1e-8f;          ///< added to the root of the second moment
  float weight_decay = 0.1f;  ///< for tensors of two or more dimensions
};

/// What an update learns from the whole gradient. Lies where the tensors lie, so that a device does not wait for the
/// host.
struct Gate {
  float gradient_scale = 1;  ///< clipping: min(1, clip / (norm + 1e-6))
  std::int32_t skip = 0;     ///< 1: change nothing
};

/// What changes from step to step.
struct Scalars {
  float lr = 0;                ///< learning rate of this update
  float correction1 = 1;       ///< 1 - beta1^t, t from 1
  float correction2_sqrt = 1;  ///< sqrt(1 - beta2^t)
  std::int64_t update = 0;     ///< t, for stochastic rounding
  std::uint64_t seed = 0;      ///< of the run, for stochastic rounding
  const Gate* gate = nullptr;  ///< of this update, at the place of the tensors
};

/// Scalars of update t (from 1). Throws Error when t < 1.
Scalars scalars_of(const Settings& settings, std::int64_t t, double lr, std::uint64_t seed, const Gate* gate);

/// One block of one tensor. All views contiguous, same number of elements.
struct Block {
  View master;    ///< f32 or bf16 (then rounded stochastically), updated
  View gradient;  ///< f32, read only
  View m, v;      ///< moments, f32 or bf16 (then rounded stochastically), updated
  /// Compute copy written from the new master: f32 or bf16 (to nearest); empty: none. May be the master itself.
  View copy;
  /// f32 [1]: becomes the max of itself and |new master|, NaN wins; empty: none. The caller zeroes it before the step's
  /// first block.
  View amax;
  bool decay = false;              ///< whether weight decay applies
  std::uint32_t tensor = 0;        ///< number of the tensor, for stochastic rounding
  std::int64_t first_element = 0;  ///< global index of the block's first element, for stochastic rounding
};

/// Updates one block. Same bits for any number of threads and any split into blocks. When skipping, gradient and
/// moments are not read, master and moments keep their bits, and copy and amax are taken from the master as it is.
/// Throws Error on views that do not fit each other.
void adamw(const Context& ctx, const Block& block, const Settings& settings, const Scalars& scalars);

/// total += sum of squares of a contiguous f32 view, in f64; `total` lies at the place of x. Same bits for any number
/// of threads. Scratch from the arena on a device.
void add_squares(const Context& ctx, const View& x, double* total);

/// total += sum of a contiguous f32 view, likewise; on the host one after the other.
void add_sum(const Context& ctx, const View& x, double* total);

/// The gate for a loss and a sum of squares of the gradient, all at the context's place: clips to a norm of `clip` (<=
/// 0: does not), and skips unless both are finite. Same bits at every place.
void set_gate(const Context& ctx, const double* loss, const double* square_sum, double clip, Gate* gate);

}  // namespace fp8::optim
