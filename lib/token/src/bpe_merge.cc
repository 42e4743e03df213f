// Encodes a piece: makes symbols of its characters, then merges pairs in the order of rank, then position. Short pieces
// are scanned for each merge; long ones use a heap, which takes O(n log n) time.
#include <algorithm>
#include <functional>

#include "bpe.h"
#include "byte_alphabet.h"
#include "fp8/base/error.h"
#include "unicode.h"

namespace fp8::token {
namespace {

constexpr std::uint64_t kNoMerge = ~std::uint64_t{0};
constexpr std::size_t kShort = 40;  // symbols; both ways take about the same time at this length

}  // namespace

std::uint64_t Bpe::find_merge(std::uint32_t left, std::uint32_t right) const {
  const std::uint64_t pair = std::uint64_t{left} << 32U | right;
  std::size_t at = (pair * 0x9E3779B97F4A7C15U) >> shift_;
  while (slots_[at].pair != pair) {
    if (slots_[at].pair == kNoMerge) return kNoMerge;
    at = (at + 1) & (slots_.size() - 1);
  }
  return slots_[at].merge;
}

std::optional<std::uint32_t> Bpe::whole(std::string_view piece, BpeScratch& scratch) const {
  if (!bytes_) return find(piece);
  if (piece.size() > longest_) return std::nullopt;
  scratch.text.clear();
  append_byte_characters(scratch.text, piece);
  return find(scratch.text);
}

bool Bpe::append_fallback(std::string_view text, std::vector<std::uint32_t>& symbols) const {
  const std::size_t before = symbols.size();
  for (const char c : text) {
    const std::uint32_t id = fallback_[static_cast<unsigned char>(c)];
    if (id == kNone) {
      symbols.resize(before);
      return false;
    }
    symbols.push_back(id);
  }
  return true;
}

// Consecutive unknown characters may be fused, so the id of an unknown character is delayed until the next known
// character. Like in Hugging Face's library, characters that fall back to bytes are emitted before a delayed id.
void Bpe::add_unit(char32_t unit, bool& unknown_waits, std::vector<std::uint32_t>& symbols) const {
  const std::uint32_t id = initial(unit);
  if (id != kNone) {
    if (unknown_waits) symbols.push_back(unknown_id());
    unknown_waits = false;
    symbols.push_back(id);
    return;
  }
  if (byte_fallback_) {
    std::string text;
    append_character(text, bytes_ ? character_of_byte(static_cast<unsigned char>(unit)) : unit);
    if (append_fallback(text, symbols)) return;
  }
  if (!unknown_) return;
  const std::uint32_t unknown = unknown_id();
  if (unknown_waits && !fuse_unknown_) symbols.push_back(unknown);
  unknown_waits = true;
}

void Bpe::append_symbols(std::string_view piece, std::vector<std::uint32_t>& symbols) const {
  bool unknown_waits = false;
  for (std::size_t at = 0; at < piece.size();) {
    const Character c = bytes_ ? Character{static_cast<unsigned char>(piece[at]), 1} : character_at(piece, at);
    add_unit(c.code, unknown_waits, symbols);
    at += c.length;
  }
  if (unknown_waits) symbols.push_back(unknown_id());
}

void Bpe::merge_short(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& merges = scratch.merges;
  std::size_t count = symbols.size();
  merges.resize(count);
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = find_merge(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const auto best = std::min_element(merges.begin(), merges.begin() + static_cast<std::ptrdiff_t>(count) - 1);
    if (*best == kNoMerge) break;
    const auto at = static_cast<std::size_t>(best - merges.begin());
    symbols[at] = static_cast<std::uint32_t>(*best);
    std::move(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 2,
              symbols.begin() + static_cast<std::ptrdiff_t>(count),
              symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    std::move(best + 1, merges.begin() + static_cast<std::ptrdiff_t>(count) - 1, best);
    --count;
    if (at > 0) merges[at - 1] = find_merge(symbols[at - 1], symbols[at]);
    if (at + 1 < count) merges[at] = find_merge(symbols[at], symbols[at + 1]);
  }
  symbols.resize(count);
}

void Bpe::merge_long(BpeScratch& scratch) const {
  std::vector<std::uint32_t>&symbols = scratch.symbols, &next = scratch.next, &last = scratch.last;
  std::vector<std::uint64_t>&merges = scratch.merges, &queue = scratch.queue;
  const auto count = static_cast<std::uint32_t>(symbols.size());
  merges.assign(count, kNoMerge);
  next.resize(count);
  last.resize(count);
  queue.clear();
  const auto offer = [&](std::uint32_t at) {
    merges[at] = next[at] < count ? find_merge(symbols[at], symbols[next[at]]) : kNoMerge;
    if (merges[at] == kNoMerge) return;
    queue.push_back((merges[at] >> 32U) << 32U | at);
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    last[i] = i == 0 ? kNone : i - 1;
  }
  for (std::uint32_t i = 0; i < count; ++i) offer(i);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const std::uint64_t top = queue.back();
    queue.pop_back();
    const auto at = static_cast<std::uint32_t>(top);
    if (merges[at] == kNoMerge || merges[at] >> 32U != top >> 32U) continue;  // outdated: a neighbour has changed
    const std::uint32_t gone = next[at];
    symbols[at] = static_cast<std::uint32_t>(merges[at]);
    merges[gone] = kNoMerge;
    symbols[gone] = kNone;
    next[at] = next[gone];
    if (next[at] < count) last[next[at]] = at;
    offer(at);
    if (last[at] != kNone) offer(last[at]);
  }
  symbols.erase(std::remove(symbols.begin(), symbols.end(), kNone), symbols.end());
}

void Bpe::merge(std::string_view piece, BpeScratch& scratch, std::vector<std::uint32_t>& ids) const {
  if (piece.size() >= kNone) throw Error("text: a piece is longer than 4 GiB");
  scratch.symbols.clear();
  append_symbols(piece, scratch.symbols);
  scratch.symbols.size() <= kShort ? merge_short(scratch) : merge_long(scratch);
  ids.insert(ids.end(), scratch.symbols.begin(), scratch.symbols.end());
}

}  // namespace fp8::token
