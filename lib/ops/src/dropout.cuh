// Dropout on a device; elements have the same bits as on the host.
#pragma once

#include "dropout_run.h"
#include "rows.cuh"

namespace fp8::ops {

template <class T>
struct DropoutRows {
  StridedRows<T> x, out;
  Dropout drop;
  std::int64_t columns;
  struct Row {
    const T* x;
    T* out;
    Dropout drop;
    std::uint64_t first;
    template <int W>
    __device__ void at(std::int64_t c) const {
      const Group<T, W> in = load<W>(x + c);
      Group<T, W> result;
      dropout_run(in.at, result.at, W, first + static_cast<std::uint64_t>(c), drop);
      store<W>(out + c, result);
    }
  };
  __device__ Row row(std::int64_t i) const { return {x[i], out[i], drop, dropout_index(drop, i, columns)}; }
};

// Views checked by dropout().
template <class Launcher>
void dropout_cuda(const Launcher& launch, const View& x, const Dropout& drop, const View& out) {
  with_float_type(x.dtype, "dropout", [&]<class T>() {
    const DropoutRows<T> op{StridedRows<T>(x), StridedRows<T>(out), drop, x.shape[1]};
    for_each(launch, "dropout", op, x.shape[0], x.shape[1], packs(x) && packs(out));
  });
}

}  // namespace fp8::ops
