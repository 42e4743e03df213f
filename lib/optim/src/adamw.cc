// AdamW on the host: one pass over a block in chunks of a fixed size, vectorized within a chunk. Elements do not meet
// but in the amax, whose order does not matter, so threads and blocks cannot change a bit.
#include "fp8/optim/adamw.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <type_traits>

#include "arrays.h"
#include "cuda.h"
#include "fp8/base/error.h"
#include "fp8/device/profile.h"
#include "fp8/optim/adamw_element.h"

namespace fp8::optim {
namespace {

using dtype::Bf16;
using dtype::DType;

constexpr std::int64_t kChunk = 4096;  // elements; the noise of one fits the first-level cache
constexpr std::uint32_t kMagnitude = 0x7FFFFFFFu;

/// Random words of a chunk, one for each element; see rounding_noise().
struct Noise {
  alignas(64) std::array<std::uint32_t, kChunk + 2 * kNoiseBlock> words;

  /// Words of `count` elements from global element `first` on; returns where that of the first one lies.
  const std::uint32_t* fill(const Scalars& s, std::uint32_t tensor, std::int64_t first, std::int64_t count) {
    const std::int64_t begin = first / kNoiseBlock, end = (first + count + kNoiseBlock - 1) / kNoiseBlock;
    const std::uint64_t seed = s.seed;
    const std::int64_t number = s.update;
    for (std::int64_t block = begin; block < end; ++block) {
      std::uint32_t* out = words.data() + (block - begin) * kNoiseBlock;
#pragma GCC ivdep
      for (std::int64_t lane = 0; lane < kNoiseLanes; ++lane) {
        const auto w =
            rounding_noise(seed, number, tensor, static_cast<std::uint64_t>(block), static_cast<std::uint32_t>(lane));
        std::uint32_t* at = out + lane;
        at[0] = w[0];
        at[1 * kNoiseLanes] = w[1];
        at[2 * kNoiseLanes] = w[2];
        at[3 * kNoiseLanes] = w[3];
        at[4 * kNoiseLanes] = w[4];
        at[5 * kNoiseLanes] = w[5];
        at[6 * kNoiseLanes] = w[6];
        at[7 * kNoiseLanes] = w[7];
      }
    }
    return words.data() + first % kNoiseBlock;
  }
};

/// out = value, as numbers: the compiler does not vectorize the assignment of a struct.
void put(float& out, float value) { out = value; }
void put(Bf16& out, Bf16 value) { out.bits = value.bits; }

/// Writes the copy of a stored master weight; returns its magnitude as bits, which order as the values do, NaN above
/// all.
template <class P, class C>
std::uint32_t finish(P stored, [[maybe_unused]] C* copy) {
  const float value = dtype::to_float(stored);
  if constexpr (!std::is_same_v<C, NoCopy>) put(*copy, dtype::from_float<C>(value));
  return std::bit_cast<std::uint32_t>(value) & kMagnitude;
}

/// The address of element i, or null where there is no copy.
template <class C>
C* at(C* copy, [[maybe_unused]] std::int64_t i) {
  if constexpr (std::is_same_v<C, NoCopy>) return nullptr;
  return copy + i;
}

/// Updates elements [begin, end); returns the largest magnitude as bits.
template <class P, class M, class C>
std::uint32_t update_chunk(const Arrays<P, M, C>& arrays, std::int64_t begin, std::int64_t end,
                           const Coefficients& coefficients, float gradient_scale,
                           [[maybe_unused]] const std::uint32_t* noise) {
  const Arrays<P, M, C> a = arrays;     // local copies, so that the compiler sees
  const Coefficients c = coefficients;  // that no store changes them
  std::uint32_t amax = 0;
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    std::uint32_t random = 0, random_v = 0;
    if constexpr (!std::is_same_v<P, float> || !std::is_same_v<M, float>) {
      random = noise[i - begin];
      random_v = noise_of_v(random);
    }
    const Element before{dtype::to_float(a.master[i]), dtype::to_float(a.m[i]), dtype::to_float(a.v[i])};
    const Element e = adamw_element(before, a.gradient[i] * gradient_scale, c);
    const P stored = store_rounded<P>(e.p, random);
    put(a.master[i], stored);
    put(a.m[i], store_rounded<M>(e.m, random >> 16));
    put(a.v[i], store_rounded<M>(e.v, random_v));
    amax = std::max(amax, finish(stored, at(a.copy, i)));
  }
  return amax;
}

/// Copies elements [begin, end) of a master that stays as it is; returns the largest magnitude as bits.
template <class P, class C>
std::uint32_t keep_chunk(const P* master, C* copy, std::int64_t begin, std::int64_t end) {
  std::uint32_t amax = 0;
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) amax = std::max(amax, finish(master[i], at(copy, i)));
  return amax;
}

