/// A block of AdamW with static types, for the host loop and the kernel. Private to this crate.
#pragma once

namespace fp8::optim {

/// Type of an absent copy.
struct NoCopy {};

/// P master, M moments, C copy (null if there is none).
template <class P, class M, class C>
struct Arrays {
  P* master;              ///< updated
  const float* gradient;  ///< read
  M* m;                   ///< first moment, updated
  M* v;                   ///< second moment, updated
  C* copy;                ///< written
};

}  // namespace fp8::optim
