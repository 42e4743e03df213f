/// Groups of adjacent elements that a thread of a kernel loads and stores together, in accesses of 16 bytes, and
/// computes with as floats. Their bits stay in 32-bit words until they are used: a compiler may divide accesses to
/// arrays of elements. See kernel.h for kernels on the host.
#pragma once

#include <bit>
#include <cstdint>

#include "fp8/device/kernel.h"
#include "fp8/dtype/element.h"

namespace fp8::device {

/// W adjacent elements.
template <class T, int W>
struct alignas(W * sizeof(T) < 16 ? W * sizeof(T) : 16) Group {
  T at[W];  ///< elements in memory order
};

/// The bits of W adjacent elements of T, 8 bytes or a multiple of 16.
template <class T, int W>
struct Bits {
  static_assert(W * sizeof(T) == 8 || W * sizeof(T) % 16 == 0);
  std::uint32_t words[W * sizeof(T) / 4];  ///< bits of the elements in memory order
};
/// A single element.
template <class T>
struct Bits<T, 1> {
  T at;  ///< the element
};

#ifdef __CUDACC__
/// Stores 8 bytes in global memory. The compiler cannot divide the store, and moves no access past it.
__device__ inline void store_words(uint2* to, uint2 v) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(v.x), "r"(v.y) : "memory");
}
/// Stores 16 bytes in global memory, with the guarantees of the 8 bytes above.
__device__ inline void store_words(uint4* to, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
#else
/// Stores words in memory of the host.
template <class Words>
void store_words(Words* to, Words v) {
  *to = v;
}
#endif

/// The bits of W elements from p on, aligned to min(16, their size) bytes.
template <int W, class T>
__device__ inline Bits<T, W> load_bits(const T* p) {
  Bits<T, W> bits;
  if constexpr (W == 1) {
    bits.at = *p;
  } else if constexpr (sizeof(bits) == 8) {
    const uint2 v = *reinterpret_cast<const uint2*>(p);
    bits.words[0] = v.x, bits.words[1] = v.y;
  } else {
    FP8_UNROLL
    for (int k = 0; k < static_cast<int>(sizeof(bits) / 16); ++k) {
      const uint4 v = reinterpret_cast<const uint4*>(p)[k];
      bits.words[4 * k] = v.x, bits.words[4 * k + 1] = v.y, bits.words[4 * k + 2] = v.z, bits.words[4 * k + 3] = v.w;
    }
  }
  return bits;
}

/// Stores the bits of W elements in global memory; alignment as load_bits(). Loads should come before it: see
/// store_words().
template <int W, class T>
__device__ inline void store_bits(T* p, const Bits<T, W>& bits) {
  if constexpr (W == 1) {
    *p = bits.at;
  } else if constexpr (sizeof(bits) == 8) {
    store_words(reinterpret_cast<uint2*>(p), uint2{bits.words[0], bits.words[1]});
  } else {
    FP8_UNROLL
    for (int k = 0; k < static_cast<int>(sizeof(bits) / 16); ++k) {
      const std::uint32_t* const v = bits.words + 4 * k;
      store_words(reinterpret_cast<uint4*>(p) + k, uint4{v[0], v[1], v[2], v[3]});
    }
  }
}

/// The values of bits of f32 or bf16.
template <class T, int W>
__device__ inline Group<float, W> floats_of(const Bits<T, W>& bits) {
  Group<float, W> v;
  if constexpr (W == 1) {
    v.at[0] = dtype::to_float(bits.at);
  } else {
    FP8_UNROLL
    for (int k = 0; k < static_cast<int>(sizeof(bits) / 4); ++k) {
      if constexpr (sizeof(T) == 4) {
        v.at[k] = std::bit_cast<float>(bits.words[k]);
      } else {
        v.at[2 * k] = std::bit_cast<float>(bits.words[k] << 16);
        v.at[2 * k + 1] = std::bit_cast<float>(bits.words[k] & 0xFFFF0000u);
      }
    }
  }
  return v;
}

/// Values as T (f32 or bf16), rounded to nearest even.
template <class T, int W>
__device__ inline Bits<T, W> bits_of(const Group<float, W>& v) {
  Bits<T, W> bits;
  if constexpr (W == 1) {
    bits.at = dtype::from_float<T>(v.at[0]);
  } else {
    FP8_UNROLL
    for (int k = 0; k < static_cast<int>(sizeof(bits) / 4); ++k) {
      if constexpr (sizeof(T) == 4) {
        bits.words[k] = std::bit_cast<std::uint32_t>(v.at[k]);
      } else {
        bits.words[k] = dtype::to_bf16_pair(v.at[2 * k], v.at[2 * k + 1]);
      }
    }
  }
  return bits;
}

/// W elements from p on as floats; alignment as load_bits().
template <int W, class T>
__device__ inline Group<float, W> load_floats(const T* p) {
  return floats_of(load_bits<W>(p));
}

/// Stores W floats in global memory as elements of T, rounded to nearest even; alignment as load_bits().
template <int W, class T>
__device__ inline void store_floats(T* p, const Group<float, W>& v) {
  store_bits<W>(p, bits_of<T>(v));
}

/// W elements from p on; alignment as load_bits().
template <int W, class T>
__device__ inline Group<T, W> load(const T* p) {
  return std::bit_cast<Group<T, W>>(load_bits<W>(p));
}

/// Stores W elements in global memory; alignment as load_bits().
template <int W, class T>
__device__ inline void store(T* p, const Group<T, W>& group) {
  store_bits<W>(p, std::bit_cast<Bits<T, W>>(group));
}

/// The largest magnitude that a thread has seen, as bits, which order like the values, NaN above all.
class Largest {
 public:
  /// Starts without values; `skip_nan` leaves NaNs out.
  __host__ __device__ explicit Largest(bool skip_nan) : limit_(skip_nan ? 0x7F800000u : 0x7FFFFFFFu) {}
  /// Adds W values.
  template <int W>
  __device__ void add(const Group<float, W>& v) {
    FP8_UNROLL
    for (int j = 0; j < W; ++j) {
      const unsigned magnitude = std::bit_cast<std::uint32_t>(v.at[j]) & 0x7FFFFFFFu;
      if (magnitude <= limit_) bits_ = LargestBits{}(bits_, magnitude);
    }
  }
  /// *out becomes max(itself, the maximum over the Threads threads of the block), as bits. All threads must call it.
  template <int Threads>
  __device__ void record(unsigned* out) const {
    const unsigned of_block = block_combine<Threads>(bits_, LargestBits{});
    if (threadIdx.x == 0) atomicMax(out, of_block);
  }

 private:
  unsigned bits_ = 0, limit_;
};

}  // namespace fp8::device