template <class P, class M, class C>
std::uint32_t update(const Block& b, const Arrays<P, M, C>& a, const Settings& settings, const Scalars& scalars) {
  constexpr bool kRounds = !std::is_same_v<P, float> || !std::is_same_v<M, float>;
  const Coefficients c = coefficients_of(settings, scalars, b.decay);
  const Gate gate = *scalars.gate;
  const std::int64_t n = b.master.size();
  std::uint32_t amax = 0;
#pragma omp parallel for schedule(static) num_threads(device::host_threads()) reduction(max : amax) if (n > kChunk)
  for (std::int64_t begin = 0; begin < n; begin += kChunk) {
    const std::int64_t end = std::min(begin + kChunk, n);
    if (gate.skip != 0) {
      amax = std::max(amax, keep_chunk(a.master, a.copy, begin, end));
    } else if constexpr (kRounds) {
      Noise noise;
      const std::uint32_t* words = noise.fill(scalars, b.tensor, b.first_element + begin, end - begin);
      amax = std::max(amax, update_chunk(a, begin, end, c, gate.gradient_scale, words));
    } else {
      amax = std::max(amax, update_chunk(a, begin, end, c, gate.gradient_scale, nullptr));
    }
  }
  return amax;
}

/// Calls f with a float or a Bf16, after `type`.
template <class F>
std::uint32_t with_type(DType type, const char* what, F&& f) {
  if (type == DType::f32) return f(float{});
  if (type == DType::bf16) return f(Bf16{});
  throw Error(std::string("AdamW: ") + what + " must be float32 or bfloat16");
}

void check(const Context& ctx, const Block& b) {
  const auto fits = [&](const View& view, const char* what) {
    if (view.size() != b.master.size()) throw Error(std::string("AdamW: ") + what + " differs from master in size");
    if (!view.contiguous()) throw Error(std::string("AdamW: ") + what + " is not contiguous");
    if (view.place != ctx.place) throw Error(std::string("AdamW: ") + what + " does not lie where the work is");
  };
  fits(b.master, "master");
  fits(b.gradient, "gradient");
  fits(b.m, "first moment");
  fits(b.v, "second moment");
  if (b.m.dtype != b.v.dtype) throw Error("AdamW: moments differ in type");
  if (!b.copy.empty()) fits(b.copy, "copy");
  if (!b.amax.empty() && b.amax.size() != 1) throw Error("AdamW: amax must be one number");
}

}  // namespace

Scalars scalars_of(const Settings& settings, std::int64_t t, double lr, std::uint64_t seed, const Gate* gate) {
  if (t < 1) throw Error("AdamW: updates count from 1");
  const auto count = static_cast<double>(t);
  Scalars s;
  s.lr = static_cast<float>(lr);
  s.correction1 = static_cast<float>(1.0 - std::pow(static_cast<double>(settings.beta1), count));
  s.correction2_sqrt = static_cast<float>(std::sqrt(1.0 - std::pow(static_cast<double>(settings.beta2), count)));
  s.update = t;
  s.seed = seed;
  s.gate = gate;
  return s;
}

void set_gate(const Context& ctx, const double* loss, const double* square_sum, double clip, Gate* gate) {
  if (ctx.place == device::Place::cuda) return cuda::set_gate(ctx, loss, square_sum, clip, gate);
  if (!ctx.dry) *gate = gate_of(*loss, std::sqrt(*square_sum), clip);
}

void adamw(const Context& ctx, const Block& block, const Settings& settings, const Scalars& scalars) {
  check(ctx, block);
  if (ctx.dry || block.master.size() == 0) return;
  const bool same = block.copy.data == block.master.data && block.copy.dtype == block.master.dtype;
  const bool copies = !block.copy.empty() && !same;
  const device::Timer timer(ctx, device::Work::optimizer, "AdamW",
                            2 * tensor::bytes_of(block.master, block.m, block.v) + tensor::bytes_of(block.gradient) +
                                (copies ? tensor::bytes_of(block.copy) : 0.0),
                            15 * static_cast<double>(block.master.size()));
  if (ctx.place == device::Place::cuda) {
    Block there = block;
    if (!copies) there.copy = {};
    return cuda::adamw(ctx, there, settings, scalars);
  }
  const std::uint32_t amax = with_type(block.master.dtype, "master", [&]<class P>(P) {
    return with_type(block.m.dtype, "moments", [&]<class M>(M) {
      const auto run = [&]<class C>(C* copy) {
        const Arrays<P, M, C> arrays{block.master.as<P>(), block.gradient.as<float>(), block.m.as<M>(), block.v.as<M>(),
                                     copy};
        return update(block, arrays, settings, scalars);
      };
      if (!copies) return run(static_cast<NoCopy*>(nullptr));
      return with_type(block.copy.dtype, "copy", [&]<class C>(C) { return run(block.copy.as<C>()); });
    });
  });
  if (!block.amax.empty()) {
    float* largest = block.amax.as<float>();
    *largest = std::bit_cast<float>(std::max(amax, std::bit_cast<std::uint32_t>(*largest) & kMagnitude));
  }
}

}  // namespace fp8::optim
