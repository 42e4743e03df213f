/// A block of AdamW with its types known, for the host's loop and for the kernel. Private to this crate.
#pragma once

namespace fp8::optim {

/// Stands for the type of a copy that nobody wants.
struct NoCopy {};

/// P master, M moments, C copy (null where there is none).
template <class P, class M, class C>
struct Arrays {
  P* master;              ///< updated
  const float* gradient;  ///< read
  M* m;                   ///< first moment, updated
  M* v;                   ///< second moment, updated
  C* copy;                ///< written
};

}  // namespace fp8::optim
