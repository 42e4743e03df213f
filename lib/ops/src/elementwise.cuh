// Addition, conversion, zeros, SwiGLU and the bias gradient on a device. All are bound by memory; elements have the
// same bits as on the host.
#pragma once

#include <type_traits>

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
      Group<float, W> sum = load_floats<W>(a + c);
      add_floats<W>(b + c, sum);
      store_floats<W>(out + c, sum);
    }
  };
  __device__ Row row(std::int64_t i) const { return {a[i], b[i], out[i]}; }
};

// Views checked by add().
template <class Launcher>
void add_cuda(const Launcher& launch, const View& a, const View& b, const View& out) {
  const bool flat = a.contiguous() && b.contiguous() && out.contiguous();
  const auto rows = [flat](const View& v) { return flat ? v.reshaped({v.size()}) : v; };
  const View x = rows(a), y = rows(b), to = rows(out);
  with_float_type(to.dtype, "add", [&]<class T>() {
    const AddRows<T> op{StridedRows<T>(x), StridedRows<T>(y), StridedRows<T>(to)};
    for_each(launch, "add", op, op.out.count(), op.out.columns(), packs(x) && packs(y) && packs(to));
  });
}

// Sums of terms, and of a bias that has the type of the result.
template <class A, class B>
struct SumTerms {
  const A *terms, *bias;  // bias may be null
  B* out;
  std::int64_t count, n, columns;  // terms, elements of each, and of a row
  struct Row {
    const A *terms, *bias;
    B* out;
    std::int64_t count, n;
    template <int W>
    __device__ void at(std::int64_t c) const {
      Group<float, W> sum = load_floats<W>(terms + c);
      for (std::int64_t t = 1; t < count; ++t) add_floats<W>(terms + t * n + c, sum);
      if constexpr (std::is_same_v<A, B>) {
        if (bias != nullptr) add_floats<W>(bias + c, sum);
      }
      store_floats<W>(out + c, sum);
    }
  };
  __device__ Row row(std::int64_t i) const { return {terms + i * columns, bias, out + i * columns, count, n}; }
};

// Views checked by sum_terms().
template <class Launcher>
void sum_terms_cuda(const Launcher& launch, const View& terms, const View& out) {
  const std::int64_t n = out.size();
  const SumTerms<dtype::Bf16, float> op{terms.as<const dtype::Bf16>(), nullptr, out.as<float>(), terms.shape[0], n, n};
  for_each(launch, "sum terms", op, 1, n, packs(terms) && packs(out));
}

// Views checked by sum_partials().
template <class Launcher>
void sum_partials_cuda(const Launcher& launch, const View& terms, const View& bias, const View& out) {
  with_float_type(out.dtype, "sum partials", [&]<class T>() {
    const SumTerms<T, T> op{terms.as<const T>(), bias.empty() ? nullptr : bias.as<const T>(),
                            out.as<T>(),         terms.shape[0],
                            out.size(),          out.shape[1]};
    for_each(launch, "sum partials", op, out.shape[0], out.shape[1], packs(terms) && packs(out) && packs(bias));
  });
}

template <int W, class A, class B>
__device__ inline void convert(const A* from, B* to) {
  store_floats<W>(to, load_floats<W>(from));
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
  AmaxOf amax;  // where the amax of h is written
  device::Largest largest{amax.skip_nan};
  struct Row {
    const T *gate, *up;
    T* h;
    device::Largest& largest;
    template <int W>
    __device__ void at(std::int64_t c) const {
      const Group<float, W> g = load_floats<W>(gate + c), u = load_floats<W>(up + c);
      Group<float, W> out;
      FP8_UNROLL
      for (int j = 0; j < W; ++j) out.at[j] = swiglu_value<T>(g.at[j], u.at[j]);
      const Bits<T, W> bits = bits_of<T>(out);
      largest.add(floats_of(bits));
      store_bits<W>(h + c, bits);
    }
  };
  __device__ Row row(std::int64_t i) {
    const T* gate = gate_up[i];
    return {gate, gate + h.columns(), h[i], largest};
  }
  __device__ void finish() const { amax.record<kThreads>(largest); }
};

template <class T>
struct SwigluBackward {
  StridedRows<T> dh, gate_up, d_gate_up;
  AmaxOf gate_amax, up_amax;  // where the amaxes of the halves of d_gate_up are written; may be one for both
  device::Largest of_gate{gate_amax.skip_nan}, of_up{up_amax.skip_nan};
  struct Row {
    const T *dh, *gate, *up;
    T *d_gate, *d_up;
    device::Largest &of_gate, &of_up;
    template <int W>
    __device__ void at(std::int64_t c) const {
      const Group<float, W> d = load_floats<W>(dh + c), g = load_floats<W>(gate + c), u = load_floats<W>(up + c);
      Group<float, W> dg, du;
      FP8_UNROLL
      for (int j = 0; j < W; ++j) swiglu_gradient_values<T>(d.at[j], g.at[j], u.at[j], dg.at[j], du.at[j]);
      const Bits<T, W> gate_bits = bits_of<T>(dg), up_bits = bits_of<T>(du);
      of_gate.add(floats_of(gate_bits));
      of_up.add(floats_of(up_bits));
      store_bits<W>(d_gate + c, gate_bits);
      store_bits<W>(d_up + c, up_bits);
    }
  };
  __device__ Row row(std::int64_t i) {
    const T* gate = gate_up[i];
    T* d_gate = d_gate_up[i];
    return {dh[i], gate, gate + dh.columns(), d_gate, d_gate + dh.columns(), of_gate, of_up};
  }
  __device__ void finish() const {
    gate_amax.record<kThreads>(of_gate);
    up_amax.record<kThreads>(of_up);
  }
};

// Whether both halves of gate_up are aligned; `half` is a view of one half.
inline bool halves_pack(const View& joint, const View& half) {
  return packs(joint) && packs(joint.columns(half.shape[1], 2 * half.shape[1]));
}

// Views checked by swiglu_forward.
template <class Launcher>
void swiglu_forward_cuda(const Launcher& launch, const View& gate_up, const View& h, const Amax& amax) {
  with_float_type(h.dtype, "swiglu", [&]<class T>() {
    const SwigluForward<T> op{StridedRows<T>(gate_up), StridedRows<T>(h), AmaxOf(amax)};
    for_each(launch, "swiglu", op, h.shape[0], h.shape[1], packs(h) && halves_pack(gate_up, h));
  });
}

// Views checked by swiglu_backward.
template <class Launcher>
void swiglu_backward_cuda(const Launcher& launch, const View& dh, const View& gate_up, const View& d_gate_up,
                          const Amax& amax) {
  with_float_type(dh.dtype, "swiglu backward", [&]<class T>() {
    const SwigluBackward<T> op{StridedRows<T>(dh), StridedRows<T>(gate_up), StridedRows<T>(d_gate_up), AmaxOf(amax),
                               AmaxOf(amax, amax.value.size() == 1 ? 0 : 1)};
    for_each(launch, "swiglu backward", op, dh.shape[0], dh.shape[1],
             packs(dh) && halves_pack(gate_up, dh) && halves_pack(d_gate_up, dh));
  });
}

template <class T>
struct BiasRows {
  StridedRows<T> dy;
  struct Row {
    const T* dy;
    template <int W>
    __device__ void add(std::int64_t c, Group<float, W>& sum) const {
      add_floats<W>(dy + c, sum);
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
