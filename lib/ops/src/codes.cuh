// Norms, SwiGLU and its gradients, and those of logits as sources of casts: a tile is computed in registers, rounded to
// bf16, and cast by the code that casts a stored matrix.
#pragma once

#include "elements.h"
#include "fp8/base/target.h"
#include "fp8/ops/codes.h"
#include "fp8/quant/group_tile.cuh"
#include "norm.cuh"
#include "rows.cuh"

namespace fp8::ops {

using quant::kPiece;
using Piece = quant::Piece<dtype::Bf16>;

// A piece of the values, rounded to bf16.
__device__ inline Piece piece_of(const Group<float, kPiece>& values) {
  const Bits<dtype::Bf16, kPiece> bits = bits_of<dtype::Bf16>(values);
  Piece piece;
  FP8_UNROLL
  for (int k = 0; k < kPiece / Piece::kPerWord; ++k) piece.words[0].at[k] = bits.words[k];
  return piece;
}

__device__ inline Group<float, kPiece> floats_of(const Piece& piece) {
  Group<float, kPiece> values;
  FP8_UNROLL
  for (int k = 0; k < kPiece; ++k) values.at[k] = piece.at(k);
  return values;
}

using Matrix = quant::Source<dtype::Bf16>;

inline Matrix matrix_of(const View& v) { return {v.as<dtype::Bf16>(), v.shape[0], v.shape[1], v.stride[0]}; }

// The normalized rows of x.
struct NormSource {
  using Element = dtype::Bf16;
  Matrix x, weight;  // one row of weights
  const float* rstd;
  std::int64_t rows, cols;

  __device__ bool aligned() const { return x.aligned() && weight.aligned(); }
  __device__ static Piece value(const Piece& x, float inverse, const Piece& w) {
    Group<float, kPiece> out = normalized_group<dtype::Bf16>(floats_of(x), inverse);
    const Group<float, kPiece> by = floats_of(w);
    FP8_UNROLL
    for (int k = 0; k < kPiece; ++k) out.at[k] *= by.at[k];
    return piece_of(out);
  }
  __device__ void load(const quant::PatchPlace& place, Piece (&pieces)[kPiece]) const {
    Piece w;
    w.load(weight.data + place.col());
    x.load(place, pieces);
    FP8_UNROLL
    for (int i = 0; i < kPiece; ++i) pieces[i] = value(pieces[i], rstd[place.row() + i], w);
  }
  __device__ void load_some(std::int64_t r, std::int64_t c, std::int64_t n, Piece& piece) const {
    Piece from, w;
    x.load_some(r, c, n, from);
    weight.load_some(0, c, n, w);
    piece = value(from, n > 0 ? rstd[r] : 0.0f, w);
  }
};

// silu(gate) * up.
struct SwigluSource {
  using Element = dtype::Bf16;
  Matrix gate, up;
  std::int64_t rows, cols;

  __device__ SwigluSource part(std::int64_t first, std::int64_t count) const {
    return {gate.part(first, count), up.part(first, count), count, cols};
  }
  __device__ bool aligned() const { return gate.aligned() && up.aligned(); }
  __device__ static Piece value(const Piece& gate, const Piece& up) {
    const Group<float, kPiece> g = floats_of(gate), u = floats_of(up);
    Group<float, kPiece> out;
    FP8_UNROLL
    for (int k = 0; k < kPiece; ++k) out.at[k] = swiglu_value<dtype::Bf16>(g.at[k], u.at[k]);
    return piece_of(out);
  }
  __device__ void load(const quant::PatchPlace& place, Piece (&pieces)[kPiece]) const {
    const std::int64_t at = place.row() * gate.stride + place.col();
    FP8_UNROLL
    for (int i = 0; i < kPiece; ++i) {
      Piece g, u;
      g.load(gate.data + at + i * gate.stride);
      u.load(up.data + at + i * up.stride);
      pieces[i] = value(g, u);
    }
  }
  __device__ void load_some(std::int64_t r, std::int64_t c, std::int64_t n, Piece& piece) const {
    Piece g, u;
    gate.load_some(r, c, n, g);
    up.load_some(r, c, n, u);
    piece = value(g, u);
  }
};

// The gradient of gate, or of up.
struct SwigluGradientSource {
  using Element = dtype::Bf16;
  Matrix dh, gate, up;
  std::int64_t rows, cols;
  bool of_up;

