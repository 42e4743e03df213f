// Addition, conversion, zeros, SwiGLU and the bias gradient on a device. All are bound by memory; elements have the
// same bits as on the host.
#pragma once

#include <limits>

#include "column_sums.cuh"
#include "elements.h"

namespace fp8::ops {

template <class T>
struct AddRows {
  StridedRows<T> a, b, out;
  struct Row {
    const T *a, *b;
    T* out;
    template <int W>
    __device__ void at(std::int64_t c) const {
      const Group<T, W> left = load<W>(a + c), right = load<W>(b + c);
      Group<T, W> sum;
      FP8_UNROLL
      for (int j = 0; j < W; ++j) sum.at[j] = from_float<T>(to_float(left.at[j]) + to_float(right.at[j]));
      store<W>(out + c, sum);
    }
  };
  __device__ Row row(std::int64_t i) const { return {a[i], b[i], out[i]}; }
};

template <class T>
void add_rows(const View& a, const View& b, const View& out, const auto& go) {
  const AddRows<T> op{StridedRows<T>(a), StridedRows<T>(b), StridedRows<T>(out)};
  go(op, op.out.count(), op.out.columns(), packs(a) && packs(b) && packs(out));
}

// Views checked by add().
template <class Launcher>
void add_cuda(const Launcher& launch, const View& a, const View& b, const View& out) {
  const bool flat = a.contiguous() && b.contiguous() && out.contiguous();
  with_float_type(out.dtype, "add", [&]<class T>() {
    const auto go = [&](const auto& op, std::int64_t rows, std::int64_t columns, bool packed) {
      for_each(launch, "add", op, rows, columns, packed);
    };
    flat ? add_rows<T>(a.reshaped({a.size()}), b.reshaped({b.size()}), out.reshaped({out.size()}), go)
         : add_rows<T>(a, b, out, go);
  });
}

template <int W, class A, class B>
__device__ inline void convert(const A* from, B* to) {
  const Group<A, W> in = load<W>(from);
  Group<B, W> out;
  FP8_UNROLL
  for (int j = 0; j < W; ++j) out.at[j] = from_float<B>(to_float(in.at[j]));
  store<W>(to, out);
}

template <class A, class B>
struct CopyRows {
  StridedRows<A> in;
  StridedRows<B> out;
  std::int64_t in_step, out_step;  // elements between adjacent columns; both 1 unless W is 1
  struct Row {
    const A* in;
    B* out;
    std::int64_t in_step, out_step;
    template <int W>
    __device__ void at(std::int64_t c) const {
      convert<W>(in + c * in_step, out + c * out_step);
    }
  };
  __device__ Row row(std::int64_t i) const { return {in[i], out[i], in_step, out_step}; }
};

// Views checked by copy().
template <class Launcher>
void copy_cuda(const Launcher& launch, const View& from, const View& to) {
  const bool flat = from.contiguous() && to.contiguous();
  const View in = flat ? from.reshaped({from.size()}) : from, out = flat ? to.reshaped({to.size()}) : to;
  const auto last = static_cast<std::size_t>(out.rank - 1);
  const bool packed = packs(in) && packs(out) && unit_last_stride(in) && unit_last_stride(out);
  with_float_type(in.dtype, "copy", [&]<class A>() {
    with_float_type(out.dtype, "copy", [&]<class B>() {
      const CopyRows<A, B> op{StridedRows<A>(in), StridedRows<B>(out), in.stride[last], out.stride[last]};
      for_each(launch, "copy", op, op.out.count(), op.out.columns(), packed);
    });
  });
}

struct ZeroBytes {
  std::uint8_t* data;
  struct Row {
    std::uint8_t* data;
    template <int W>
    __device__ void at(std::int64_t c) const {
      store<W>(data + c, Group<std::uint8_t, W>{});
    }
  };
  __device__ Row row(std::int64_t) const { return {data}; }
};

// x contiguous.
template <class Launcher>
void zero_cuda(const Launcher& launch, const View& x) {
  const ZeroBytes op{static_cast<std::uint8_t*>(x.data)};
  for_each<16>(launch, "zero", op, 1, static_cast<std::int64_t>(x.bytes()),
               reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0);
}

template <class T>
struct SwigluForward {
  StridedRows<T> gate_up, h;
  struct Row {
    const T *gate, *up;
    T* h;
    template <int W>
    __device__ void at(std::int64_t c) const {
      const Group<T, W> g = load<W>(gate + c), u = load<W>(up + c);
      Group<T, W> out;
      FP8_UNROLL
      for (int j = 0; j < W; ++j) out.at[j] = swiglu_output(g.at[j], u.at[j]);
      store<W>(h + c, out);
    }
  };
  __device__ Row row(std::int64_t i) const {
    const T* gate = gate_up[i];
    return {gate, gate + h.columns(), h[i]};
  }
};

template <class T>
struct SwigluBackward {
  StridedRows<T> dh, gate_up, d_gate_up;
  struct Row {
    const T *dh, *gate, *up;
    T *d_gate, *d_up;
    template <int W>
    __device__ void at(std::int64_t c) const {
      const Group<T, W> d = load<W>(dh + c), g = load<W>(gate + c), u = load<W>(up + c);
      Group<T, W> dg, du;
      FP8_UNROLL
      for (int j = 0; j < W; ++j) swiglu_gradients(d.at[j], g.at[j], u.at[j], dg.at[j], du.at[j]);
      store<W>(d_gate + c, dg);
      store<W>(d_up + c, du);
    }
  };
  __device__ Row row(std::int64_t i) const {
    const T* gate = gate_up[i];
    T* d_gate = d_gate_up[i];
    return {dh[i], gate, gate + dh.columns(), d_gate, d_gate + dh.columns()};
  }
};

// Whether both halves of gate_up are aligned; `half` is a view of one half.
inline bool halves_pack(const View& joint, const View& half) {
  return packs(joint) && packs(joint.columns(half.shape[1], 2 * half.shape[1]));
}

// Views checked by swiglu_forward.
template <class Launcher>
void swiglu_forward_cuda(const Launcher& launch, const View& gate_up, const View& h) {
  with_float_type(h.dtype, "swiglu", [&]<class T>() {
    for_each(launch, "swiglu", SwigluForward<T>{StridedRows<T>(gate_up), StridedRows<T>(h)}, h.shape[0], h.shape[1],
             packs(h) && halves_pack(gate_up, h));
  });
}

// Views checked by swiglu_backward.
template <class Launcher>
void swiglu_backward_cuda(const Launcher& launch, const View& dh, const View& gate_up, const View& d_gate_up) {
  with_float_type(dh.dtype, "swiglu backward", [&]<class T>() {
    for_each(launch, "swiglu backward",
             SwigluBackward<T>{StridedRows<T>(dh), StridedRows<T>(gate_up), StridedRows<T>(d_gate_up)}, dh.shape[0],
             dh.shape[1], packs(dh) && halves_pack(gate_up, dh) && halves_pack(d_gate_up, dh));
  });
}

template <class T>
struct BiasRows {
  StridedRows<T> dy;
  struct Row {
    const T* dy;
    template <int W>
    __device__ void add(std::int64_t c, Group<float, W>& sum) const {
      const Group<T, W> d = load<W>(dy + c);
      FP8_UNROLL
      for (int j = 0; j < W; ++j) sum.at[j] += to_float(d.at[j]);
    }
  };
  __device__ Row row(std::int64_t i) const { return {dy[i]}; }
};

// Views checked by bias_backward; partial f32 [column_blocks(M, N), N].
template <class Launcher>
void bias_backward_cuda(const Launcher& launch, const View& dy, const View& db, const View& partial) {
  with_float_type(dy.dtype, "bias backward", [&]<class T>() {
    column_sums(launch, "bias backward", BiasRows<T>{StridedRows<T>(dy)}, dy.shape[0], dy.shape[1],
                packs(dy) && dy.shape[1] % kWide == 0, partial.as<float>(), db.as<float>());
  });
}

}  // namespace fp8::ops
