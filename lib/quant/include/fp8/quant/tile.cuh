/// Tiles of the kernels that cast matrices or move codes. A block has a tile of kTile rows and columns; a thread has a
/// patch of kPiece rows and columns of it, or, in kernels without a transposition, kPiece columns of several rows.
/// Codes for the GEMM that contracts the first dimension are transposed in registers, patch by patch, and pass through
/// shared memory, so that loads and stores of both layouts are of whole lines.
#pragma once

#include <bit>

#include "fp8/device/kernel.h"
#include "fp8/dtype/element.h"
#include "fp8/quant/tile_sizes.h"

namespace fp8::quant {

/// 16 bytes of memory that holds elements of another type.
struct alignas(16) [[gnu::may_alias]] FourWords {
  std::uint32_t at[4];
};

/// kPiece adjacent elements of a row, as stored. Words rather than elements, so that a BF16 becomes a float by one
/// instruction.
template <class T>
struct Piece {
  static constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
  FourWords words[kPiece / kPerWord / 4];

  /// The word of element k.
  __device__ std::uint32_t& word(int k) { return words[k / kPerWord / 4].at[k / kPerWord % 4]; }
  /// Element k.
  __device__ float at(int k) const {
    const std::uint32_t word = words[k / kPerWord / 4].at[k / kPerWord % 4];
    if constexpr (kPerWord == 1) return std::bit_cast<float>(word);
    return std::bit_cast<float>(k % 2 == 0 ? word << 16 : word & 0xFFFF0000u);
  }
  /// Loads from an address that is a multiple of 16 bytes.
  __device__ void load(const T* from) {
    FP8_UNROLL
    for (int p = 0; p < kPiece / kPerWord / 4; ++p) words[p] = reinterpret_cast<const FourWords*>(from)[p];
  }
  /// The first `n` elements, at any address; the others become zero.
  __device__ void load_some(const T* from, std::int64_t n) {
    FP8_UNROLL
    for (int k = 0; k < kPiece; ++k) {
      const std::uint32_t bits = k < n ? bits_of(from[k]) : 0u;
      word(k) = k % kPerWord == 0 ? bits : word(k) | bits << 16;
    }
  }
  /// Loads from column c of a row of `cols`, and zeros past its end. `packed`: device::packs() of the matrix.
  __device__ void load(const T* row, std::int64_t c, std::int64_t cols, bool packed) {
    if (packed && c + kPiece <= cols)
      load(row + c);
    else
      load_some(row + c, cols - c);
  }

 private:
  __device__ static std::uint32_t bits_of(float v) { return std::bit_cast<std::uint32_t>(v); }
  __device__ static std::uint32_t bits_of(dtype::Bf16 v) { return v.bits; }
};

/// Whether rows that begin at p, `stride` bytes apart, allow accesses of `bytes`.
__device__ inline bool rows_aligned(const void* p, std::int64_t stride, int bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % static_cast<unsigned>(bytes) == 0 && stride % bytes == 0;
}

/// kPiece codes of a line, the first in the lowest byte.
struct alignas(8) [[gnu::may_alias]] Eight {
  std::uint32_t low, high;
};

/// The first n of kPiece codes; the others become zero.
__device__ inline Eight first_codes(Eight e, std::int64_t n) {
  const auto mask = [](std::int64_t bytes) {
    return bytes >= 4 ? 0xFFFFFFFFu : bytes <= 0 ? 0u : (1u << (8 * static_cast<int>(bytes))) - 1;
  };
  return {e.low & mask(n), e.high & mask(n - 4)};
}

/// Code i.
__device__ inline std::uint8_t byte_of(const Eight& e, int i) {
  return static_cast<std::uint8_t>((i < 4 ? e.low : e.high) >> (8 * (i % 4)));
}

/// The first n codes at any address; the others become zero.
__device__ inline Eight load_some_codes(const std::uint8_t* from, std::int64_t n) {
  std::uint32_t words[2] = {};
  FP8_UNROLL
  for (int k = 0; k < kPiece; ++k) words[k / 4] |= k < n ? static_cast<std::uint32_t>(from[k]) << (8 * (k % 4)) : 0u;
  return {words[0], words[1]};
}

/// Transposes 4 words of 4 bytes.
__device__ inline void transpose_bytes(const std::uint32_t (&from)[4], std::uint32_t (&to)[4]) {
  const unsigned low01 = __byte_perm(from[0], from[1], 0x5140), low23 = __byte_perm(from[2], from[3], 0x5140);
  const unsigned high01 = __byte_perm(from[0], from[1], 0x7362), high23 = __byte_perm(from[2], from[3], 0x7362);
  to[0] = __byte_perm(low01, low23, 0x5410);
  to[1] = __byte_perm(low01, low23, 0x7632);
  to[2] = __byte_perm(high01, high23, 0x5410);
  to[3] = __byte_perm(high01, high23, 0x7632);
}

/// A thread's patch: codes of kPiece lines.
struct Patch {
  Eight line[kPiece];

