// Uses the pieces of pinned memory round-robin; a piece is reused after its last copy is done.
#include "staging.h"

#include <algorithm>
#include <cstring>
#include <deque>

namespace fp8::device {
namespace {

// Copies large blocks with all threads.
void copy_all(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kBlock = std::size_t{256} << 10;
#pragma omp parallel for schedule(static) if (bytes > kBlock)
  for (std::size_t begin = 0; begin < bytes; begin += kBlock)
    std::memcpy(to + begin, from + begin, std::min(kBlock, bytes - begin));
}

}  // namespace

void Staging::upload(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t n = std::min(piece_bytes(), bytes - done);
    mover_.wait(next_);
    copy_all(piece(next_), from + done, n);
    mover_.begin(to + done, piece(next_), n, true);
    mover_.note(next_);
    next_ = (next_ + 1) % kPieces;
    done += n;
  }
}

void Staging::download(std::byte* to, const std::byte* from, std::size_t bytes) {
  struct Piece {
    std::size_t number, at, bytes;
  };
  std::deque<Piece> under_way;
  const auto finish_first = [&] {
    const Piece& p = under_way.front();
    mover_.wait(p.number);
    copy_all(to + p.at, piece(p.number), p.bytes);
    under_way.pop_front();
  };
  for (std::size_t done = 0; done < bytes;) {
    if (under_way.size() == kPieces) finish_first();
    const std::size_t n = std::min(piece_bytes(), bytes - done);
    mover_.wait(next_);  // an upload may still read the piece
    mover_.begin(piece(next_), from + done, n, false);
    mover_.note(next_);
    under_way.push_back({next_, done, n});
    next_ = (next_ + 1) % kPieces;
    done += n;
  }
  while (!under_way.empty()) finish_first();
}

}  // namespace fp8::device