  __device__ SwigluGradientSource part(std::int64_t first, std::int64_t count) const {
    return {dh.part(first, count), gate.part(first, count), up.part(first, count), count, cols, of_up};
  }
  __device__ bool aligned() const { return dh.aligned() && gate.aligned() && up.aligned(); }
  __device__ Piece value(const Piece& dh_piece, const Piece& gate_piece, const Piece& up_piece) const {
    const Group<float, kPiece> d = floats_of(dh_piece), g = floats_of(gate_piece), u = floats_of(up_piece);
    Group<float, kPiece> out;
    FP8_UNROLL
    for (int k = 0; k < kPiece; ++k)
      out.at[k] = of_up ? swiglu_up_gradient<dtype::Bf16>(d.at[k], g.at[k])
                        : swiglu_gate_gradient<dtype::Bf16>(d.at[k], g.at[k], u.at[k]);
    return piece_of(out);
  }
  __device__ void load(const quant::PatchPlace& place, Piece (&pieces)[kPiece]) const {
    FP8_UNROLL
    for (int i = 0; i < kPiece; ++i) {
      const std::int64_t r = place.row() + i, at = r * gate.stride + place.col();
      Piece d, g, u{};
      d.load(dh.data + r * dh.stride + place.col());
      g.load(gate.data + at);
      if (!of_up) u.load(up.data + at);
      pieces[i] = value(d, g, u);
    }
  }
  __device__ void load_some(std::int64_t r, std::int64_t c, std::int64_t n, Piece& piece) const {
    Piece d, g, u;
    dh.load_some(r, c, n, d);
    gate.load_some(r, c, n, g);
    up.load_some(r, c, n, u);
    piece = value(d, g, u);
  }
};

// The gradient of logits; see LossRows.
struct LogitGradientSource {
  using Element = dtype::Bf16;
  Matrix logits;
  const std::int32_t* targets;
  const float *largest, *inverse;
  float scale;
  std::int64_t rows, cols;

