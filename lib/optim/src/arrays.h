/// A block of AdamW with static types, for the host loop and the kernel. Private to this crate.
#pragma once

namespace fp8::optim {

/// Type of an absent compute weight.
struct NoComputeWeight {};

/// P master, M moments, C copy (null if there is none).
template <class P, class M, class C>
struct Arrays {
  P* master;              ///< updated
  const float* gradient;  ///< read
  M* m;                   ///< first moment, updated
  M* v;                   ///< second moment, updated
  C* compute_weight;      ///< written
};

}  // namespace fp8::optim
