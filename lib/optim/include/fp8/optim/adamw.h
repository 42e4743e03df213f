/// AdamW as in torch.optim.AdamW, over one block of one tensor, in one pass over memory: decay, moments, update,
/// compute weight and amax; and the squared norm of a gradient. A block is a rank's shard; no communication here.
/// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
#pragma once

#include <cstdint>
#include <span>

#include "fp8/tensor/tensor.h"

namespace fp8::optim {

using device::Context;
using tensor::View;

/// The optimizer of hidden matrices; all other parameters have AdamW.
enum class Algorithm : std::uint8_t { adamw, muon };

/// Factor of Muon's updates of a matrix.
enum class MuonScale : std::uint8_t {
  rms,       ///< 0.2 sqrt(max(rows, columns)): updates as large as those of AdamW, whose learning rates fit
  original,  ///< sqrt(max(1, rows / columns))
};

/// Constants of a run.
struct Settings {
  float beta1 = 0.9f;                      ///< decay of the first moment
  float beta2 = 0.95f;                     ///< decay of the second moment
  float eps = 1e-8f;                       ///< added to the root of the second moment
  float weight_decay = 0.1f;               ///< weight decay, per unit of learning rate
  bool decay_all = false;                  ///< norms and biases decay too, not only tensors with two or more dimensions
  Algorithm algorithm = Algorithm::adamw;  ///< optimizer of hidden matrices
  MuonScale muon_scale = MuonScale::rms;   ///< with Algorithm::muon
};

/// Result of the gradient's norm: clipping factor and skip flag. In memory of the tensors' device, so that a GPU does
/// not wait for the host.
struct Gate {
  float gradient_scale = 1;  ///< clipping: min(1, clip / (norm + 1e-6))
  std::int32_t skip = 0;     ///< 1: change nothing
};

/// Values that change from step to step.
struct Scalars {
  float lr = 0;                ///< learning rate of this update
  float correction1 = 1;       ///< 1 - beta1^t, t from 1
  float correction2_sqrt = 1;  ///< sqrt(1 - beta2^t)
  std::int64_t update = 0;     ///< t, for stochastic rounding
  std::uint64_t seed = 0;      ///< seed of the run, for stochastic rounding
  const Gate* gate = nullptr;  ///< gate of this update, on the device of the tensors
};

/// Scalars of update t (from 1). Throws Error when t < 1.
Scalars scalars_of(const Settings& settings, std::int64_t t, double lr, std::uint64_t seed, const Gate* gate);

/// One block of one tensor. All views contiguous, same number of elements.
struct AdamwBlock {
  View master;    ///< f32 or bf16 (then rounded stochastically), updated
  View gradient;  ///< f32, read only
  View m, v;      ///< moments, f32 or bf16 (then rounded stochastically), updated
  /// Compute weight written from the new master: f32 or bf16 (to nearest); empty: none. The view may be the master
  /// itself.
  View compute_weight;
  /// f32 [1]: becomes max(itself, max |new master|), NaN if any is NaN; empty: none. The caller zeroes it before the
  /// first block of a step.
  View amax;
  bool decay = false;              ///< whether weight decay applies
  std::uint32_t tensor = 0;        ///< number of the tensor, for stochastic rounding
  std::int64_t first_element = 0;  ///< global index of the block's first element, for stochastic rounding
};

/// Updates one block. Same bits for any number of threads and any split into blocks. When skipping, gradient and
/// moments are not read, master and moments are unchanged, and compute weight and amax are computed from the unchanged
/// master. Throws Error on views of different sizes, unsupported types or different devices.
void adamw(const Context& ctx, const AdamwBlock& block, const Settings& settings, const Scalars& scalars);

/// total += sum of squares of a contiguous f32 view, in f64; `total` is on x's device. Same bits for any number of
/// threads. Scratch from the arena on a GPU.
void add_squares(const Context& ctx, const View& x, double* total);

/// total += sum of a contiguous f32 view, in f64 as add_squares(); sequential on the host.
void add_sum(const Context& ctx, const View& x, double* total);

/// total += the doubles of `values` (on the context's device) one after the other.
void add_in_order(const Context& ctx, std::span<const double> values, double* total);

/// Sets the gate from a loss and a sum of squares of the gradient, all on the context's device: clips to a norm of
/// `clip` (<= 0: no clipping), and skips unless both are finite. Same bits on every device.
void set_gate(const Context& ctx, const double* loss, const double* square_sum, double clip, Gate* gate);

}  // namespace fp8::optim