  __device__ bool aligned() const { return logits.aligned(); }
  // The first n elements from column c of row r on, and zeros.
  __device__ Piece value(const Piece& x, std::int64_t r, std::int64_t c, std::int64_t n) const {
    if (n <= 0 || targets[r] == kIgnoredTarget) return {};
    const float shift = largest[r], inverse_of_row = inverse[r], factor = inverse_of_row * scale;
    const int target = static_cast<int>(targets[r] - c);
    Group<float, kPiece> out = floats_of(x);
    FP8_UNROLL
    for (int k = 0; k < kPiece; ++k) {
      const float v = k == target ? target_gradient_value<Element>(out.at[k] - shift, inverse_of_row, scale)
                                  : logit_gradient_value<Element>(out.at[k], shift, factor);
      out.at[k] = k < n ? v : 0.0f;
    }
    return piece_of(out);
  }
  __device__ void load(const quant::PatchPlace& place, Piece (&pieces)[kPiece]) const {
    logits.load(place, pieces);
    FP8_UNROLL
    for (int i = 0; i < kPiece; ++i) pieces[i] = value(pieces[i], place.row() + i, place.col(), kPiece);
  }
  __device__ void load_some(std::int64_t r, std::int64_t c, std::int64_t n, Piece& piece) const {
    Piece from;
    logits.load_some(r, c, n, from);
    piece = value(from, r, c, n);
  }
};

// Where the codes of one gradient go.
template <class Scales>
struct GradientCodes {
  quant::Target row, column;
  Scales scales;
  unsigned* amax;
};

// Adjacent blocks have the tile of both gradients, so that the second finds the operands in the L2 cache.
template <class Grid, bool kCounted, class Scales>
__device__ inline void cast_gradient(SwigluGradientSource x, std::int64_t first_row,
                                     const GradientCodes<Scales>& of_gate, const GradientCodes<Scales>& of_up,
                                     bool shared, unsigned long long* counts) {
  const quant::PatchPlace place(first_row, static_cast<std::int64_t>(blockIdx.x / 2) * quant::kTile);
  const auto cast = [&](const GradientCodes<Scales>& to) {
    quant::cast_tile<Grid, kCounted>(x, place, to.row, to.column, to.scales, shared, to.amax, counts);
  };
  x.of_up = blockIdx.x % 2 != 0;
  if (x.of_up)
    cast(of_up);
  else
    cast(of_gate);
}

template <class Grid, bool kCounted, class Scales>
__global__ void __launch_bounds__(quant::kCastThreads, 2)
    swiglu_gradients_kernel(SwigluGradientSource x, GradientCodes<Scales> of_gate, GradientCodes<Scales> of_up,
                            bool shared, unsigned long long* counts) {
  cast_gradient<Grid, kCounted>(x, static_cast<std::int64_t>(blockIdx.y) * quant::kTile, of_gate, of_up, shared,
                                counts);
}

// The same for groups of rows: a block finds the group of its tile first.
template <class Grid, bool kCounted, class Scales>
__global__ void __launch_bounds__(quant::kCastThreads, 2)
    swiglu_gradients_groups_kernel(quant::RowGroups groups, SwigluGradientSource x, quant::GroupTargets<Scales> of_gate,
                                   quant::GroupTargets<Scales> of_up, bool shared, unsigned long long* counts) {
  const quant::OwnGroup own(groups);
  if (!own.any()) return;
  const auto codes_of = [&](const quant::GroupTargets<Scales>& to) {
    return GradientCodes<Scales>{to.row.of(own), to.column.of(own), to.scales_of(own), to.amax_of(own)};
  };
  cast_gradient<Grid, kCounted>(own.of(x), own.first_row, codes_of(of_gate), codes_of(of_up), shared, counts);
}

// --- launches ---

// The layouts of a result.
struct ResultLayouts {
  quant::CodeLayout row, column;
  explicit ResultLayouts(const quant::ProducedCodes& to)
      : row(quant::layout_of(to.codes.last, to.power_of_2)), column(quant::layout_of(to.codes.first, to.power_of_2)) {}
  dtype::DType format() const { return row.codes != nullptr ? row.format : column.format; }
};

template <class Launcher, class From>
void launch_produced(const Launcher& launch, const char* name, const From& from, const quant::ProducedCodes& to) {
  const ResultLayouts of(to);
  quant::launch_cast(launch, name, from, of.row, of.column, to.shared, to.amax, to.counts);
}

// Views checked by rmsnorm_codes.
template <class Launcher>
void rmsnorm_codes_cuda(const Launcher& launch, const View& x, const View& weight, const View& rstd,
                        const quant::ProducedCodes& to) {
  launch_produced(launch, "rmsnorm codes",
                  NormSource{matrix_of(x), matrix_of(weight.reshaped({1, weight.size()})), rstd.as<float>(), x.shape[0],
                             x.shape[1]},
                  to);
}

inline SwigluSource swiglu_source(const View& gate_up) {
  const std::int64_t f = gate_up.shape[1] / 2;
  return {matrix_of(gate_up.columns(0, f)), matrix_of(gate_up.columns(f, 2 * f)), gate_up.shape[0], f};
}

inline SwigluGradientSource gradient_source(const View& dh, const View& gate_up) {
  const SwigluSource x = swiglu_source(gate_up);
  return {matrix_of(dh), x.gate, x.up, x.rows, x.cols, false};
}

// Views checked by swiglu_codes.
template <class Launcher>
void swiglu_codes_cuda(const Launcher& launch, const View& gate_up, const quant::ProducedCodes& to) {
  launch_produced(launch, "swiglu codes", swiglu_source(gate_up), to);
}

template <class Launcher>
void swiglu_codes_cuda(const Launcher& launch, const View& gate_up, const quant::ProducedGroups& to) {
  quant::launch_group_cast(launch, "swiglu codes", swiglu_source(gate_up), to.cast, to.cast.last, to.cast.of_first,
                           to.options);
}

// Views checked by cross_entropy_codes.
template <class Launcher>
void cross_entropy_codes_cuda(const Launcher& launch, const View& logits, const View& targets, const LossRows& rows,
                              float gradient_scale, const quant::ProducedCodes& to) {
  launch_produced(launch, "cross-entropy codes",
                  LogitGradientSource{matrix_of(logits), targets.as<std::int32_t>(), rows.largest.as<float>(),
                                      rows.inverse.as<float>(), gradient_scale, logits.shape[0], logits.shape[1]},
                  to);
}

// Views checked by swiglu_backward_codes.
template <class Launcher>
void swiglu_backward_codes_cuda(const Launcher& launch, const View& dh, const View& gate_up,
                                const std::array<quant::ProducedCodes, 2>& to) {
  const SwigluGradientSource x = gradient_source(dh, gate_up);
  if (x.rows == 0 || x.cols == 0) return;
  const ResultLayouts of_gate(to[0]), of_up(to[1]);
  dim3 grid = quant::cast_grid(x.rows, x.cols, of_gate.row, of_gate.column);
  grid.x *= 2;
  auto* const counts = reinterpret_cast<unsigned long long*>(to[0].counts);
  const auto go = [&]<class Scales>(auto scales_of) {
    const auto half = [&](const ResultLayouts& l, const View& amax) {
      return GradientCodes<Scales>{quant::target_of(l.row), quant::target_of(l.column), scales_of(l),
                                   static_cast<unsigned*>(amax.data)};
    };
    dtype::with_fp8_grid(of_gate.format(), [&]<class Grid>() {
      launch("swiglu backward codes", grid, dim3(quant::kCastThreads),
             counts != nullptr ? swiglu_gradients_kernel<Grid, true, Scales>
                               : swiglu_gradients_kernel<Grid, false, Scales>,
             x, half(of_gate, to[0].amax), half(of_up, to[1].amax), to[0].shared, counts);
    });
  };
  if (of_gate.row.computed == nullptr && of_gate.column.computed == nullptr)
    go.template operator()<quant::GivenScales>([](const ResultLayouts&) { return quant::GivenScales{}; });
  else
    go.template operator()<quant::TileScales>([](const ResultLayouts& l) {
      return quant::TileScales{quant::block_scales<dtype::Bf16>(l.row), quant::block_scales<dtype::Bf16>(l.column)};
    });
}

template <class Launcher>
void swiglu_backward_codes_cuda(const Launcher& launch, const View& dh, const View& gate_up,
                                const std::array<quant::ProducedGroups, 2>& to) {
  const quant::GroupCast& one = to[0].cast;
  const quant::CastOptions& options = to[0].options;
  dim3 grid = quant::group_grid(dh.shape[1], one.first, quant::kTile);
  grid.x *= 2;
  const auto go = [&]<class Scales>() {
    const auto targets = [&](const quant::GroupCast& c) {
      return quant::group_targets<Scales>(c, c.last, c.of_first, options.power_of_2);
    };
    dtype::with_fp8_grid(one.last.cast.fp8() ? one.last.cast.format : one.of_first.cast.format, [&]<class Grid>() {
      launch("swiglu backward codes", grid, dim3(quant::kCastThreads),
             options.counts != nullptr ? swiglu_gradients_groups_kernel<Grid, true, Scales>
                                       : swiglu_gradients_groups_kernel<Grid, false, Scales>,
             quant::row_groups(one.first), gradient_source(dh, gate_up), targets(one), targets(to[1].cast), one.shared,
             reinterpret_cast<unsigned long long*>(options.counts));
    });
  };
  if (quant::computes_blocks(one.last) || quant::computes_blocks(one.of_first))
    go.template operator()<quant::TileScales>();
  else
    go.template operator()<quant::GivenScales>();
}

}  // namespace fp8::ops