  /// The lines of the result are the columns of this patch.
  __device__ Patch transposed() const {
    Patch out;
    FP8_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Eight* const from = line + 4 * half;
      const std::uint32_t low[4] = {from[0].low, from[1].low, from[2].low, from[3].low};
      const std::uint32_t high[4] = {from[0].high, from[1].high, from[2].high, from[3].high};
      std::uint32_t first[4], second[4];
      transpose_bytes(low, first);
      transpose_bytes(high, second);
      FP8_UNROLL
      for (int k = 0; k < 4; ++k) {
        (half == 0 ? out.line[k].low : out.line[k].high) = first[k];
        (half == 0 ? out.line[4 + k].low : out.line[4 + k].high) = second[k];
      }
    }
    return out;
  }
};

/// Where a thread's patch lies.
struct PatchPlace {
  int group, lane;                    // position in the tile in units of kPiece: column and row
  std::int64_t first_row, first_col;  // first row and first column of the tile
  __device__ PatchPlace() : PatchPlace(static_cast<std::int64_t>(blockIdx.y) * kTile) {}
  __device__ explicit PatchPlace(std::int64_t first_row_of_tile)
      : PatchPlace(first_row_of_tile, static_cast<std::int64_t>(blockIdx.x) * kTile) {}
  __device__ PatchPlace(std::int64_t first_row_of_tile, std::int64_t first_column_of_tile)
      : group(static_cast<int>(threadIdx.x) % kGroups),
        lane(static_cast<int>(threadIdx.x) / kGroups),
        first_row(first_row_of_tile),
        first_col(first_column_of_tile) {}
  __device__ std::int64_t row() const { return first_row + lane * kPiece; }
  __device__ std::int64_t col() const { return first_col + group * kPiece; }
  /// Whether the whole tile is in a matrix.
  __device__ bool inside(std::int64_t rows, std::int64_t cols) const {
    return first_row + kTile <= rows && first_col + kTile <= cols;
  }
};

/// Lines of codes that a kernel writes; codes null: not wanted. Bytes past the end of a line become zero.
struct CodeLines {
  std::uint8_t* codes;
  std::int64_t stride;  // bytes from one line to the next

  /// Whether every multiple of `bytes` in every line has an address that is a multiple of it.
  __device__ bool aligned(int bytes) const { return rows_aligned(codes, stride, bytes); }
  /// The codes that are within the line, at any address.
  __device__ void store_some(std::int64_t l, std::int64_t at, const Eight& e) const {
    std::uint8_t* const to = codes + l * stride + at;
    if (reinterpret_cast<std::uintptr_t>(to) % sizeof(Eight) == 0 && at + kPiece <= stride) {
      *reinterpret_cast<Eight*>(to) = e;
      return;
    }
    FP8_UNROLL
    for (int k = 0; k < kPiece; ++k) {
      if (at + k < stride) to[k] = byte_of(e, k);
    }
  }
};

/// The transposed codes of a tile in shared memory: for each column kGroups pieces of kPiece rows. The piece of rows j
/// of a column is at j ^ (column / kPiece), so that the stores of the patches of a row of threads, and the loads of 16
/// bytes of adjacent rows, are in different banks.
struct TransposedTile {
  Eight (&pieces)[kTile * kGroups];

  /// Codes of a patch whose lines are columns.
  __device__ void put(const PatchPlace& at, const Patch& columns) const {
    FP8_UNROLL
    for (int k = 0; k < kPiece; ++k) pieces[(at.group * kPiece + k) * kGroups + (at.lane ^ at.group)] = columns.line[k];
  }
  /// Codes of row `i` of a patch, byte by byte.
  __device__ void put_row(const PatchPlace& at, int i, const Eight& row) const {
    auto* const bytes = reinterpret_cast<std::uint8_t*>(pieces);
    FP8_UNROLL
    for (int k = 0; k < kPiece; ++k)
      bytes[((at.group * kPiece + k) * kGroups + (at.lane ^ at.group)) * kPiece + i] = byte_of(row, k);
  }
  /// Stores the lines, which are the first of `cols` columns, 16 bytes at a time; all threads must have put theirs.
  __device__ void store(const PatchPlace& at, const CodeLines& to, std::int64_t cols) const {
    constexpr int kPairs = kGroups / 2, kStep = kCastThreads / kPairs;  // pairs of pieces of a line; lines at a time
    struct alignas(16) [[gnu::may_alias]] Sixteen {
      Eight first, second;
    };
    const int pair = static_cast<int>(threadIdx.x) % kPairs, own = static_cast<int>(threadIdx.x) / kPairs;
    const std::int64_t line = at.first_col + own, i = at.first_row + pair * 2 * kPiece;
    const auto two_pieces = [&](int column) {
      const int swizzle = column / kPiece;
      const auto both = reinterpret_cast<const Sixteen*>(pieces)[column * kPairs + (pair ^ (swizzle / 2))];
      return swizzle % 2 == 0 ? both : Sixteen{both.second, both.first};
    };
    if (to.aligned(sizeof(Sixteen)) && at.first_col + kTile <= cols && at.first_row + kTile <= to.stride) {
      std::uint8_t* out = to.codes + line * to.stride + i;
      FP8_UNROLL
      for (int n = 0; n < kTile; n += kStep, out += kStep * to.stride)
        *reinterpret_cast<Sixteen*>(out) = two_pieces(n + own);
      return;
    }
    FP8_NO_UNROLL
    for (int n = 0; n < kTile && line + n < cols; n += kStep) {
      const Sixteen both = two_pieces(n + own);
      to.store_some(line + n, i, both.first);
      to.store_some(line + n, i + kPiece, both.second);
    }
  }
};

}  // namespace fp8::quant
